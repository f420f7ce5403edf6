"""Evidence of a log is that of the same rows in arrays, on every engine, and so are the maps that are fitted to it."""

import json
from functools import cache

import numpy as np
import polars as pl
import pytest

from engines import MANY_ROWS, SAMPLE_ROWS
from test_collect import ENGINES, SPARK
from uncurse import VAD, Auto, ReplicaCounts, Tower, UncurseError, collect
from uncurse.evidence import Evidence, LogSpec, from_arrays
from uncurse.links import logistic
from uncurse.logs import batches

pytestmark = pytest.mark.usefixtures("many_rows_are_few")
PROBE = np.linspace(-5, 1, 301)
QUERIES = ["duckdb", "ibis", SPARK]  # engines that answer aggregated queries if a log is large
METHODS = {
    "straight": VAD(intervals=True),
    "curvature": VAD(curvature=True, intervals=True),
    "free": VAD(shape="free"),
    "tandem": VAD(calibrator="platt"),
    "tandem isotonic": VAD(calibrator="isotonic"),
    "tandem about the calibrated mean": VAD(calibrator="isotonic", recentre=False),
    "tower": Tower(),
    "auto": Auto(),
    "auto with labels": Auto(),
}
# One method for each part of evidence: moments, cells, replica counts. Fits do not know which engine collected it.
PARTS = ("straight", "tandem isotonic", "auto with labels")
LABELLED = ("tandem", "tandem isotonic", "tandem about the calibrated mean", "tower", "auto with labels")


def make_log(rows, seed, mean):
    rng = np.random.default_rng(seed)
    site = rng.choice(["news", "sport", "video"], rows, p=[0.5, 0.3, 0.2])
    truth = rng.normal(mean, 0.8, rows) + 0.4 * (site == "sport")
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, 4)) + [0.0, 0.1, -0.1, 0.0]
    names = {f"s{i + 1}": scores[:, i].astype(np.float32) for i in range(4)}
    probabilities = {f"p{i + 1}": logistic(scores[:, i]) for i in range(4)}
    clicks = (rng.random(rows) < logistic(truth)).astype(np.int8)
    weights = rng.integers(0, 3, rows).astype(np.float64)
    return pl.DataFrame({**names, **probabilities, "click": clicks, "w": weights, "site": site})


# Pool and labelled rows.
LOGS = {
    "large": (make_log(SAMPLE_ROWS + 12_000, 0, -2.0), make_log(SAMPLE_ROWS + 8_000, 1, -1.5)),
    "small": (make_log(6_000, 2, -2.0), make_log(6_000, 3, -1.5)),
}


def score_names(count, kind="s"):
    return tuple(f"{kind}{i + 1}" for i in range(count))


def arrays(log, names):
    return log.select(names).to_numpy(), log["click"].to_numpy(), log["w"].to_numpy()


def assert_same_counts(found, expected):
    assert (found.rows, found.n_replicas, found.level) == (expected.rows, expected.n_replicas, expected.level)
    found, expected = found.cells(), expected.cells()
    for name in ("served", "gap", "spread", "weight", "label", "levels"):
        a, b = getattr(found, name), getattr(expected, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)
    assert found.effective_rows == pytest.approx(expected.effective_rows, rel=1e-12)


def assert_same_evidence(found, expected, *, exact_cells=True):
    assert found.spec == expected.spec
    assert found.rows == expected.rows
    for name in ("weight", "effective_rows", "mean", "covariance"):
        a, b = getattr(found.moments, name), getattr(expected.moments, name)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)
    if exact_cells:
        for name in ("score", "weight", "label", "weight_squares", "label_squares"):
            a, b = getattr(found.cells, name), getattr(expected.cells, name)
            assert (a is None) == (b is None)
            if a is not None:
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, err_msg=name)
    assert_same_counts(found.replica_counts, expected.replica_counts)
    assert set(found.groups) == set(expected.groups)


