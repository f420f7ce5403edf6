"""The straight line nearest to a map on the top of the pool."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from uncurse import VAD, Affine, Auto, Curve, Tower, UncursedClassifierCV, UncurseError
from uncurse.debias.straight_line import straight_line
from uncurse.serving import fold

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-2, 0.8, 20_000)
POOL = TRUTH[:, None] + np.exp(RNG.normal(-1, 0.6, (20_000, 1))) * RNG.normal(size=(20_000, 3))
CURVE = Curve((-4.0, -1.0, 0.0, 2.0), (-3.0, -1.4, -1.1, -0.9), 0.5, 0.1)


def top_mean(predictions, served, alpha):
    return predictions[np.argsort(-served)[: round(alpha * len(served))]].mean()


def test_the_line_is_the_least_squares_line_of_log_means():
    served = POOL[:, 0]
    line, loss = straight_line(CURVE, served, np.ones(len(served)), (0.01, 0.1))
    shares = np.geomspace(0.01, 0.1, 9)
    target = np.log([top_mean(CURVE(served), served, alpha) for alpha in shares])
    top = np.sort(served)[::-1][: len(served) // 10]

    def squares(x):
        p = expit(x[0] * top + x[1])
        return np.square(np.log([p[: round(a * len(served))].mean() for a in shares]) - target).sum()

    best = minimize(squares, [0.3, -1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12})
    assert (line.slope, line.intercept) == pytest.approx(tuple(best.x), abs=2e-3)
    errors = np.log([top_mean(line(served), served, alpha) for alpha in shares]) - target
    assert loss == pytest.approx(np.abs(np.expm1(errors)).max(), rel=0.05)


def test_a_pool_of_few_distinct_scores_has_a_line():
    rng = np.random.default_rng(0)
    pool = rng.choice([-3.0, -2.0, -1.0], 100_000)[:, None] + rng.choice([-0.5, 0.0, 0.5], (100_000, 2))
    pool = np.round(np.clip(pool, -3.0, -1.0))
    vad = VAD(curvature=True, intervals=True).fit(pool)
    assert len(vad._pool_scores()[0]) < 10
    line, loss = vad.line()
    assert loss < 1e-9  # the top 10% of the rows have the highest score
    np.testing.assert_allclose(line([-1.0]), vad.map_([-1.0]), rtol=1e-4)


def test_a_line_of_a_line_is_itself_and_loses_nothing():
    vad = VAD().fit(POOL)
    assert vad.line() == (vad.map_, 0.0)
    curved = VAD(curvature=True).fit(POOL)
    served, weight = curved._pool_scores()
    assert curved.line() == curved.line((0.01, 0.1)) == straight_line(curved.map_, served, weight)
    chain = VAD(negative_rate=0.5).fit(POOL)
    line, loss = chain.line()
    assert loss == 0
    np.testing.assert_allclose(line(POOL[:9, 0]), chain.predict_proba(POOL[:9, 0]))


@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("negative_rate", [None, 0.3])
def test_lines_of_the_methods_are_near_their_maps(scale, negative_rate):
    pool = expit(POOL) if scale == "probability" else POOL
    labels = RNG.random(len(POOL)) < expit(TRUTH)
    options = {"scale": scale, "negative_rate": negative_rate}
    for fitted in (
        Auto(**options).fit(pool),
        VAD(curvature=True, **options).fit(pool),
        Tower(**options).fit(pool, labelled=(pool, labels)),
    ):
        line, loss = fitted.line((0.01, 0.1))
        assert isinstance(line, Affine)
        assert line.scale == scale
        assert loss < 0.06
        for alpha in (0.01, 0.03, 0.1):
            served = pool[:, 0]
            error = top_mean(line(served), served, alpha) / top_mean(fitted.predict_proba(served), served, alpha) - 1
            assert abs(error) < loss + 0.003


@pytest.mark.parametrize(
    ("method", "scale", "negative_rate"), [(Auto, "logit", None), (Tower, "logit", 0.3), (Auto, "probability", 0.3)]
)
def test_line_keeps_the_mean_prediction_of_winners(method, scale, negative_rate):
    rng = np.random.default_rng(1)
    requests = TRUTH.reshape(-1, 8)
    best = (np.arange(len(requests)), POOL[:, 0].reshape(-1, 8).argmax(axis=1))
    winners = POOL.reshape(-1, 8, 3)[best]
    offset = 0.0 if negative_rate is None else np.log(negative_rate)
    labels = rng.random(len(winners)) < expit(requests[best] + offset)
    change = expit if scale == "probability" else np.asarray
    fitted = method(scale=scale, negative_rate=negative_rate, selected_by="served")
    fitted.fit(change(POOL), labelled=(change(winners), labels))
    assert fitted.record_.selected_by == "served"
    served = change(winners[:, 0])
    line, loss = fitted.line()
    # Cells of the grid have some rows in common, so the means agree to about 0.1%.
    assert line(served).mean() == pytest.approx(fitted.predict_proba(served).mean(), rel=2e-3)
    for alpha in (0.1, 0.3, 1.0):
        error = top_mean(line(served), served, alpha) / top_mean(fitted.predict_proba(served), served, alpha) - 1
        assert abs(error) < loss + 0.005
    cells = fitted._selected
    assert (line, loss) == straight_line(fitted.map_, cells.served - offset, cells.weight, (0.1, 1.0))
    # The line of the top of the pool, which winners are not, is another one.
    of_pool = fitted.line((0.01, 0.1))[0]
    assert abs(of_pool(served).mean() / fitted.predict_proba(served).mean() - 1) > 5e-3


def test_a_map_with_groups_has_no_line():
    vad = VAD(curvature=True).fit(POOL, groups=np.resize(["a", "b"], len(POOL)))
    with pytest.raises(UncurseError, match="fit each group on its own"):
        vad.line()


def test_shares_are_checked():
    vad = VAD(curvature=True).fit(POOL)
    for alphas, message in (
        ((0.1, 0.01), "must be smaller"),
        (0.1, "pass the smallest and the largest share"),
        ((0.0, 0.1), "alpha"),
        ((0.01, 0.02, 0.1), "pass the smallest and the largest share"),
    ):
        for fitted in (vad, VAD().fit(POOL)):
            with pytest.raises(UncurseError, match=message):
                fitted.line(alphas)
    with pytest.raises(UncurseError, match="not fitted"):
        VAD().line()
    labels = RNG.random(len(POOL)) < expit(TRUTH)
    with pytest.raises(UncurseError, match="a line needs the scores of the pool"):
        VAD(calibrator="isotonic").fit(POOL, labelled=(POOL, labels)).line()
    served = np.linspace(-4, 1, 10)
    assert straight_line(CURVE, served, np.ones(10), (0.01, 0.1))[1] < 1e-9  # one score has a line through it
    with pytest.raises(UncurseError, match="the top 10% of 9 scores selects none; pass larger alphas"):
        straight_line(CURVE, served[1:], np.ones(9), (0.01, 0.1))


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_fold_takes_a_fitted_estimator_and_offers_a_line():
    lightgbm = pytest.importorskip("lightgbm")
    X = RNG.normal(size=(3_000, 5))
    y = RNG.random(3_000) < expit(X.sum(axis=1) - 2)
    model = lightgbm.LGBMClassifier(n_estimators=40, n_jobs=1, verbose=-1)
    clf = UncursedClassifierCV(model, random_state=0).fit(X, y)
    with pytest.raises(UncurseError, match=r"fold the line nearest to it: fold\(…, straight=True\)"):
        fold(clf)
    folded = fold(clf, straight=True)
    line, loss = clf.line()
    assert loss < 0.01
    expected = line(clf.estimator_.predict_proba(X)[:, 1])
    np.testing.assert_allclose(folded.predict_proba(X)[:, 1], expected, rtol=1e-9)
    with pytest.raises(UncurseError, match="straight=True needs a fitted method"):
        fold(line, model, straight=True)
    with pytest.raises(UncurseError, match="no model to fold into"):
        fold(line)
