"""`refresh`: a map updated by new labels, as far as they support it."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import optimize
from scipy.special import expit

from uncurse import VAD, Affine, Curve, Evidence, Fitted, Segmented, Steps, TopK, UncurseError, load, refresh
from uncurse.calibration.logistic import fit_logistic
from uncurse.calibration.spline import Basis
from uncurse.evidence import Histogram, LogSpec, Moments, from_arrays, merged
from uncurse.maps import compose
from uncurse.methods import DataRecord, ErrorTable, FitRecord
from uncurse.methods.refresh import Known, fit_drift

MEAN, SD = -2.0, 1.0
IDENTITY = Affine(1.0, 0.0)
RECORD = FitRecord("vad", DataRecord(1_000, ("column 0", "column 1")), lambda_=0.8)
ERRORS = ErrorTable((0.01, 1.0), (0.0, 0.0), (0.05, 0.01), (0.02, 0.02), 1)
#: Logits at the top 10% of the scores.
TOP = MEAN + SD * np.linspace(1.29, 3.0, 100)


def draw(rng, rows, drift=lambda x: 0.0 * x, mean=MEAN, **options):
    """Rows whose log odds differ from the served logit by `drift`; equal logits, of two decimals, share a cell."""
    x = rng.normal(mean, SD, rows).round(2)
    return from_arrays(x[:, None], rng.random(rows) < expit(x + drift(x)), **options)


def latest(fitted):
    return fitted.record.refreshes[-1]


def top_error(score_map, drift=lambda x: 0.0 * x):
    """Relative error of the mean prediction on the top 10%."""
    return score_map.at_logits(TOP).mean() / expit(TOP + drift(TOP)).mean() - 1


# ---------------------------------------------------------------------------- what labels support


def test_without_drift_few_labels_hardly_move_the_map():
    rng = np.random.default_rng(0)
    errors = np.array([top_error(refresh(IDENTITY, draw(rng, 500)).map) for _ in range(100)])
    # 500 labels determine a level to 1 / √(Σ p q), about 12% of the odds. The refresh adds a quarter of it at most.
    noise = (500 * (expit(rng.normal(MEAN, SD, 10_000)) * expit(-rng.normal(MEAN, SD, 10_000))).mean()) ** -0.5
    rms, error = np.sqrt(np.mean(errors**2)), np.std(errors**2) / np.sqrt(100) / (2 * np.sqrt(np.mean(errors**2)))
    assert rms + 2 * error < 0.25 * noise
    assert abs(errors.mean()) < 3 * errors.std() / np.sqrt(100)


def test_without_drift_many_labels_leave_the_map_alone():
    rng = np.random.default_rng(1)
    found = [refresh(IDENTITY, draw(rng, 50_000)) for _ in range(10)]
    assert sum(latest(fitted).supported == "nothing" for fitted in found) >= 8
    assert max(abs(top_error(fitted.map)) for fitted in found) < 0.03
    same = [fitted for fitted in found if not latest(fitted).changed]
    assert same
    assert all(fitted.map is IDENTITY for fitted in same)
    assert "the labels do not support a change" in latest(same[0]).reason


def test_a_change_of_the_level_is_found():
    fitted = refresh(IDENTITY, draw(np.random.default_rng(2), 20_000, lambda x: 0.3 + 0 * x))
    found = latest(fitted)
    assert found.supported == "level"
    assert found.reason == "the labels support a change of the level only"
    assert found.level == pytest.approx(0.3, abs=3 * found.level_error)
    assert abs(found.slope) < 0.02
    assert found.probabilities[0] > 0.99 > 0.5 > found.probabilities[1] > found.probabilities[2]
    assert isinstance(fitted.map, Affine)
    for one in found.changes:
        truth = expit(TOP + 0.3).mean() / expit(TOP).mean() - 1 if one.alpha == 0.1 else None
        assert truth is None or one.change == pytest.approx(truth, abs=3 * one.standard_error)
    assert [one.alpha for one in found.changes] == [0.01, 0.02, 0.05, 0.1, 1.0]


def test_a_change_of_the_slope_is_found():
    fitted = refresh(IDENTITY, draw(np.random.default_rng(3), 40_000, lambda x: -0.2 * (x + 1)))
    found = latest(fitted)
    assert found.supported == "slope"
    assert found.slope == pytest.approx(-0.2, abs=3 * found.slope_error)
    assert fitted.map.slope == pytest.approx(0.8, abs=3 * found.slope_error)
    assert fitted.map.intercept == pytest.approx(-0.2, abs=0.05)


def test_a_curve_is_found_and_the_map_stays_monotone():
    def bend(x):
        return -0.5 * np.maximum(x - MEAN - 0.8, 0.0)

    evidence = draw(np.random.default_rng(4), 100_000, bend)
    fitted = refresh(IDENTITY, evidence)
    found = latest(fitted)
    assert found.supported == "curve"
    assert found.curve < -0.05
    assert isinstance(fitted.map, Curve)
    assert abs(top_error(fitted.map, bend)) < 0.04 < abs(top_error(IDENTITY, bend))
    assert (np.diff(fitted.map.transform(np.linspace(-300, 300, 10_001))) > 0).all()
    assert np.isfinite(fitted.map([-1e300, 1e300])).all()
    again = refresh(fitted, draw(np.random.default_rng(5), 100_000, bend))
    assert latest(again).supported != "curve"


def test_daily_refreshes_come_close_to_one_fit_of_all_labels():
    def drift(x):
        return 0.4 + 0 * x

    def platt(rows):
        cells = rows.served
        fit = fit_logistic(np.stack([cells.score, np.ones(len(cells))]), cells.weight, cells.label)
        return top_error(Affine(*fit.coefficients), drift)

    rng, errors = np.random.default_rng(7), []
    for _ in range(15):
        days = [draw(rng, 500, drift) for _ in range(12)]
        fitted = Fitted(IDENTITY, RECORD)
        for day in days:
            fitted = refresh(fitted, day)
        errors.append((top_error(fitted.map, drift), platt(merged(days)), platt(days[-1])))
    daily, all_days, one_day = np.sqrt(np.mean(np.square(errors), axis=0))
    assert daily < 1.5 * all_days  # the standard error of a ratio of two rms from 15 draws is 25%
    assert daily < 0.5 * one_day
    assert latest(fitted).number == 12


@pytest.mark.theory
@pytest.mark.parametrize(("share", "least"), [(0.5, 0.9), (1.0, 0.85)])
def test_standard_errors_cover_the_truth(share, least):
    # Priors expect no drift in half of the refreshes. If level and slope always drift, intervals are a little short.
    rng, z = np.random.default_rng(8), []
    for _ in range(100):
        drifts = rng.random() < share
        a, b = drifts * rng.normal(0, 0.15), drifts * rng.normal(0, 0.075)

        def drift(x, a=a, b=b):
            return a + b * (x - MEAN)

        found = latest(fitted := refresh(IDENTITY, draw(rng, 4_000, drift)))
        level, slope = found.level - drift(found.center), found.slope - b
        top = top_error(fitted.map, drift) / found.changes[3].standard_error
        z.append((level / found.level_error, slope / found.slope_error, top))
    covered = (np.abs(z) < 1.645).mean(axis=0)
    assert (covered > least - 3 * np.sqrt(least * (1 - least) / 100)).all()
    assert np.std(z) > 0.4


# ---------------------------------------------------------------------------- rows


def test_weights_count_by_their_ratios_and_uncertainty_by_effective_rows():
    rng = np.random.default_rng(9)
    x = rng.normal(MEAN, SD, 3_000)
    y = rng.random(3_000) < expit(x + 0.3)
    w = rng.exponential(size=3_000)
    one, many = (latest(refresh(IDENTITY, from_arrays(x[:, None], y, sample_weight=k * w))) for k in (1.0, 1e6))
    for name in ("level", "slope", "level_error", "slope_error", "positives"):
        assert getattr(one, name) == pytest.approx(getattr(many, name), rel=1e-9)
    plain = latest(refresh(IDENTITY, from_arrays(x[:, None], y)))
    assert one.rows == plain.rows == 3_000
    assert one.level_error > 1.1 * plain.level_error  # half of the rows are effective
    equal = latest(refresh(IDENTITY, from_arrays(x[:, None], y, sample_weight=np.full(3_000, 7.0))))
    assert equal.level_error == pytest.approx(plain.level_error, rel=1e-9)
    assert equal.positives == pytest.approx(y.sum())


def test_all_segments_get_the_same_update():
    rng = np.random.default_rng(10)
    x, segments = rng.normal(MEAN, SD, 20_000), rng.choice(["a", "b", "new"], 20_000)
    own = {"a": Affine(1.0, 0.5), "b": Affine(0.9, -0.2)}
    score_map = Segmented(IDENTITY, own)
    truth = np.log(score_map(x, segments)) - np.log1p(-score_map(x, segments)) + 0.3
    evidence = from_arrays(x[:, None], rng.random(20_000) < expit(truth), segments=segments)
    fitted = refresh(Fitted(score_map, replace(RECORD, segment="segment")), evidence)
    found = latest(fitted)
    assert found.level == pytest.approx(0.3, abs=3 * found.level_error)
    update = Affine(1 + found.slope, found.level - found.slope * found.center)
    assert isinstance(fitted.map, Segmented)
    for name, part in {**fitted.map.maps, "new": fitted.map.default}.items():
        wanted = compose(own.get(name, IDENTITY), update, scale="logit")
        assert (part.slope, part.intercept) == pytest.approx((wanted.slope, wanted.intercept))


def test_a_negative_sampling_rate_is_undone_once():
    rng = np.random.default_rng(11)
    x = rng.normal(MEAN, SD, 30_000)
    labels = rng.random(30_000) < expit(x + np.log(0.1) + 0.3)
    score_map, record = Affine(1.0, np.log(0.1)), replace(RECORD, negative_sampling_rate=0.1)
    evidence = from_arrays(x[:, None], labels, spec=LogSpec(("s0",), negative_sampling_rate=0.1))
    found = latest(refresh(Fitted(score_map, record), evidence))
    assert found.level == pytest.approx(0.3, abs=3 * found.level_error)


@pytest.mark.parametrize(
    "score_map",
    [
        Steps((-3.0, -2.0, -1.0), (-3.4, -2.5, -1.6, -0.6), slope=1e-6),
        Curve((-4.0, 0.0), (-4.0, 0.0), 1.0, 1.0),
        compose(Affine(1.0, 0.1), Steps((-2.0,), (-2.8, -1.3)), scale="logit"),
        Affine(1.0, 0.0, link="identity"),
        Affine(0.0, -1.8),
    ],
)
def test_every_kind_of_map_can_be_refreshed(score_map):
    rng = np.random.default_rng(12)
    x = rng.normal(MEAN, SD, 20_000)
    z = np.log(score_map(x)) - np.log1p(-score_map(x))
    evidence = from_arrays(x[:, None], rng.random(20_000) < expit(z + 0.3))
    fitted = refresh(score_map, evidence)
    assert fitted.map.at_logits(x).mean() == pytest.approx(expit(z + 0.3).mean(), rel=0.03)
    assert (np.diff(fitted.map(np.linspace(-30, 30, 1_001))) >= 0).all()


def test_probabilities_are_refreshed_on_their_own_scale():
    rng = np.random.default_rng(13)
    x = rng.normal(MEAN, SD, 20_000)
    labels = rng.random(20_000) < expit(x + 0.3)
    rows = from_arrays(expit(x)[:, None], labels, spec=LogSpec(("s0",), "probability"))
    fitted = refresh(Affine(1.0, 0.0, scale="probability"), rows)
    assert fitted.map.scale == "probability"
    assert fitted.map.intercept == pytest.approx(refresh(IDENTITY, from_arrays(x[:, None], labels)).map.intercept)


def test_outliers_do_not_move_the_map():
    rng = np.random.default_rng(14)
    x = rng.normal(MEAN, SD, 20_000)
    labels = rng.random(20_000) < expit(x)
    x[:60] = np.where(labels[:60], -1e4, 1e4)  # the worst
    assert abs(top_error(refresh(IDENTITY, from_arrays(x[:, None], labels)).map)) < 0.02


@pytest.mark.parametrize(("label", "missing"), [(0, "no label is positive"), (1, "no label is negative")])
def test_labels_of_one_class_change_nothing(label, missing):
    before = refresh(Fitted(IDENTITY, RECORD), draw(np.random.default_rng(15), 2_000, lambda x: 0.3 + 0 * x))
    fitted = refresh(before, from_arrays(np.zeros((20, 1)), np.full(20, label)))
    assert fitted.map is before.map
    assert latest(fitted).reason.startswith(missing)
    # What was uncertain before still is.
    assert latest(fitted).level_error == pytest.approx(latest(before).level_error)
    assert latest(fitted).center == pytest.approx(latest(before).center + latest(before).level)


def test_selected_rows_are_accepted():
    rng = np.random.default_rng(16)
    x = rng.normal(0.0, 0.5, 5_000)
    spec = LogSpec(("s0",), top_k=TopK("request", 1))
    rows = from_arrays(x[:, None], rng.random(5_000) < expit(x - 0.3), spec=spec)
    found = latest(refresh(IDENTITY, rows))
    assert found.level == pytest.approx(-0.3, abs=3 * found.level_error)


# ---------------------------------------------------------------------------- the record


def test_the_record_keeps_the_fit_and_tells_what_has_changed(tmp_path):
    rows = replace(draw(np.random.default_rng(17), 5_000, lambda x: 0.5 + 0 * x), sources=("today.parquet",))
    fitted = refresh(Fitted(IDENTITY, RECORD, ERRORS), rows)
    assert replace(fitted.record, refreshes=(), no_interval="") == RECORD
    assert fitted.errors is None  # they held for the map before
    with pytest.raises(UncurseError, match="fit it again"):
        fitted.interval(0.1)
    assert fitted.record.label_sources == ("today.parquet",)
    fitted.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json") == fitted
    more = draw(np.random.default_rng(18), 5_000, lambda x: 0.5 + 0 * x)
    assert refresh(tmp_path / "map.json", more) == refresh(fitted, more)


def test_intervals_stay_if_the_map_does():
    fitted = refresh(Fitted(IDENTITY, RECORD, ERRORS), from_arrays([[0.0], [1.0]], [0, 1]))
    assert not latest(fitted).changed
    assert fitted.map is IDENTITY
    assert fitted.errors is ERRORS


def test_fitted_objects_and_maps_without_a_record_are_accepted():
    rng = np.random.default_rng(19)
    truth = rng.normal(MEAN, SD, 5_000)
    scores = truth[:, None] + 0.3 * rng.normal(size=(5_000, 2))
    vad = VAD(scale="logit", replicas="seeds").fit(scores)
    rows = from_arrays(scores, rng.random(5_000) < expit(truth - 0.4))
    fitted = refresh(vad, rows)
    assert fitted.record.method == "vad"
    assert latest(fitted).level < -0.2
    alone = refresh(vad.map_, rows)
    assert alone.map == fitted.map
    assert (alone.record.method, alone.record.pool) == ("unknown", DataRecord(0, ("column 0",)))
    assert FitRecord.from_dict(alone.record.to_dict()) == alone.record


def test_rows_that_were_used_before_are_reported(tmp_path):
    rows = replace(draw(np.random.default_rng(20), 500), sources=("day.parquet",))
    labeled = DataRecord(500, ("column 0",), ("./day.parquet",))
    with pytest.warns(UserWarning, match=r"the map has seen the labels of day\.parquet before"):
        refresh(Fitted(IDENTITY, replace(RECORD, labeled=labeled)), rows)
    once = refresh(Fitted(IDENTITY, RECORD), rows)
    with pytest.warns(UserWarning, match=r"seen the labels of day\.parquet before; if its rows are the same"):
        refresh(once, rows)


def test_a_very_large_change_is_reported():
    with pytest.warns(UserWarning, match=r"the odds change by -\d+% and the slope by .*: so large a change is rarely"):
        refresh(Affine(1.0, 2.0), draw(np.random.default_rng(21), 3_000))


# ---------------------------------------------------------------------------- refusals


def test_labels_that_fall_with_the_score_are_refused():
    rng = np.random.default_rng(22)
    x = rng.normal(0, 2, 20_000)
    with pytest.raises(UncurseError, match=r"labels fall as predictions rise .*is the label, or the score, inverted"):
        refresh(IDENTITY, from_arrays(x[:, None], rng.random(20_000) < expit(-x)))


PAIR = DataRecord(9, ("a", "b"))


@pytest.mark.parametrize(
    ("source", "spec", "labels", "message"),
    [
        (IDENTITY, None, None, "no labels"),
        (IDENTITY, LogSpec(("s0",), "probability"), [0, 1], "scale='probability'"),
        (IDENTITY, LogSpec(("s0",), "value", link="identity"), None, "no logits"),
        (Segmented(IDENTITY, {}), None, [0, 1], "segment"),
        (Fitted(IDENTITY, RECORD), LogSpec(("s0",), negative_sampling_rate=0.5), [0, 1], r"sampling_rate=0\.5"),
        (Fitted(IDENTITY, replace(RECORD, pool=PAIR)), LogSpec(("b",)), [0, 1], "column 'a'"),
        (Fitted(IDENTITY, replace(RECORD, replicas="ensemble", pool=PAIR)), LogSpec(("a",)), [0, 1], "mean of a, b"),
        (Fitted(IDENTITY, replace(RECORD, replicas="foo")), None, [0, 1], "replicas='foo'"),
        (VAD(scale="logit", replicas="seeds"), None, [0, 1], "this VAD is not fitted"),
        (3, None, [0, 1], "got int"),
    ],
)
def test_what_does_not_fit_is_refused(source, spec, labels, message):
    rows = from_arrays([[0.25], [0.75]], labels, spec=spec)
    with pytest.raises(UncurseError, match=message):
        refresh(source, rows)


def test_evidence_with_histograms_is_needed():
    with pytest.raises(UncurseError, match="evidence is of type list"):
        refresh(IDENTITY, [0.5])
    with pytest.raises(UncurseError, match="no rows"):
        refresh(IDENTITY, Evidence(LogSpec(("s0",), label="y"), Moments(), Histogram()))
    with pytest.raises(UncurseError, match="the evidence"):
        refresh(IDENTITY, from_arrays([[0.0], [1.0]], [0, 1], histograms=False))


# ---------------------------------------------------------------------------- the model of the drift

#: Part, size and prior probability of every model.
MODELS = [(0, 0.0, 0.5)] + [
    (part, size, prior * share)
    for part, prior in ((1, 0.25), (2, 0.15), (3, 0.1))
    for size, share in ((0.05, 0.4), (0.15, 0.4), (0.5, 0.2))
]


def by_optimizer(drift, z, weight, label, known=None):
    """Posterior mean, covariances and probabilities of all models, by Laplace's method with a general optimizer."""
    features = drift.features(z)
    size = len(features)

    def loss(b):
        odds = z + b @ features[: len(b)]
        return label @ np.logaddexp(0, -odds) + (weight - label) @ np.logaddexp(0, odds)

    models = [(part, sd, prior) for part, sd, prior in MODELS if part < 3 or size > 2]
    log_evidence, means, covariances = [], [], []
    for part, sd, _ in models:
        scales = sd * np.array([1.0, 0.5, *np.full(size - 2, 0.3)])
        scales[{0: 0, 1: 1, 2: 2, 3: size}[part] :] = 0.0
        prior = np.diag(np.square(scales))
        prior[:2, :2] += 0.0 if known is None else known.about(drift.center)
        free = np.flatnonzero(np.diagonal(prior))
        mean, covariance, evidence = np.zeros(size), np.zeros((size, size)), -loss(np.zeros(size))
        if len(free):
            precision = np.linalg.inv(prior[np.ix_(free, free)])
            at = np.eye(size)[free]

            def objective(b, at=at, precision=precision):
                return loss(b @ at) + b @ precision @ b / 2

            best = optimize.minimize(objective, np.zeros(len(free)), tol=1e-9).x
            p = expit(z + best @ at @ features)
            hessian = precision + (features[free] * weight * p * (1 - p)) @ features[free].T
            mean[free], covariance[np.ix_(free, free)] = best, np.linalg.inv(hessian)
            evidence = -objective(best) - np.linalg.slogdet(hessian)[1] / 2 + np.linalg.slogdet(precision)[1] / 2
        means.append(mean)
        covariances.append(covariance)
        log_evidence.append(evidence)
    parts, priors = np.array([m[0] for m in models]), np.array([m[2] for m in models])
    posterior = priors * np.exp(np.array(log_evidence) - max(log_evidence))
    posterior /= posterior.sum()
    probabilities = [posterior[parts >= part].sum() for part in (1, 2, 3)]
    if probabilities[2] <= 0.75:
        size, posterior = 2, np.where(parts < 3, posterior, 0.0) / posterior[parts < 3].sum()
    means = np.array(means)[:, :size]
    mean = posterior @ means
    errors = [c[:size, :size] + np.outer(m - mean, m - mean) for c, m in zip(covariances, means, strict=True)]
    drifted = np.where(parts >= 2, posterior, 0.0)
    return mean, *(np.einsum("m,mij->ij", p / p.sum(), errors) for p in (posterior, drifted)), probabilities


