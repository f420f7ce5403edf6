"""The straight line nearest to a map on the selected rows."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from uncurse import VAD, Affine, Auto, Curve, Fitted, ReplicaCalibrator, UncurseError, load
from uncurse.evidence import from_arrays
from uncurse.methods import DataRecord, FitRecord

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-2, 0.8, 20_000)
POOL = TRUTH[:, None] + np.exp(RNG.normal(-1, 0.6, (20_000, 1))) * RNG.normal(size=(20_000, 3))
LABELS = RNG.random(len(POOL)) < expit(TRUTH)
CURVE = Curve((-4.0, -1.0, 0.0, 2.0), (-3.0, -1.4, -1.1, -0.9), 0.5, 0.1)
COMMON = {"scale": "logit", "replicas": "seeds"}


def of_pool(score_map, scores):
    """A map with the record of a pool."""
    return Fitted(score_map, FitRecord("test", DataRecord.of(from_arrays(scores))))


def top_mean(predictions, served, alpha):
    return predictions[np.argsort(-served)[: round(alpha * len(served))]].mean()


def error_of(line, fitted, served, alpha):
    return top_mean(line(served), served, alpha) / top_mean(fitted.predict_proba(served), served, alpha) - 1


def test_the_line_is_the_least_squares_line_of_log_means():
    served = POOL[:, 0]
    line = of_pool(CURVE, POOL).to_affine((0.01, 0.1))
    shares = np.geomspace(0.01, 0.1, 9)
    target = np.log([top_mean(CURVE(served), served, alpha) for alpha in shares])
    top = np.sort(served)[::-1][: len(served) // 10]

    def squares(x):
        p = expit(x[0] * top + x[1])
        return np.square(np.log([p[: round(a * len(served))].mean() for a in shares]) - target).sum()

    best = minimize(squares, [0.3, -1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert (line.slope, line.intercept) == pytest.approx(tuple(best.x), abs=4e-3)
    errors = np.log([top_mean(line(served), served, alpha) for alpha in shares]) - target
    assert line.max_error == pytest.approx(np.abs(np.expm1(errors)).max(), rel=0.1)


def test_a_pool_of_few_distinct_scores_has_a_line():
    pool = np.random.default_rng(0).choice([-3.0, -2.0, -1.0], (100_000, 1)) + np.zeros(2)
    line = of_pool(CURVE, pool).to_affine()
    assert line.max_error < 1e-9  # the top 10% of the rows have the highest score
    np.testing.assert_allclose(line([-1.0]), CURVE([-1.0]), rtol=1e-4)


def test_a_line_of_a_line_is_itself():
    vad = VAD(**COMMON).fit(POOL)
    line = vad.to_affine()
    assert (line.slope, line.intercept, line.max_error) == (vad.map_.slope, vad.map_.intercept, 0)
    sampled = VAD(**COMMON, negative_sampling_rate=0.5).fit(POOL)
    assert sampled.to_affine().max_error == 0
    np.testing.assert_allclose(sampled.to_affine()(POOL[:9, 0]), sampled.predict_proba(POOL[:9, 0]))


@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("negative_sampling_rate", [None, 0.3])
@pytest.mark.filterwarnings("ignore:the odds of the labels")
def test_lines_of_the_methods_are_near_their_maps(scale, negative_sampling_rate, tmp_path):
    pool = expit(POOL) if scale == "probability" else POOL
    options = {"scale": scale, "replicas": "seeds", "negative_sampling_rate": negative_sampling_rate}
    for fitted in (
        Auto(**options).fit(pool),
        VAD(curvature=True, **options).fit(pool),  # of a normal: only moments are known
        ReplicaCalibrator(**options).fit(pool, labeled=(pool, LABELS), labels_from="elsewhere"),
    ):
        line = fitted.to_affine()
        assert isinstance(line, Affine)
        assert line.scale == scale
        assert line.max_error < 0.06
        rough = 0.02 if isinstance(fitted, VAD) else 0.003
        for alpha in (0.01, 0.03, 0.1):
            assert abs(error_of(line, fitted, pool[:, 0], alpha)) < line.max_error + rough
        fitted.save(tmp_path / "map.json")
        assert load(tmp_path / "map.json").to_affine() == line == fitted.to_affine((0.01, 0.1))


@pytest.mark.parametrize(
    ("method", "scale", "rate"),
    [(Auto, "logit", None), (ReplicaCalibrator, "logit", 0.3), (Auto, "probability", 0.3)],
)
def test_a_line_keeps_the_mean_prediction_of_winners(method, scale, rate):
    requests = TRUTH.reshape(-1, 8)
    best = (np.arange(len(requests)), POOL[:, 0].reshape(-1, 8).argmax(axis=1))
    winners = POOL.reshape(-1, 8, 3)[best]
    labels = np.random.default_rng(1).random(len(winners)) < expit(requests[best] + np.log(rate or 1.0))
    change = expit if scale == "probability" else np.asarray
    fitted = method(scale=scale, replicas="seeds", negative_sampling_rate=rate)
    fitted.fit(change(POOL), labeled=(change(winners), labels), labels_from="winners")
    served, line = change(winners[:, 0]), fitted.to_affine()
    # Quantiles of the scores give the means to about 0.2%.
    assert line(served).mean() == pytest.approx(fitted.predict_proba(served).mean(), rel=4e-3)
    for alpha in (0.1, 0.3, 1.0):
        assert abs(error_of(line, fitted, served, alpha)) < line.max_error + 0.005
    # The line of the top of the pool, which winners are not, is another one.
    of_pool = fitted.to_affine((0.01, 0.1))
    assert abs(of_pool(served).mean() / fitted.predict_proba(served).mean() - 1) > 5e-3


def test_maps_without_a_line_are_refused(tmp_path):
    by_segment = VAD(**COMMON, curvature=True).fit(POOL, segments=np.resize(["a", "b"], len(POOL)))
    with pytest.raises(UncurseError, match="segment"):
        by_segment.to_affine()
    CURVE.save(tmp_path / "map.json")
    with pytest.raises(UncurseError, match="a line needs the distribution of the scores"):
        load(tmp_path / "map.json").to_affine()
    for alphas in ((0.1, 0.01), 0.1, (0.0, 0.1), (0.01, 0.02, 0.1)):
        for fitted in (VAD(**COMMON, curvature=True).fit(POOL), VAD(**COMMON).fit(POOL)):
            with pytest.raises(UncurseError, match="alpha"):
                fitted.to_affine(alphas)
