"""`refresh`: a map updated by new labels, as far as they support it."""

import json
import re
import sys
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from scipy import optimize
from scipy.special import expit

import uncurse
from uncurse import VAD, Affine, Chain, Curve, Evidence, Grouped, LogSpec, Steps, TopK, UncurseError, load, refresh
from uncurse.calibration.logistic import fit_logistic
from uncurse.calibration.spline import make_basis
from uncurse.cli import main
from uncurse.debias import DataRecord, ErrorInterval, FitRecord, Fitted, load_record
from uncurse.debias.drift_model import Drift, Known, fit_drift
from uncurse.evidence import from_arrays, merged
from uncurse.maps import compose
from uncurse.maps.append import append_map
from uncurse.report.prose import fit_words

refresh_module = sys.modules["uncurse.debias.refresh"]  # its name is that of the function
MEAN, SD = -2.0, 1.0
IDENTITY = Affine(1.0, 0.0)
RECORD = FitRecord(
    "vad",
    DataRecord(1_000, ("column 0", "column 1")),
    remaining_error=(ErrorInterval(0.02, -0.1, 0.1, 0.9),),
    lambda_=0.8,
)
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


def test_labels_reduce_the_error_of_a_map_that_has_drifted():
    rng = np.random.default_rng(6)
    ratios = []
    for _ in range(40):
        level, slope = rng.normal(0, 0.2), rng.normal(0, 0.1)

        def drift(x, level=level, slope=slope):
            return level + slope * (x - MEAN)

        ratios.append((top_error(refresh(IDENTITY, draw(rng, 3_000, drift)).map, drift), top_error(IDENTITY, drift)))
    after, before = np.sqrt(np.mean(np.square(ratios), axis=0))
    assert after < 0.6 * before


def test_daily_refreshes_come_close_to_one_fit_of_all_labels():
    def drift(x):
        return 0.4 + 0 * x

    def platt(rows):
        cells = rows.cells
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


def test_all_groups_get_the_same_update():
    rng = np.random.default_rng(10)
    x, groups = rng.normal(MEAN, SD, 20_000), rng.choice(["a", "b", "new"], 20_000)
    own = {"a": Affine(1.0, 0.5), "b": Affine(0.9, -0.2)}
    score_map = Grouped(IDENTITY, own)
    truth = np.log(score_map(x, groups)) - np.log1p(-score_map(x, groups)) + 0.3
    evidence = from_arrays(x[:, None], rng.random(20_000) < expit(truth), groups=groups)
    fitted = refresh(Fitted(score_map, replace(RECORD, group="group")), evidence)
    found = latest(fitted)
    assert found.level == pytest.approx(0.3, abs=3 * found.level_error)
    update = Affine(1 + found.slope, found.level - found.slope * found.center)
    assert isinstance(fitted.map, Grouped)
    for name, part in {**fitted.map.maps, "new": fitted.map.default}.items():
        wanted = compose(own.get(name, IDENTITY), update, scale="logit")
        assert (part.slope, part.intercept) == pytest.approx((wanted.slope, wanted.intercept))


def test_a_negative_sampling_rate_is_undone_once():
    rng = np.random.default_rng(11)
    x = rng.normal(MEAN, SD, 30_000)
    labels = rng.random(30_000) < expit(x + np.log(0.1) + 0.3)
    score_map, record = Affine(1.0, np.log(0.1)), replace(RECORD, negative_rate=0.1)
    evidence = from_arrays(x[:, None], labels, spec=LogSpec(("s0",), negative_rate=0.1))
    found = latest(refresh(Fitted(score_map, record), evidence))
    assert found.level == pytest.approx(0.3, abs=3 * found.level_error)


