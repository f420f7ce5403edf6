"""Kinds of replica: noise variances against closed forms."""

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from uncurse import VAD, Auto, Evidence, Moments, ReplicaCounts, Tower, UncurseError
from uncurse.debias import KINDS
from uncurse.estimators import fit_replicas
from uncurse.evidence import LogSpec
from uncurse.links import logistic

TRUE, NOISE = 0.64, 0.16  # variances of the true score and of the noise of one model


def members(rows, size, seed=0, center=-2.0, slope=1.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(center, np.sqrt(TRUE), rows)
    return truth, slope * truth[:, None] + rng.normal(0, np.sqrt(NOISE), (rows, size))


def top_error(score, predicted, truth, alpha):
    top = np.argsort(-score)[: int(alpha * len(score))]
    return predicted[top].sum() / logistic(truth[top]).sum() - 1


def test_an_ensemble_has_the_noise_of_its_mean():
    _, scores = members(200_000, 4)
    vad = VAD(replicas="ensemble").fit(scores)
    mean = scores.mean(axis=1)
    assert vad.noise_variance_ == pytest.approx(scores.var(axis=1, ddof=1).mean() / 4, rel=1e-3)
    assert vad.score_variance_ == pytest.approx(mean.var())
    assert vad.lambda_ == pytest.approx(1 - vad.noise_variance_ / vad.score_variance_)
    assert vad.center_ == pytest.approx(mean.mean())
    assert vad.record_.replicas == "ensemble"


@pytest.mark.parametrize("make", [Auto, lambda **k: VAD(shape="free", **k), lambda **k: VAD(curvature=True, **k)])
def test_maps_of_an_ensemble_take_the_mean_of_its_members(make):
    truth, scores = members(100_000, 3)
    mean = scores.mean(axis=1)
    fitted = make(replicas="ensemble").fit(scores)
    for alpha in (0.02, 0.1):
        assert abs(top_error(mean, fitted.predict_proba(mean), truth, alpha)) < 0.012
        assert top_error(mean, logistic(mean), truth, alpha) > 0.06


def test_tower_of_an_ensemble_corrects_a_shift():
    truth, pool = members(50_000, 3)
    rows, scores = members(50_000, 3, seed=1, center=-1.0)
    labels = np.random.default_rng(2).random(50_000) < logistic(rows)
    tower = Tower(replicas="ensemble").fit(pool, labelled=(scores, labels))
    mean = pool.mean(axis=1)
    assert abs(top_error(mean, tower.predict_proba(mean), truth, 0.05)) < 0.04
    low, high = tower.interval(0.05)
    assert low < top_error(mean, tower.predict_proba(mean), truth, 0.05) < high


def test_an_ensemble_of_evidence_and_of_groups():
    _, scores = members(20_000, 3)
    groups = np.repeat(["a", "b"], 10_000)
    spec = LogSpec(("s0", "s1", "s2"))
    parts = [scores[groups == name] for name in ("a", "b")]
    evidence = [Evidence(spec, Moments().update(x), replica_counts=ReplicaCounts().update(x)) for x in parts]
    whole = evidence[0].merge(evidence[1]).with_groups(dict(zip("ab", evidence, strict=True)))
    vad = VAD(replicas="ensemble").fit(whole)
    other = VAD(replicas="ensemble").fit(scores, groups=groups)
    assert vad.lambda_ == pytest.approx(other.lambda_, rel=1e-12)
    assert vad.group_lambda_ == pytest.approx(other.group_lambda_, rel=1e-12)


def test_what_an_ensemble_cannot_do_is_said():
    with pytest.raises(UncurseError, match="use Tower or Auto for an ensemble"):
        VAD(replicas="ensemble", calibrator="platt")
    with pytest.raises(UncurseError, match="there are 1 score columns and replicas='ensemble' needs 2"):
        VAD(replicas="ensemble").fit(members(100, 1)[1])


@pytest.mark.parametrize(("slope", "size"), [(0.8, 2), (0.95, 2), (1.1, 2), (0.8, 3), (1.1, 5)])
def test_snapshots_have_a_slope_and_a_level_of_their_own(slope, size):
    truth, scores = members(100_000, size)
    early = members(100_000, size, slope=slope)[1] + 0.3  # the same truth and noise, another slope and level
    scores = np.column_stack([scores[:, 0], early[:, 1:]])
    vad = VAD(replicas="snapshots", curvature=True).fit(scores)
    assert vad.lambda_ == pytest.approx(TRUE / (TRUE + NOISE), abs=0.004)
    for fitted in (vad, Auto(replicas="snapshots").fit(scores), VAD(replicas="snapshots", shape="free").fit(scores)):
        for alpha in (0.02, 0.1):
            error = top_error(scores[:, 0], fitted.predict_proba(scores[:, 0]), truth, alpha)
            assert abs(error) < 0.03


def test_snapshots_without_a_slope_are_seeds():
    _, scores = members(100_000, 2)
    by_seed, snapshots = (VAD(replicas=kind).fit(scores).lambda_ for kind in ("seeds", "snapshots"))
    assert snapshots == pytest.approx(by_seed, abs=0.002)


def test_labels_show_that_snapshots_hide_noise():
    rng = np.random.default_rng(3)
    truth, served = members(40_000, 1)
    snapshots = np.column_stack([served, served[:, 0] + rng.normal(0, 0.05, 40_000)])  # share nearly all noise
    labels = rng.random(40_000) < logistic(truth)
    auto = Auto(replicas="snapshots").fit(snapshots, labelled=(snapshots, labels))
    assert "the snapshots agree more closely than the labels do" in auto.reason_
    error = top_error(served[:, 0], auto.predict_proba(served[:, 0]), truth, 0.05)
    assert abs(error) < 0.06


def test_unrelated_snapshots_have_no_slope():
    scores = np.random.default_rng(0).normal(size=(1000, 2))
    scores[:, 1] -= 0.5 * scores[:, 0]
    noise = KINDS["snapshots"].noise_variance(np.cov(scores.T, ddof=0))
    assert noise == pytest.approx(KINDS["seeds"].noise_variance(np.cov(scores.T, ddof=0)))


@pytest.mark.theory
@pytest.mark.parametrize("size", [2, 5])
def test_the_noise_of_an_ensemble_matches_the_closed_form(size):
    found = [VAD(replicas="ensemble").fit(members(5_000, size, seed)[1]) for seed in range(200)]
    for values, expected in (
        ([vad.noise_variance_ for vad in found], NOISE / size),
        ([vad.lambda_ for vad in found], TRUE / (TRUE + NOISE / size)),
    ):
        error = np.std(values, ddof=1) / np.sqrt(len(values))
        assert abs(np.mean(values) - expected) < 3 * error + 1e-3 * expected


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
def test_bootstraps_of_a_random_estimator_match_the_closed_form():
    rows, width, label_noise, seed_noise = 1_500, 12, 2.0, 1.5
    found, expected = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        X, pool = rng.normal(size=(rows, width)), rng.normal(size=(2_000, width))
        y = X.sum(axis=1) + rng.normal(0, np.sqrt(label_noise), rows)
        replicas = fit_replicas(NoisyLinear(seed_noise), X, y, n_replicas=4, random_state=seed)
        assert replicas.kind == "bootstrap"
        scores = np.column_stack([model.predict(pool) for model in replicas.models])
        found.append(VAD(link="identity", scale="value", replicas="bootstrap").fit(scores).noise_variance_)
        # Noise of the training data and of the seed, averaged over the pool.
        expected.append((label_noise + seed_noise) * np.trace(np.cov(pool.T) @ np.linalg.inv(X.T @ X)))
    ratio = np.array(found) / expected
    error = ratio.std(ddof=1) / np.sqrt(len(ratio))
    assert abs(ratio.mean() - 1) < 3 * error
    assert error < 0.03


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("slope", [0.6, 1.0, 1.7])
def test_the_slope_of_snapshots_is_that_of_deming_regression(slope, size):
    # Exact covariances: true variance 1, noise V for each column, snapshots with slope b.
    noise, scale = 0.3, np.append(1.0, np.full(size - 1, slope))
    covariance = np.outer(scale, scale) + noise * np.eye(size)
    found = KINDS["snapshots"].noise_variance(covariance)
    assert found == pytest.approx(noise, rel=1e-9)
    both = KINDS["snapshots"].noise_variance(np.stack([covariance, 4 * covariance]))
    np.testing.assert_allclose(both, [noise, 4 * noise], rtol=1e-9)


def test_cells_of_snapshots_are_divided_by_their_slope():
    scores = np.column_stack([members(50_000, 3)[1][:, 0], members(50_000, 3, slope=0.7)[1][:, 1:] + 0.4])
    counts = ReplicaCounts().update(scores)
    plain, cells = counts.cells(), KINDS["snapshots"].cells(counts)
    w = plain.weight / plain.weight.sum()
    noise = VAD(replicas="snapshots").fit(scores).noise_variance_
    slope = np.sqrt(float(np.median(plain.spread[plain.spread > 0.1] / cells.spread[plain.spread > 0.1])))
    assert slope == pytest.approx(0.7, abs=0.02)
    others = plain.served + plain.gap
    expected = (others - w @ others) / slope - (plain.served - w @ plain.served)
    np.testing.assert_allclose(cells.gap, expected, atol=1e-9)
    np.testing.assert_array_equal(cells.levels, 0.0)
    assert w @ KINDS["snapshots"].summarize(cells).variance == pytest.approx(noise, rel=0.01)
