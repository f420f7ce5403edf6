"""Kinds of replica: noise variances against closed forms, and what selected labeled rows."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from uncurse import VAD, Auto, ReplicaCalibrator, UncurseError
from uncurse.estimators import fit_replicas
from uncurse.evidence import from_arrays
from uncurse.links import logistic
from uncurse.methods import KINDS
from uncurse.methods.noise import served_lead

TRUE, NOISE = 0.64, 0.16  # variances of the true score and of the noise of one model


def vad(replicas, **options):
    return VAD(scale="logit", replicas=replicas, **options)


def members(rows, size, seed=0, center=-2.0, slope=1.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(center, np.sqrt(TRUE), rows)
    return truth, slope * truth[:, None] + rng.normal(0, np.sqrt(NOISE), (rows, size))


def top_error(score, predicted, truth, alpha):
    top = np.argsort(-score)[: int(alpha * len(score))]
    return predicted[top].sum() / logistic(truth[top]).sum() - 1


# ---------------------------------------------------------------------------- every kind


@pytest.mark.parametrize("replicas", [*KINDS])
def test_noise_variance_keeps_leading_axes_and_is_never_negative(replicas):
    pools = [members(50, 3, seed)[1] for seed in range(4)]
    pools.append(1e3 * members(50, 1)[1] + [0.0, 1e5, -7.0])
    stack = np.stack([np.cov(pool, rowvar=False) for pool in pools])
    found = KINDS[replicas].noise_variance(stack)
    np.testing.assert_allclose(found, [KINDS[replicas].noise_variance(c) for c in stack], rtol=1e-14)
    assert (found >= 0).all()


@pytest.mark.parametrize("replicas", [*KINDS])
@pytest.mark.parametrize("columns", [2, 3, 6])
def test_rows_of_a_table_have_the_noise_that_covariances_show(replicas, columns):
    """Summaries of rows, which denoise scores, and covariances, from which λ follows, use the same V."""
    scores = members(30_000, columns)[1] + 0.3 * np.arange(columns)  # levels that differ
    if replicas == "bootstrap":
        scores[:, 1:] += 1.2 * scores[:, :1]
    evidence, kind = from_arrays(scores), KINDS[replicas]
    summary = kind.summarize(kind.table_of(evidence, "pool"))
    noise = np.average(summary.variance, weights=summary.weight) / summary.served_models
    assert noise == pytest.approx(float(kind.noise_variance(kind.columns(evidence.moments)[1])), rel=0.02)


def test_the_variance_of_levels_depends_on_the_kind():
    levels = np.array([0.0, 0.3, -0.1, 0.4])
    assert KINDS["seeds"].level_variance(levels) == (pytest.approx(levels.var(ddof=1) / 4), 3)
    assert KINDS["bootstrap"].level_variance(levels) == (pytest.approx(levels[1:].var(ddof=1)), 2)
    assert KINDS["bootstrap"].level_variance(levels[:2]) == (pytest.approx(0.09), 1)
    # Column 0 is the mean of the three members.
    assert KINDS["ensemble"].level_variance(levels) == (pytest.approx(levels[1:].var(ddof=1) / 3), 2)


# ---------------------------------------------------------------------------- ensembles


def test_an_ensemble_has_the_noise_of_its_mean():
    _, scores = members(200_000, 4)
    fitted, mean = vad("ensemble").fit(scores), scores.mean(axis=1)
    assert fitted.noise_variance_ == pytest.approx(scores.var(axis=1, ddof=1).mean() / 4, rel=1e-3)
    assert fitted.score_variance_ == pytest.approx(mean.var())
    assert fitted.lambda_ == pytest.approx(1 - fitted.noise_variance_ / fitted.score_variance_)
    assert fitted.center_ == pytest.approx(mean.mean())


@pytest.mark.theory
@pytest.mark.parametrize("size", [2, 5])
def test_the_noise_of_an_ensemble_matches_the_closed_form(size):
    found = [vad("ensemble").fit(members(5_000, size, seed)[1]) for seed in range(200)]
    for values, expected in (
        ([one.noise_variance_ for one in found], NOISE / size),
        ([one.lambda_ for one in found], TRUE / (TRUE + NOISE / size)),
    ):
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 3 * error + 1e-3 * expected


def test_maps_of_an_ensemble_take_the_mean_of_its_members():
    truth, scores = members(100_000, 3)
    mean, auto = scores.mean(axis=1), Auto(scale="logit", replicas="ensemble")
    for method in (auto, vad("ensemble", shape="monotone"), vad("ensemble", curvature=True)):
        predictions = method.fit(scores).predict_proba(mean)
        for alpha in (0.02, 0.1):
            assert abs(top_error(mean, predictions, truth, alpha)) < 0.012
            assert top_error(mean, logistic(mean), truth, alpha) > 0.06


def test_replica_calibration_of_an_ensemble_corrects_a_shift():
    truth, pool = members(50_000, 3)
    rows, scores = members(50_000, 3, seed=1, center=-1.0)
    labels = np.random.default_rng(2).random(50_000) < logistic(rows)
    fitted = ReplicaCalibrator(scale="logit", replicas="ensemble")
    fitted.fit(pool, labeled=(scores, labels), labels_from="elsewhere")
    mean = pool.mean(axis=1)
    error = top_error(mean, fitted.predict_proba(mean), truth, 0.05)
    low, high = fitted.interval(0.05)
    assert abs(error) < 0.04
    assert low < error < high


# ---------------------------------------------------------------------------- snapshots


@pytest.mark.parametrize(("slope", "size"), [(0.8, 2), (0.95, 2), (1.1, 2), (0.8, 3), (1.1, 5)])
def test_snapshots_have_a_slope_and_a_level_of_their_own(slope, size):
    truth, scores = members(100_000, size)
    scores[:, 1:] = members(100_000, size, slope=slope)[1][:, 1:] + 0.3  # the same truth and noise
    curved = vad("snapshots", curvature=True).fit(scores)
    assert curved.lambda_ == pytest.approx(TRUE / (TRUE + NOISE), abs=0.004)
    others = (Auto(scale="logit", replicas="snapshots"), vad("snapshots", shape="monotone"))
    for fitted in (curved, *(other.fit(scores) for other in others)):
        for alpha in (0.02, 0.1):
            assert abs(top_error(scores[:, 0], fitted.predict_proba(scores[:, 0]), truth, alpha)) < 0.03


def test_snapshots_without_a_slope_are_seeds():
    _, scores = members(100_000, 2)
    by_seed, snapshots = (vad(kind).fit(scores).lambda_ for kind in ("seeds", "snapshots"))
    assert snapshots == pytest.approx(by_seed, abs=0.002)
    unrelated = np.random.default_rng(0).normal(size=(1000, 2))
    unrelated[:, 1] -= 0.5 * unrelated[:, 0]
    covariance = np.cov(unrelated.T, ddof=0)
    by_seed, snapshots = (KINDS[kind].noise_variance(covariance) for kind in ("seeds", "snapshots"))
    assert snapshots == pytest.approx(by_seed)


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("slope", [0.6, 1.0, 1.7])
def test_the_slope_of_snapshots_is_that_of_deming_regression(slope, size):
    # Exact covariances: true variance 1, noise V for each column, snapshots with slope b.
    noise, scale = 0.3, np.append(1.0, np.full(size - 1, slope))
    covariance = np.outer(scale, scale) + noise * np.eye(size)
    assert KINDS["snapshots"].noise_variance(covariance) == pytest.approx(noise, rel=1e-9)


def test_labels_show_that_snapshots_hide_noise():
    rng = np.random.default_rng(3)
    truth, served = members(40_000, 1)
    snapshots = np.column_stack([served, served[:, 0] + rng.normal(0, 0.05, 40_000)])  # share nearly all noise
    labels = rng.random(40_000) < logistic(truth)
    auto = Auto(scale="logit", replicas="snapshots")
    auto.fit(snapshots, labeled=(snapshots, labels), labels_from="elsewhere")
    assert "the snapshots agree more closely than the labels do" in auto.reason_
    assert abs(top_error(served[:, 0], auto.predict_proba(served[:, 0]), truth, 0.05)) < 0.06


def test_snapshots_have_no_intervals_without_labels():
    # They differ from the served model by less than another training would: intervals were 20 times too narrow.
    truth, pool = members(5_000, 2)
    auto = Auto(scale="logit", replicas="snapshots")
    for method in (vad("snapshots", intervals=True), vad("snapshots", shape="monotone"), auto):
        method.fit(pool)
        with pytest.raises(UncurseError, match="snapshots of one training do not show"):
            method.interval(0.05)
        assert method.to_affine().slope > 0
    labels = np.random.default_rng(1).random(5_000) < logistic(truth)
    low, high = auto.fit(pool, labeled=(pool, labels), labels_from="elsewhere").interval(0.05)
    assert low < high


# ---------------------------------------------------------------------------- bootstraps of an estimator


class NoisyLinear(RegressorMixin, BaseEstimator):
    """Least squares with random errors of the coefficients, whose covariance is `noise` times (XᵀX)⁻¹."""

    def __init__(self, noise=1.0, random_state=None):
        self.noise = noise
        self.random_state = random_state

    def fit(self, X, y, sample_weight=None):
        w = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        inverse = np.linalg.inv((X.T * w) @ X)
        self.coef_ = inverse @ (X.T @ (w * y))
        root = np.linalg.cholesky(inverse * self.noise)
        self.coef_ += root @ np.random.default_rng(self.random_state).normal(size=X.shape[1])
        return self

    def predict(self, X):
        return X @ self.coef_


@pytest.mark.theory
@pytest.mark.filterwarnings("ignore:the other columns differ")  # the noise is that of seeds, nearly all of it
def test_bootstraps_of_a_random_estimator_match_the_closed_form():
    rows, width, label_noise, seed_noise = 1_500, 12, 2.0, 1.5
    found, expected = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, pool = rng.normal(size=(rows, width)), rng.normal(size=(2_000, width))
        y = X.sum(axis=1) + rng.normal(0, np.sqrt(label_noise), rows)
        replicas = fit_replicas(NoisyLinear(seed_noise), X, y, n_replicas=4, random_state=seed)
        scores = np.column_stack([model.predict(pool) for model in replicas.models])
        found.append(VAD(link="identity", scale="value", replicas="bootstrap").fit(scores).noise_variance_)
        # Noise of the training data and of the seed, averaged over the pool.
        expected.append((label_noise + seed_noise) * np.trace(np.cov(pool.T) @ np.linalg.inv(X.T @ X)))
    ratio = np.array(found) / expected
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert abs(ratio.mean() - 1) < 3 * error
    assert error < 0.03


# ---------------------------------------------------------------------------- did the served score select the rows?


def rows_with(slopes, rows, mean, seed, noise=0.4):
    rng = np.random.default_rng(seed)
    return np.outer(rng.normal(mean, 0.9, rows), slopes) + noise * rng.normal(size=(rows, len(slopes)))


def lead_of(pool, labeled, weights=None, kind="seeds"):
    return served_lead(from_arrays(pool).moments, from_arrays(labeled, sample_weight=weights).moments, KINDS[kind])


def excess(scores):
    return (scores[:, 0] - scores[:, 1:].mean(axis=1)).mean()


@pytest.mark.parametrize("replicas", [2, 3])
def test_the_lead_shows_that_the_served_score_selected_rows(replicas):
    pool, many = (rows_with(np.ones(replicas), 50_000, -2.0, seed) for seed in (0, 1))
    selected, other = (many[many[:, i] > np.quantile(many[:, i], 0.8)] for i in (0, 1))
    lead = lead_of(pool, selected)
    assert lead == pytest.approx(excess(selected) - excess(pool), rel=0.02)  # up to slopes, which differ by chance
    assert lead > 0.1
    assert lead_of(pool, selected, kind="bootstrap") == 0
    assert (lead_of(pool, other) < -0.1) == (replicas == 2)  # with two columns either may have selected the rows


def test_few_rows_and_uneven_weights_do_not_look_like_a_selection():
    rng = np.random.default_rng(0)
    for pool_rows, labeled_rows in ((50, 5_000), (5_000, 50), (100, 100)):
        for seed in range(40):
            pool, labeled = (rows_with(np.ones(3), rows, -2.0, 2 * seed + i)
                             for i, rows in enumerate((pool_rows, labeled_rows)))  # fmt: skip
            assert lead_of(pool, labeled) == 0
            if labeled_rows == 5_000:
                heavy = np.where(rng.random(labeled_rows) < 0.01, 1e6, 1.0)  # about 50 rows have weight
                assert lead_of(pool, labeled, heavy) == 0


@pytest.mark.parametrize("slopes", [[1.0, 1.1], [1.1, 1.0], [1.1, 1.0, 1.0], [1.0, 1.1, 0.9]])
def test_different_slopes_do_not_look_like_a_selection(slopes):
    pool, labeled = rows_with(slopes, 40_000, -2.5, 0, noise=0.2), rows_with(slopes, 30_000, -1.8, 1, noise=0.2)
    assert lead_of(pool, labeled) == 0
    if slopes[0] > 1:
        many = rows_with(slopes, 200_000, -2.5, 2, noise=0.2)
        assert lead_of(pool, many[many[:, 0] > np.quantile(many[:, 0], 0.8)]) > 0.03


def test_unequal_noise_is_not_taken_for_a_selection():
    for noise in ([0.1, 0.7], [0.7, 0.1]):
        pool, labeled = (rows_with([1, 1], 40_000, mean, seed, noise=noise) for seed, mean in enumerate((-2.5, -1.0)))
        assert lead_of(pool, labeled) == 0