@pytest.mark.parametrize(
    "score_map",
    [
        Steps((-3.0, -2.0, -1.0), (-3.4, -2.5, -1.6, -0.6), slope=1e-6),
        Curve((-4.0, 0.0), (-4.0, 0.0), 1.0, 1.0),
        Chain((Affine(1.0, 0.1), Steps((-2.0,), (-2.8, -1.3)))),
        Affine(1.0, 0.0, link="probit"),
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
    content = json.loads(fitted.map.to_json())
    assert uncurse.maps.from_dict(content)(x) == pytest.approx(fitted.map(x))


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
    assert re.fullmatch(
        rf"{missing}, and the map predicts (10|9)\.\d (posi|nega)tives: nothing changes", latest(fitted).reason
    )
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
    fitted = refresh(Fitted(IDENTITY, RECORD), rows)
    assert replace(fitted.record, refreshes=(), remaining_error=RECORD.remaining_error) == RECORD
    assert fitted.record.remaining_error == ()  # they held for the map before
    assert fitted.remaining is None
    assert "fit it again" in fitted.no_interval
    assert fitted.record.label_sources == ("today.parquet",)
    fitted.map.save(tmp_path / "map.json", fitted.record.to_dict())
    assert load_record(tmp_path / "map.json") == fitted.record
    assert load(tmp_path / "map.json") == fitted.map
    more = draw(np.random.default_rng(18), 5_000, lambda x: 0.5 + 0 * x)
    assert refresh(tmp_path / "map.json", more) == refresh(fitted, more)
    (words,) = fit_words(fitted.record)[-1:]
    assert words.startswith("refreshed once with 5,000 labelled rows: the labels support a change of the level only")
    assert "level +" in words


def test_intervals_stay_if_the_map_does():
    fitted = refresh(Fitted(IDENTITY, RECORD), from_arrays([[0.0], [1.0]], [0, 1]))
    assert not latest(fitted).changed
    assert fitted.map is IDENTITY
    assert fitted.record.remaining_error == RECORD.remaining_error


def test_the_record_of_daily_refreshes_stays_short():
    fitted, rows = Fitted(IDENTITY, RECORD), from_arrays([[0.0], [1.0]], [0, 1])
    for _ in range(103):
        fitted = refresh(fitted, rows)
    assert len(fitted.record.refreshes) == 100
    assert latest(fitted).number == 103


def test_fitted_objects_and_maps_without_a_record_are_accepted():
    rng = np.random.default_rng(19)
    truth = rng.normal(MEAN, SD, 5_000)
    scores = truth[:, None] + 0.3 * rng.normal(size=(5_000, 2))
    vad = VAD().fit(scores)
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
    labelled = DataRecord(500, ("column 0",), ("./day.parquet",))
    with pytest.warns(UserWarning, match=r"the map has seen the labels of day\.parquet before"):
        refresh(Fitted(IDENTITY, replace(RECORD, labelled=labelled)), rows)
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


@pytest.mark.parametrize(
    ("source", "spec", "labels", "message"),
    [
        (IDENTITY, None, None, "the evidence holds no labels; collect it with its label column"),
        (IDENTITY, LogSpec(("s0",), "probability"), [0, 1], "scale='logit' and the evidence has scale='probability'"),
        (IDENTITY, LogSpec(("s0",), "value", link="identity"), None, "scale='value', which does not predict a label"),
        (Grouped(IDENTITY, {}), None, [0, 1], "a map for each group; collect the log by its group column too"),
        (Fitted(IDENTITY, RECORD), LogSpec(("s0",), negative_rate=0.5), [0, 1], "negative_rate=None .*=0.5; collect"),
        (
            Fitted(IDENTITY, replace(RECORD, pool=DataRecord(9, ("a", "b")))), LogSpec(("b",)), [0, 1],
            "fitted to the score column 'a' and the evidence has 'b'; rename the column",
        ),
        (
            Fitted(IDENTITY, replace(RECORD, replicas="ensemble", pool=DataRecord(9, ("a", "b")))), LogSpec(("a",)),
            [0, 1], "takes the mean of a, b, and 'a' is one of them; pass evidence of a column of the mean",
        ),
        (
            Fitted(IDENTITY, replace(RECORD, replicas="foo")), None, [0, 1],
            "replicas='foo' is unknown; choose one of seeds",
        ),
        (VAD(), None, [0, 1], "this VAD is not fitted; call fit first"),
        (3, None, [0, 1], "map is of type int; pass a map, a fitted method or the path of a map file"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(source, spec, labels, message):
    rows = from_arrays([[0.25], [0.75]], labels, spec=spec)
    with pytest.raises(UncurseError, match=message):
        refresh(source, rows)


def test_evidence_is_needed():
    with pytest.raises(UncurseError, match="evidence is of type list; pass Evidence with labels"):
        refresh(IDENTITY, [0.5])
    empty = Evidence(LogSpec(("s0",), label="y"), uncurse.Moments(), uncurse.Cells())
    with pytest.raises(UncurseError, match="the evidence holds no rows; pass at least one"):
        refresh(IDENTITY, empty)


def test_logits_without_cells_are_not_called_values():
    rows = from_arrays([[0.0], [1.0]], [0, 1], cells=False)
    with pytest.raises(UncurseError, match="the evidence has no cells; build it with cells=True"):
        refresh(IDENTITY, rows)


def test_groups_without_cells_are_refused():
    rows = from_arrays([[0.0], [1.0]], [0, 1], groups=["a", "b"])
    rows = replace(rows, groups={name: replace(part, cells=None) for name, part in rows.groups.items()})
    with pytest.raises(UncurseError, match="more than 200 groups is collected without their cells"):
        refresh(Grouped(IDENTITY, {}), rows)


# ---------------------------------------------------------------------------- maps after maps

GRID = np.linspace(-20, 20, 4_001)
BENT = Curve((-3.0, -1.0, 0.5), (-3.2, -0.9, 0.2), 0.8, 1.1)


@pytest.mark.parametrize("first", [Affine(0.8, -0.3), BENT, Curve((0.0,), (0.0,), 0.0, 1.0)])
@pytest.mark.parametrize("second", [Affine(1.2, 0.1), BENT, Curve((-2.0, 0.0, 3.0), (-2.0, 0.0, 2.0), 1.0, 0.5)])
def test_a_line_or_curve_after_another_is_one_map(first, second):
    merged = append_map(first, second)
    assert isinstance(merged, Affine if isinstance(first, Affine) and isinstance(second, Affine) else Curve)
    assert merged.transform(GRID) == pytest.approx(second.transform(first.transform(GRID)), abs=1e-9)


def test_what_cannot_be_merged_is_a_chain():
    flat, steps = Affine(0.0, 1.0), Steps((0.0,), (-1.0, 1.0))
    assert isinstance(append_map(flat, BENT), Chain)
    twice = append_map(append_map(steps, BENT), BENT)
    assert [part.kind for part in twice.maps] == ["steps", "curve"]
    assert twice.transform(GRID) == pytest.approx(BENT.transform(BENT.transform(steps.transform(GRID))))
    assert isinstance(append_map(Affine(1.0, 0.0, link="probit"), BENT), Chain)
    assert isinstance(append_map(Affine(1e-300, 0.0), BENT), Chain)  # knots beyond any score


def test_a_map_that_is_bent_every_day_does_not_grow():
    rng, score_map, wanted = np.random.default_rng(23), BENT, BENT.transform(GRID)
    for _ in range(40):
        x = np.sort(rng.normal(0, 2, 30))
        update = Curve(x.tolist(), (x + 0.02 * np.sin(x)).tolist(), 1.0, 1.0)
        score_map, wanted = append_map(score_map, update), update.transform(wanted)
    assert isinstance(score_map, Curve)
    assert len(score_map.x) <= 600
    assert score_map.transform(GRID) == pytest.approx(wanted, abs=40 * 1e-4)


# ---------------------------------------------------------------------------- the model of the drift

#: Part, size and prior probability of every model.
MODELS = [(0, 0.0, 0.5)] + [
    (part, size, prior * share)
    for part, prior in ((1, 0.25), (2, 0.15), (3, 0.1))
    for size, share in ((0.05, 0.4), (0.15, 0.4), (0.5, 0.2))
]


def by_optimiser(drift, z, weight, label, known=None):
    """Posterior mean, covariances and probabilities of all models, by Laplace's method with a general optimiser."""
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
    with_curve = replace(drift, basis=make_basis((np.interp(
        [0.01, 0.2, 0.5, 0.8, 0.95, 0.99], (np.cumsum(weight) - weight / 2) / weight.sum(), z
    ) - drift.center) / drift.spread))  # fmt: skip
    mean, covariance, errors, probabilities = by_optimiser(with_curve, z, weight, label, known)
    np.testing.assert_allclose(drift.probabilities, probabilities, atol=1e-4)
    np.testing.assert_allclose(drift.coefficients, mean, atol=1e-4)
    np.testing.assert_allclose(drift.covariance, covariance, rtol=0.005, atol=1e-7)
    np.testing.assert_allclose(drift.error_covariance, errors, rtol=0.005, atol=1e-7)


@pytest.mark.parametrize(("z", "size"), [([-1.0], 1), ([-2.0, 0.5], 2)])
def test_without_a_curve_its_prior_probability_is_shared(z, size):
    z = np.array(z)
    weight = np.full(len(z), 500.0)
    label = weight * expit(z + 0.2)
    drift = fit_drift(z, weight, label, None)
    assert drift.basis is None
    assert drift.spread == pytest.approx(z.std())
    information = expit(z) * expit(-z)
    assert drift.center == pytest.approx(information @ z / information.sum())
    mean, covariance, errors, probabilities = by_optimiser(drift, z, weight, label)
    np.testing.assert_allclose(drift.probabilities, [*probabilities[:2], 0.0], atol=1e-4)
    np.testing.assert_allclose(drift.coefficients[:size], mean[:size], atol=1e-4)
    np.testing.assert_allclose(drift.covariance[:size, :size], covariance[:size, :size], rtol=0.005)
    np.testing.assert_allclose(drift.error_covariance[:size, :size], errors[:size, :size], rtol=0.005)


@pytest.mark.parametrize(
    ("probabilities", "supported"),
    [
        ((0.74, 0.7, 0.6), "nothing"),
        ((0.76, 0.74, 0.7), "level"),
        ((0.77, 0.76, 0.74), "slope"),
        ((0.78, 0.77, 0.76), "curve"),
        ((0.74, 0.76, 0.76), "nothing"),
    ],
)
def test_a_part_is_supported_from_three_to_one(probabilities, supported):
    drift = Drift(0.0, 1.0, None, np.zeros(2), np.eye(2), np.eye(2), np.array(probabilities))
    assert drift.supported == supported


def test_uncertainty_about_another_center():
    known = Known(-1.0, np.array([[4.0, 1.0], [1.0, 2.0]]))
    # The level at -3 is that at -1 minus 2 slopes.
    np.testing.assert_allclose(known.about(-3.0), [[4 - 4 + 8, 1 - 4], [1 - 4, 2]])


# ---------------------------------------------------------------------------- sizes of a change


def cells_with(log_odds, rows=20_000):
    """Rows whose labels have these log odds by score, up to one row."""
    x = np.repeat(list(log_odds), rows)
    positives = [round(rows * expit(value)) for value in log_odds.values()]
    return from_arrays(x[:, None], np.concatenate([np.arange(rows) < count for count in positives]))


def test_a_change_of_less_than_two_thousandths_leaves_the_map():
    changes = [latest(refresh(IDENTITY, cells_with({-0.5: level - 0.5}))) for level in np.arange(0.01, 0.03, 0.0005)]
    sizes = np.array([abs(found.changes[-1].change) for found in changes if found.changed])
    assert 0.002 <= sizes.min() < 0.0023
    assert all(one.change == 0 for found in changes if not found.changed for one in found.changes)
    assert len(sizes) < len(changes)


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("level", "slope", "large"), [(0.69, 0.0, False), (0.72, 0.0, True), (0.0, 0.48, False)])
def test_a_level_of_twice_the_odds_is_reported(sign, level, slope, large):
    rows = cells_with({x: x + sign * (level + slope * x) for x in (-2.0, 2.0)})
    with pytest.warns(UserWarning, match="rarely a drift") if large else nullcontext():
        refresh(IDENTITY, rows)


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_slope_that_changes_by_half_is_reported(sign):
    with pytest.warns(UserWarning, match=rf"the slope by {'+' if sign > 0 else '-'}5[12]%".replace("+", r"\+")):
        refresh(IDENTITY, cells_with({x: x * (1 + 0.52 * sign) for x in (-2.0, 2.0)}))


def test_a_slope_below_a_twentieth_is_refused():
    def drift(slope):
        return Drift(-1.0, 1.0, None, np.array([0.3, slope]), np.eye(2), np.eye(2), np.ones(3))

    update = refresh_module._update(drift(-0.94))
    assert (update.slope, update.intercept) == pytest.approx((0.06, 0.3 - 0.94))
    with pytest.raises(UncurseError, match=r"their slope is 0\.04\)"):
        refresh_module._update(drift(-0.96))


def test_a_curve_has_64_knots_and_those_of_the_spline():
    basis = make_basis(np.array([-2.0, -0.9, 0.03, 1.05, 2.0]))
    b = np.array([0.1, -0.05, 0.02, 0.01, -0.03])
    drift = Drift(-1.0, 0.5, basis, b, np.eye(5), np.eye(5), np.ones(3))
    update = refresh_module._update(drift)
    x = np.union1d(np.linspace(-2.0, 0.0, 64), -1 + 0.5 * basis.knots)
    assert len(update.x) == 67
    np.testing.assert_allclose(update.x, x)
    np.testing.assert_allclose(update.y, x + b @ np.vstack([np.ones(67), x + 1, basis(2 * (x + 1))[2:]]))


@pytest.mark.parametrize(("rows", "shares"), [(100, [0.01, 0.02, 0.05, 0.1, 1]), (99, [0.02, 0.05, 0.1, 1])])
def test_changes_are_given_for_shares_of_at_least_one_row(rows, shares):
    found = latest(refresh(IDENTITY, from_arrays(np.linspace(-1, 1, rows)[:, None], np.arange(rows) % 2)))
    assert [one.alpha for one in found.changes] == shares


def test_changes_and_their_errors_are_those_of_the_mean_prediction():
    z = np.linspace(-3, 1, 1_000)
    rows = refresh_module._Rows(z, z, np.ones(1_000), 0.2 * np.ones(1_000))
    covariance = np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    drift = Drift(-0.5, 1.0, None, np.array([0.2, -0.1]), covariance, covariance, np.ones(3))
    for one in refresh_module._changes(rows, drift, refresh_module._update(drift)):
        top = z[-round(1_000 * one.alpha) :]

        def mean(b, top=top):
            return expit(top + b[0] + b[1] * (top + 0.5)).mean()

        after = mean([0.2, -0.1])
        assert one.change == pytest.approx(after / mean([0, 0]) - 1)
        slopes = optimize.approx_fprime([0.2, -0.1], mean, 1e-7) / after
        assert one.standard_error == pytest.approx(np.sqrt(slopes @ covariance @ slopes), rel=1e-4)


def test_a_share_of_the_top_takes_part_of_a_cell():
    rows = refresh_module._Rows(np.array([0.0, 3.0, 1.0]), np.zeros(3), np.array([5.0, 2.0, 3.0]), np.zeros(3))
    assert rows.top(0.1).tolist() == [0, 1, 0]
    assert rows.top(0.4).tolist() == [0, 2, 2]
    assert rows.top(1.0).tolist() == [5, 2, 3]


def test_uncertainty_is_that_of_the_map_that_was_written():
    fitted = refresh(IDENTITY, cells_with({x: -0.1 + 0.7 * x for x in (-3.0, 1.0)}, 3_000))
    found = latest(fitted)
    assert found.slope == pytest.approx(-0.3, abs=0.02)
    known = refresh_module._uncertainty(found)
    level, both, slope = found.uncertainty
    # In log odds of the new map, which are 1 + slope times those before.
    rate = 1 / (1 + found.slope)
    np.testing.assert_allclose(known.covariance, [[level, both * rate], [both * rate, slope * rate**2]])
    assert known.center == pytest.approx(fitted.map.transform(np.array([found.center]))[0])
    carried = latest(refresh(fitted, from_arrays([[0.0], [1.0]], [0, 0])))
    assert carried.slope_error == pytest.approx(found.slope_error * rate)
    assert carried.uncertainty == pytest.approx((level, both * rate, slope * rate**2))
    assert refresh_module._uncertainty(replace(found, uncertainty=())) is None


@pytest.mark.parametrize("side", [-1, 1])
def test_the_size_of_a_curve_is_its_largest_distance_from_the_line_on_the_top(side):
    def bend(x):
        return -0.5 * np.maximum(side * (x - MEAN) - 0.8, 0.0)

    x = np.linspace(MEAN - 3, MEAN + 3, 241)
    weight = (20_000 * np.exp(-np.square(x - MEAN) / 2)).round()
    label = (weight * expit(x + bend(x))).round()
    rows = refresh_module._Rows(x, x, weight, label)
    found, update = refresh_module._examine(rows, draw(np.random.default_rng(0), 100), RECORD)
    drift = fit_drift(x, weight, label, None)
    top = x[np.cumsum(weight[::-1])[::-1] - weight < 0.1 * weight.sum()]
    distance = update.transform(top) - top - drift.coefficients[0] - drift.coefficients[1] * (top - drift.center)
    assert found.curve == pytest.approx(distance[np.abs(distance).argmax()])
    assert found.level == pytest.approx(float(drift.change(np.array([drift.center]))[0]), abs=1e-3)
    assert found.level_error == pytest.approx(np.sqrt(drift.error_covariance[0, 0]))
    assert found.slope_error == pytest.approx(np.sqrt(drift.error_covariance[1, 1]))
    assert found.probabilities == pytest.approx(drift.probabilities)


# ---------------------------------------------------------------------------- the command


@pytest.fixture
def files(tmp_path):
    """A map with its record, and a log of today whose level is higher."""
    rng = np.random.default_rng(24)
    record = replace(RECORD, pool=DataRecord(1_000, ("s0", "s1"), ("pool.parquet",)))
    IDENTITY.save(tmp_path / "map.json", record.to_dict())
    x = rng.normal(MEAN, SD, 5_000)
    columns = {"s0": x, "other": x, "click": (rng.random(5_000) < expit(x + 0.4)).astype(int)}
    pl.DataFrame({**columns, "never": 0, "site": rng.choice(["a", "b"], 5_000)}).write_parquet(tmp_path / "log.parquet")
    return tmp_path


def test_the_command_refreshes_with_evidence_or_a_log(files, run):
    run("collect", "log.parquet", "--scores", "s0", "--label", "click", "-o", "today.json")
    said = run("refresh", "map.json", "today.json", "-o", "map2.json")
    lines = said.splitlines()
    assert lines[0].startswith("refresh 1 of map.json, with 5,000 labelled rows (")
    assert lines[1] == "the labels support a change of the level only"
    assert "probability of a change" in said
    assert "% of the odds" in said
    assert "the intervals of the fit no longer hold" in said
    following = "uncurse evaluate LOG --score s0 --label click --map map.json --map map2.json"
    assert lines[-1] == f"written to map2.json; next: {following}"
    run(*following.replace("LOG", "log.parquet").split()[1:])
    run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "map3.json")
    assert load("map3.json") == load("map2.json")
    one, other = (load_record(name).refreshes[-1] for name in ("map2.json", "map3.json"))
    assert replace(one, sources=other.sources, command=other.command) == other
    assert one.command == "uncurse refresh map.json today.json -o map2.json"
    assert one.level == pytest.approx(0.4, abs=3 * one.level_error)


def test_the_command_has_every_format(files, run, capsys):
    run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "a.json")
    content = json.loads(
        run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "b.json", "--format", "json")
    )
    assert (content["kind"], content["supported"], content["changed"]) == ("refresh", "level", True)
    assert content["map"]["kind"] == "affine"
    written = run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "-")
    assert json.loads(written)["intercept"] == load("a.json").intercept