def pairs_of_engine_size_and_count():
    """Every engine with three replicas; other numbers for one engine of each way to count.

    Rows of a small log become arrays whatever the engine. A large log is read in batches or answers a query.
    """
    for engine in ENGINES:
        plain, marks = (engine, ()) if isinstance(engine, str) else (*engine.values, engine.marks)
        for size in ("small", "large"):
            one = "polars" if size == "small" else "duckdb"
            for count in (2, 3, 4) if plain == one or (size, plain) == ("large", "parquet") else (3,):
                yield pytest.param(plain, size, count, marks=marks)


@cache
def evidence_of_arrays(size, count):
    names = score_names(count)
    scores, clicks, weights = arrays(LOGS[size][1], names)
    spec = LogSpec(names, label="click", weight="w")
    return from_arrays(scores, clicks, spec=spec, sample_weight=weights, replica_counts=True)


@cache
def evidence_of_groups_of_arrays(size, count):
    names, pool = score_names(count, "p"), LOGS[size][0]
    spec = LogSpec(names, "probability", weight="w", group="site", negative_rate=0.2)
    scores, _, weights = arrays(pool, names)
    sites = pool["site"].to_numpy()
    return from_arrays(scores, spec=spec, groups=sites, sample_weight=weights, replica_counts=True)


@pytest.mark.parametrize(("engine", "size", "count"), list(pairs_of_engine_size_and_count()))
def test_every_engine_gives_the_evidence_of_arrays(engine, size, count, opened):
    names, log = score_names(count), LOGS[size][1]
    source, options = opened(engine, log)
    found = collect(source, names, label="click", weight="w", replica_counts=True, **options)
    expected = evidence_of_arrays(size, count)
    assert_same_evidence(found, expected)
    assert (found.replica_counts.level > 0) == (size == "large")
    if len(log) <= MANY_ROWS:  # the blocks of the jackknife are the same too
        errors = (VAD().fit(evidence).standard_error_ for evidence in (found, expected))
        assert next(errors) == pytest.approx(next(errors), rel=1e-9)


@cache
def fitted_to_arrays(size, count, name):
    (pool, _, weights), labelled = (arrays(log, score_names(count)) for log in LOGS[size])
    rows = {"labelled": labelled} if name in LABELLED else {}
    fitted = METHODS[name].fit(pool, sample_weight=weights, **rows)
    interval = fitted.interval(0.02) if not name.startswith("tandem") else None
    return fitted.map_, getattr(fitted, "lambda_", None), getattr(fitted, "reason_", None), interval


@pytest.mark.parametrize(
    ("engine", "size", "count"),
    [
        ("duckdb", "large", 2),
        ("parquet", "large", 3),
        *((engine, "small", 3) for engine in ("pandas", "csv duckdb")),
        pytest.param("csv spark", "small", 3, marks=pytest.mark.spark),
    ],
)
def test_every_method_fits_the_same_map_to_a_log_as_to_arrays(engine, size, count, opened):
    # One engine of each way to read; the test above compares the evidence of all. All methods on two of them.
    # A large log in Spark answers the same queries as one in DuckDB.
    evidence = []
    for log, label in zip(LOGS[size], (None, "click"), strict=True):
        source, options = opened(engine, log)
        given = {"label": label, "weight": "w", "replica_counts": True}
        evidence.append(collect(source, score_names(count), **given, **options))
    pool, labelled = evidence
    for name in METHODS if engine in ("duckdb", "pandas") else PARTS:
        method = METHODS[name]
        score_map, value, reason, interval = fitted_to_arrays(size, count, name)
        found = method.fit(pool, **({"labelled": labelled} if name in LABELLED else {}))
        np.testing.assert_allclose(found.map_(PROBE), score_map(PROBE), rtol=0, atol=1e-12, err_msg=name)
        if value is not None:
            assert found.lambda_ == pytest.approx(value, rel=1e-12)
        assert getattr(found, "reason_", None) == reason
        if interval is not None:
            assert found.interval(0.02) == pytest.approx(interval, rel=0, abs=1e-9)


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
@pytest.mark.parametrize(
    ("engine", "size", "count"),
    [
        *((engine, "large", 3) for engine in ("pandas", "lazy polars", "duckdb", "ibis")),
        pytest.param("spark", "large", 3, marks=pytest.mark.spark),
        ("duckdb", "large", 2),
        ("pandas", "small", 2),
        ("duckdb", "small", 3),
    ],
)
def test_groups_weights_probabilities_and_sampled_negatives(engine, size, count, opened):
    names, (pool, labelled) = score_names(count, "p"), LOGS[size]
    given = {"scale": "probability", "negative_rate": 0.2, "weight": "w", "replica_counts": True}
    source, options = opened(engine, pool)
    found = collect(source, names, group="site", **given, **options)
    expected = evidence_of_groups_of_arrays(size, count)
    assert_same_evidence(found, expected)
    assert set(found.groups) == {"news", "sport", "video"}
    for name, part in found.groups.items():
        # The cells of groups of a large log stay on the grid, whatever the number of rows of a group.
        assert_same_evidence(part, expected.groups[name], exact_cells=size == "small")
        assert part.replica_counts.level == found.replica_counts.level
    if engine != "duckdb":
        return
    source, options = opened(engine, labelled)
    rows = collect(source, names, label="click", **given, **options)
    tower = Tower(scale="probability", negative_rate=0.2)
    scores, _, weights = arrays(pool, names)
    sites = pool["site"].to_numpy()
    p = logistic(PROBE)
    maps = [
        tower.fit(pool, labelled=labels, **more).map_
        for pool, labels, more in (
            (found, rows, {}),
            (scores, arrays(labelled, names), {"groups": sites, "sample_weight": weights}),
        )
    ]
    for name in ("news", "sport", "video", "unseen"):
        here = np.full(len(p), name)
        # Sums of weights differ by rounding, which the iteration for latent scores multiplies by some thousands.
        np.testing.assert_allclose(maps[0](p, here), maps[1](p, here), rtol=0, atol=5e-12)