@pytest.mark.parametrize(("level", "slope", "bend"), [(0.03, -0.02, 0.0), (0.07, -0.06, 0.1), (0.07, -0.06, 0.3)])
@pytest.mark.parametrize("known", [None, Known(-1.0, np.array([[4e-3, 1e-3], [1e-3, 2e-3]]))])
def test_drift_is_the_average_over_models_of_several_sizes(level, slope, bend, known):
    z = np.linspace(-4, 1, 41)  # too far apart to be merged
    weight = 6_000 * np.exp(-np.square(z + 1.5) / 2)
    label = weight * expit(z + level + slope * (z + 1.5) - bend * np.maximum(z + 0.5, 0.0))
    drift = fit_drift(z, weight, label, known)
    assert (drift.basis is not None) == (drift.probabilities[2] > 0.75) == (bend == 0.3)
    with_curve = replace(drift, basis=Basis((np.interp(
        [0.01, 0.2, 0.5, 0.8, 0.95, 0.99], (np.cumsum(weight) - weight / 2) / weight.sum(), z
    ) - drift.center) / drift.spread))  # fmt: skip
    mean, covariance, errors, probabilities = by_optimizer(with_curve, z, weight, label, known)
    np.testing.assert_allclose(drift.probabilities, probabilities, atol=1e-4)
    np.testing.assert_allclose(drift.coefficients, mean, atol=1e-4)
    np.testing.assert_allclose(drift.covariance, covariance, rtol=0.005, atol=1e-7)
    np.testing.assert_allclose(drift.error_covariance, errors, rtol=0.005, atol=1e-7)


# ---------------------------------------------------------------------------- sizes of a change


def cells_with(log_odds, rows=20_000):
    """Rows whose labels have these log odds by score, up to one row."""
    x = np.repeat(list(log_odds), rows)
    positives = [round(rows * expit(value)) for value in log_odds.values()]
    return from_arrays(x[:, None], np.concatenate([np.arange(rows) < count for count in positives]))


def test_uncertainty_is_that_of_the_map_that_was_written():
    fitted = refresh(IDENTITY, cells_with({x: -0.1 + 0.7 * x for x in (-3.0, 1.0)}, 3_000))
    found = latest(fitted)
    assert found.slope == pytest.approx(-0.3, abs=0.02)
    level, both, slope = found.uncertainty
    # In log odds of the new map, which are 1 + slope times those before.
    rate = 1 / (1 + found.slope)
    carried = latest(refresh(fitted, from_arrays([[0.0], [1.0]], [0, 0])))
    assert carried.slope_error == pytest.approx(found.slope_error * rate)
    assert carried.uncertainty == pytest.approx((level, both * rate, slope * rate**2))
    assert carried.center == pytest.approx(fitted.map.transform(np.array([found.center]))[0])