def test_labels_of_one_class_leave_the_file_as_it_is(files, run):
    said = run("refresh", "map.json", "log.parquet", "--label", "never", "-o", "same.json")
    assert "no label is positive, and the map predicts" in said
    assert said.splitlines()[-1] == "written to same.json, unchanged"
    assert load("same.json") == load("map.json")
    assert load_record("same.json").remaining_error == RECORD.remaining_error


def test_maps_by_group_take_their_column_from_the_record(files, run):
    record = replace(RECORD, pool=DataRecord(1_000, ("s0", "s1")), group="site")
    Grouped(IDENTITY, {"a": Affine(1.0, 0.2)}).save("grouped.json", record.to_dict())
    run("refresh", "grouped.json", "log.parquet", "--label", "click", "-o", "grouped2.json")
    assert load("grouped2.json").maps["a"].intercept > 0.3
    run("collect", "log.parquet", "--scores", "s0", "--label", "click", "-o", "today.json")
    said = run("refresh", "grouped.json", "today.json", "-o", "grouped3.json", code=2)
    assert "grouped.json has a map for each group; collect today.json again with --group site" in said


def test_the_command_names_files_and_options(files, run):
    log = ("log.parquet", "--label", "click", "-o", "out.json")
    assert "--label is missing" in run("refresh", "map.json", "log.parquet", "-o", "out.json", code=2)
    said = run("refresh", "map.json", *log, "--score", "other", code=2)
    assert "map.json, log.parquet: the map was fitted to the score column 's0' and the evidence has 'other'" in said
    assert "--group site is for maps by group" in run("refresh", "map.json", *log, "--group", "site", code=2)
    run("collect", "log.parquet", "--scores", "s0", "--negative-rate", "0.5", "--label", "click", "-o", "rate.json")
    said = run("refresh", "map.json", "rate.json", "-o", "out.json", code=2)
    assert "--negative-rate is none in map.json, and 0.5 in rate.json; collect rate.json again" in said
    run("collect", "log.parquet", "--scores", "s0", "-o", "unlabelled.json")
    assert "was collected without labels" in run("refresh", "map.json", "unlabelled.json", "-o", "out.json", code=2)
    assert "is an input" in run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "map.json", code=2)
    IDENTITY.save("bare.json")
    assert "--score is missing" in run("refresh", "bare.json", *log, code=2)
    run("refresh", "bare.json", *log, "--score", "s0")
    assert load_record("out.json").method == "unknown"


def test_evaluating_on_the_labels_of_a_refresh_is_reported(files, run, capsys, monkeypatch):
    run("refresh", "map.json", "log.parquet", "--label", "click", "-o", "map2.json")
    words = ["evaluate", "log.parquet", "--score", "s0", "--label", "click", "--map", "map2.json"]
    monkeypatch.setattr("sys.argv", ["uncurse", *words])
    with pytest.raises(SystemExit):
        main()
    assert "map2.json was fitted to the labels of log.parquet" in capsys.readouterr().err


def test_rows_without_a_label_are_left_out(files, run):
    log = pl.read_parquet("log.parquet")
    missing = log.with_columns(click=pl.when(pl.int_range(pl.len()) % 2 == 0).then(pl.col("click").cast(pl.Float64)))
    missing.write_parquet("late.parquet")
    log[::2].write_parquet("known.parquet")
    for name in ("late", "known"):
        run("refresh", "map.json", f"{name}.parquet", "--label", "click", "-o", f"{name}.json")
    late, known = (load_record(f"{name}.json").refreshes[-1] for name in ("late", "known"))
    assert (late.rows, late.level) == (known.rows, pytest.approx(known.level, rel=1e-12))