@pytest.mark.parametrize("engine", ["lazy polars", "duckdb", "ibis"])
def test_replicas_are_counted_on_the_logit_whatever_the_link(engine, opened):
    log = LOGS["large"][0]
    source, options = opened(engine, log)
    given = {"scale": "probability", "link": "identity", "replica_counts": True}
    found = collect(source, ["p1", "p2"], **given, **options).replica_counts
    assert_same_counts(found, ReplicaCounts().update(log.select("p1", "p2").to_numpy(), scale="probability"))


@pytest.mark.parametrize("engine", ["lazy polars", *QUERIES])
def test_extreme_logits_are_counted_alike(engine, opened):
    rng = np.random.default_rng(0)
    log = LOGS["large"][0].select("s1", "s2", "s3").cast(pl.Float64)
    size = pl.Series(10.0 ** rng.uniform(0, 8, len(log)))
    log = log.with_columns(pl.when(pl.Series(rng.random(len(log)) < 0.01)).then(pl.all() * size).otherwise(pl.all()))
    source, options = opened(engine, log)
    found = collect(source, ["s1", "s2", "s3"], replica_counts=True, **options).replica_counts
    assert_same_counts(found, ReplicaCounts().update(log.to_numpy()))


def test_batches_and_threads_do_not_change_the_evidence(monkeypatch, tmp_path):
    log, path = LOGS["large"][1], tmp_path / "log.parquet"
    log.write_parquet(path, row_group_size=7_000)
    options = {"label": "click", "weight": "w", "replica_counts": True}
    expected = collect(log, ["s1", "s2", "s3"], **options)
    monkeypatch.setattr(batches, "_BATCH", 10_000)
    for cores in (1, 3):
        monkeypatch.setattr(batches, "cores", lambda cores=cores: cores)
        found = collect(path, ["s1", "s2", "s3"], **options)
        assert_same_evidence(found, expected)
        assert found.replica_counts.to_dict() == collect(path, ["s1", "s2", "s3"], **options).replica_counts.to_dict()


def test_a_first_batch_without_weight_adds_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(batches, "_BATCH", 10_000)
    log = LOGS["large"][1]
    log = log.with_columns(w=pl.when(pl.int_range(len(log)) < 25_000).then(0.0).otherwise("w"))
    log.write_parquet(tmp_path / "log.parquet", row_group_size=5_000)
    found = collect(tmp_path / "log.parquet", ["s1", "s2"], weight="w", replica_counts=True).replica_counts
    rest = log.filter(pl.col("w") > 0)
    expected = ReplicaCounts().update(rest.select("s1", "s2").to_numpy(), sample_weight=rest["w"].to_numpy())
    assert found.level == expected.level
    np.testing.assert_array_equal(found.cells().weight, expected.cells().weight)


@pytest.mark.parametrize("engine", ["duckdb", "ibis"])
def test_first_rows_without_weight_do_not_fix_the_grid_of_a_query(engine, opened):
    log = LOGS["large"][1]
    log = log.with_columns(w=pl.when(pl.int_range(len(log)) < SAMPLE_ROWS + 2_000).then(0.0).otherwise("w"))
    source, options = opened(engine, log)
    found = collect(source, ["s1", "s2"], weight="w", replica_counts=True, **options).replica_counts
    scores, _, weights = arrays(log, ["s1", "s2"])
    assert_same_counts(found, ReplicaCounts().update(scores, sample_weight=weights))


def test_more_than_two_hundred_groups_are_collected_without_replica_counts():
    log = LOGS["large"][0].with_columns(site=pl.int_range(pl.len()) % 300)
    found = collect(log, ["s1", "s2"], group="site", replica_counts=True)
    assert found.replica_counts is not None
    assert len(found.groups) == 300
    assert all(part.replica_counts is None for part in found.groups.values())


def test_days_merge_to_the_whole_and_survive_their_files(tmp_path):
    pool = LOGS["large"][0]
    options = {"group": "site", "replica_counts": True}
    whole = collect(pool, ["s1", "s2"], **options)
    for i, part in enumerate((pool[:10], pool[10:20_000], pool[20_000:])):
        collect(part, ["s1", "s2"], **options).save(tmp_path / f"{i}.json")
    days = [Evidence.load(tmp_path / f"{i}.json") for i in range(3)]
    assert all(len(json.dumps(day.replica_counts.to_dict())) < 500_000 for day in days)
    for a, b, c in ((0, 1, 2), (2, 1, 0)):
        merged = days[a].merge(days[b]).merge(days[c])
        assert_same_evidence(merged, whole)
        for name, part in whole.groups.items():
            assert_same_counts(merged.groups[name].replica_counts, part.replica_counts)
    assert days[0].rows == 10
    with pytest.raises(UncurseError, match="only one side has replica_counts; collect both with the same options"):
        days[0].merge(collect(pool, ["s1", "s2"], group="site"))


@pytest.mark.parametrize("method", [VAD(calibrator="platt"), Tower(), Auto()])
@pytest.mark.parametrize("names", [("s2", "s1"), ("s1", "s3")])
def test_labelled_evidence_of_other_columns_or_another_order_is_refused(method, names):
    pool, labelled = LOGS["small"]
    evidence = collect(pool, ["s1", "s2"], replica_counts=True)
    rows = collect(labelled, names, label="click", replica_counts=True)
    message = f"rows have different columns: scores is s1, s2 in one and {', '.join(names)} in the other"
    with pytest.raises(UncurseError, match=message):
        method.fit(evidence, labelled=rows)


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ("s1", {}, "replica counts need two or more columns of logits or probabilities, not s1 with scale='logit'"),
        (["s1", "s2"], {"scale": "value", "link": "identity"}, "not s1, s2 with scale='value'; name a replica, or"),
    ],
)
def test_columns_that_have_no_replica_counts_are_refused(scores, options, message):
    with pytest.raises(UncurseError, match=message):
        collect(LOGS["small"][0], scores, replica_counts=True, **options)


@pytest.mark.parametrize("engine", ["lazy polars", "parquet", "duckdb"])
def test_a_score_that_is_no_number_is_refused(engine, opened):
    log = LOGS["large"][0].with_columns(s2=pl.when(pl.int_range(pl.len()) == 16).then(float("nan")).otherwise("s2"))
    source, options = opened(engine, log)
    with pytest.raises(UncurseError, match=r"nan|NaN"):
        collect(source, ["s1", "s2"], replica_counts=True, **options)
