"""A log gives the same evidence on every engine, and what cannot be collected is refused by its column and row."""

from datetime import UTC, datetime
from decimal import Decimal

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.special import expit

from uncurse import VAD, Auto, TopK, UncurseError, collect, top_k
from uncurse.evidence import LogSpec, from_arrays
from uncurse.logs import Settled
from uncurse.logs.collecting import collect_spec
from uncurse.metrics import evaluate_log

SPARK = pytest.param("spark", marks=pytest.mark.spark)
ENGINES = ["polars", "lazy polars", "pandas", "pyarrow", "reader", "stream", "duckdb", "ibis", "parquet", "csv", SPARK]
PROBE = np.linspace(-7, 4, 201)


def make_log(rows, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, 3))
    names = {f"s{i + 1}": scores[:, i].astype(np.float32) for i in range(3)}
    return pl.DataFrame(
        {
            **names,
            **{f"p{i + 1}": expit(scores[:, i]) for i in range(3)},
            "click": (rng.random(rows) < expit(truth)).astype(np.int8),
            "w": rng.integers(0, 3, rows).astype(np.float64),
            "site": rng.choice(["news", "sport", 'it\'s "video"'], rows),
            "request": rng.integers(0, rows // 10, rows),
        }
    )


LOG = make_log(6_000)


def assert_same(found, expected, tolerance=1e-9):
    """Compare all that methods read of evidence."""
    assert (found.rows, set(found.segments)) == (expected.rows, set(expected.segments))
    assert found.effective_rows == pytest.approx(expected.effective_rows, rel=tolerance)
    for name in ("mean", "covariance"):
        ours, theirs = getattr(found.moments, name), getattr(expected.moments, name)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance, err_msg=name)
    common = {"scale": found.spec.scale, "replicas": "seeds"}
    maps = (VAD(**common).fit(evidence).map_ for evidence in (found, expected))
    ours, theirs = (getattr(each, "default", each) for each in maps)
    probe = PROBE if found.spec.scale == "logit" else expit(PROBE)
    np.testing.assert_allclose(ours(probe), theirs(probe), rtol=tolerance)
    if found.spec.label is not None:
        np.testing.assert_allclose(found.served.label, expected.served.label, rtol=tolerance)
    for name, part in found.segments.items():
        assert part.rows == expected.segments[name].rows
        np.testing.assert_allclose(part.moments.mean, expected.segments[name].moments.mean, rtol=tolerance)


@pytest.mark.parametrize("engine", ["polars", "reader", "stream"])  # of the others the contract of evidence
def test_a_log_gives_the_evidence_of_arrays(engine, make):
    scores, labels = LOG.select("s1", "s2", "s3").to_numpy(), LOG["click"].to_numpy()
    found = collect(make(engine, LOG.to_arrow()), ["s1", "s2", "s3"], label="click", weight="w")
    spec = LogSpec(("s1", "s2", "s3"), label="click", weight="w")
    expected = from_arrays(scores, labels, spec=spec, sample_weight=LOG["w"].to_numpy())
    assert_same(found, expected)


@pytest.mark.parametrize("engine", ["lazy polars", "pandas", "duckdb", "csv", SPARK])
def test_a_row_with_trials_is_as_many_rows(engine, make):
    trials = np.random.default_rng(1).integers(1, 9, len(LOG))
    log = LOG.with_columns(clicks=LOG["click"] * (trials // 2 + 1), shown=trials)
    row = np.repeat(np.arange(len(LOG)), trials)
    label = np.arange(len(row)) - np.repeat(np.cumsum(trials) - trials, trials) < log["clicks"].to_numpy()[row]
    options = {"scores": ["s1", "s2"], "weight": "w", "segment": "site"}
    found = collect(make(engine, log.to_arrow()), label="clicks", trials="shown", **options)
    assert_same(found, collect(log[row].with_columns(click=pl.Series(label)), label="click", **options))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_keeps_the_best_of_each_request(engine, k, make):
    found = collect(make(engine, LOG.to_arrow()), "s1", label="click", segment="site", top_k=TopK("request", k))
    chosen = LOG.filter(top_k(LOG["s1"].to_numpy(), LOG["request"].to_numpy(), k))
    expected = collect(chosen, "s1", label="click", segment="site")
    assert found.rows == len(chosen)
    assert {name: part.rows for name, part in found.segments.items()} == {
        name: part.rows for name, part in expected.segments.items()
    }
    pairs = zip(evaluate_log(found, None, [0.1, 1.0]).rows, evaluate_log(expected, None, [0.1, 1.0]).rows, strict=True)
    for ours, theirs in pairs:
        assert (ours.predicted, ours.observed) == pytest.approx((theirs.predicted, theirs.observed), rel=1e-9)


def test_requests_spread_over_batches_and_ties_keep_the_first_rows():
    rows = 1_500_000  # more than one batch
    scores = (np.arange(rows) % 3).astype(float)
    log = pl.DataFrame({"s": scores, "request": np.arange(rows) % 40_000})
    log = log.with_columns(click=pl.int_range(rows) % 2)
    for k in (1, 2):
        found = collect(log.lazy(), "s", label="click", top_k=TopK("request", k))
        chosen = log.filter(top_k(scores, log["request"].to_numpy(), k))
        assert found.rows == len(chosen)
        assert evaluate_log(found, None, [1.0]).rows[0].observed == chosen["click"].sum()


def test_batches_of_a_scan_add_up_and_report_progress(tmp_path):
    log, seen = make_log(300_000), []
    log.write_parquet(tmp_path / "log.parquet", row_group_size=20_000)
    found = collect(tmp_path / "log.parquet", ["s1", "s2"], progress=seen.append)
    assert sum(seen) == found.rows == len(log)
    assert_same(found, collect(log, ["s1", "s2"]))


def test_a_frame_wrapped_by_narwhals_is_a_frame():
    expected = collect(LOG, ["s1", "s2"]).moments.covariance
    for frame in (nw.from_native(LOG), nw.from_native(LOG.lazy()), nw.from_native(LOG.to_pandas())):
        np.testing.assert_array_equal(collect(frame, ["s1", "s2"]).moments.covariance, expected)


def test_labels_may_be_true_and_false_and_scores_whole_numbers_or_decimals():
    log = LOG.select("s1", "w", click=pl.col("click") == 1, n=pl.col("w").cast(pl.Int32), d=pl.col("w"))
    log = log.with_columns(pl.col("d").cast(pl.Decimal(10, 2)), big=pl.col("n").cast(pl.Int128))
    found = collect(log, ["s1", "n", "d", "big"], label="click")
    assert evaluate_log(found, None, [1.0]).rows[0].observed == log["click"].sum()
    np.testing.assert_allclose(found.moments.mean[1:], log["n"].mean())


def test_segments_may_be_categories_and_objects():
    log = LOG.to_pandas()
    counts = {name: int((log["site"] == name).sum()) for name in log["site"].unique()}
    for kind in ("category", object):
        found = collect(log.astype({"site": kind}), ["s1", "s2"], segment="site")
        assert {name: part.rows for name, part in found.segments.items()} == counts


# ---------------------------------------------------------------------------- names that engines confuse


@pytest.mark.parametrize("engine", ["polars", "pandas", "pyarrow", "stream", "parquet", "csv"])
def test_names_that_differ_by_case_are_two_columns(engine, make):
    log = LOG.select("s1", "s2", S1=pl.col("s1") + 5)
    assert collect(make(engine, log.to_arrow()), ["S1", "s2"]).moments.mean[0] == pytest.approx(
        log["S1"].mean(), rel=1e-6
    )


@pytest.mark.parametrize("engine", ["duckdb", "ibis", SPARK])
def test_engines_of_sql_never_read_a_column_of_another_case(engine, make):
    log = LOG.select("s1", "s2", S1=pl.col("s1") + 5)
    for name in ("s1", "S1"):
        try:
            found = collect(make(engine, log.to_arrow()), [name, "s2"])
        except UncurseError as error:
            assert "S1" in str(error)  # noqa: PT017  the message names the column
        else:
            assert found.moments.mean[0] == pytest.approx(log[name].mean(), rel=1e-6)
    with pytest.raises(UncurseError, match="A"):
        collect(duckdb.sql("select 0.5 as a, 1.5 as A"), "A")


@pytest.mark.parametrize("engine", ["polars", "duckdb", "ibis", SPARK])
def test_names_with_dots_and_quotes_are_names(engine, make):
    log = LOG.select(pl.col("s1").alias('s.1 "x"'), pl.col("s2").alias("it's"))
    assert collect(make(engine, log.to_arrow()), log.columns).rows == len(LOG)


# ---------------------------------------------------------------------------- missing and impossible values

BAD = {
    "nan": ("s2", float("nan"), "row 7 is nan|row 7 is missing"),
    "infinite": ("s2", float("inf"), "row 7 is inf"),
    "huge": ("p1", 1e200, "row 7 is 1e[+]200"),
    "null score": ("s1", None, "row 7 is missing"),
    "null label": ("click", None, "row 7 is missing; leave out rows that were not shown"),
    "label of 2": ("click", 2, "row 7 is 2; labels must be 0 or 1"),
    "negative weight": ("w", -0.5, "row 7 is -0[.]5; weights must be 0 or more"),
    "null segment": ("site", None, "row 7 is missing; fill it"),
    "null request": ("request", None, "row 7 is missing; drop it"),
}


def spoil(log, column, value, row=7):
    return log.with_columns(pl.when(pl.int_range(pl.len()) == row).then(value).otherwise(column).alias(column))


@pytest.mark.parametrize("engine", ["polars", "pandas", "duckdb", "parquet", "csv", SPARK])
@pytest.mark.parametrize("fault", BAD)
def test_the_first_bad_value_is_named_by_its_column_and_row(fault, engine, make):
    column, value, problem = BAD[fault]
    source = make(engine, spoil(LOG, column, value).to_arrow())
    roles = {"label": "click", "weight": "w", "segment": "site"}
    if fault == "null request":
        roles["top_k"] = TopK("request", 50)
    for engine_place in ({"csv": "line 9", "spark": "a value"}.get(engine),):
        problem = problem.replace("row 7", engine_place) if engine_place else problem
    with pytest.raises(UncurseError, match=f"column '{column}', ({problem})"):
        collect(source, ["s1", "s2", "p1"], **roles)


@pytest.mark.parametrize(
    ("column", "value", "options", "problem"),
    [
        ("p1", 1.5, {"scale": "probability"}, r"row 7 is 1\.5; that is not a probability"),
        ("p2", 1.0, {"scale": "probability"}, "1 probabilities are exactly 0 or 1"),
        ("p2", 0.0, {"scale": "value", "link": "log"}, "a score is 0, which has no logarithm"),
    ],
)
def test_values_off_the_scale_are_refused(column, value, options, problem):
    with pytest.raises(UncurseError, match=problem):
        collect(spoil(LOG, column, value), ["p1", "p2"], **options)


@pytest.mark.parametrize("engine", ["polars", "pandas", SPARK])
def test_rows_without_a_value_are_dropped_on_request_and_counted(engine, make):
    log = spoil(spoil(spoil(LOG, "s1", None, 3), "s2", float("nan"), 4), "click", None, 5)
    source = make(engine, log.to_arrow())
    with pytest.warns(UserWarning, match="1 rows have no") as warned:
        found = collect(source, ["s1", "s2"], label="click", missing="drop")
    assert sum(str(each.message).endswith("they are not counted") for each in warned) == 3
    expected = LOG.filter(~pl.int_range(pl.len()).is_in([3, 4, 5]))
    assert evaluate_log(found, None, [1.0]) == evaluate_log(collect(expected, "s1", label="click"), None, [1.0])
    assert found.rows == len(expected)


def test_with_requests_only_the_best_rows_need_labels():
    best = pl.Series(top_k(LOG["s1"].to_numpy(), LOG["request"].to_numpy(), 1))
    log = LOG.with_columns(click=pl.when(best).then("click"))
    found = collect(log, "s1", label="click", top_k=TopK("request"))
    assert found.rows == best.sum()
    with pytest.raises(UncurseError, match=r"column 'click', row .* is missing; .*whole requests"):
        collect(log, "s1", label="click", top_k=TopK("request", 2))
    lost = int(best.arg_max())
    with pytest.raises(UncurseError, match=f"column 's1', row {lost:,} is missing"):
        collect(spoil(LOG, "s1", None, lost), "s1", top_k=TopK("request"))


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (LOG, {"scores": ["s1", "s9"]}, "has no column 's9'"),
        (LOG, {"scores": ["s1", "site"]}, "column 'site' holds String, not numbers"),
        (LOG, {"scores": "s1", "segment": "s2"}, "column 's2' holds Float32"),
        (LOG.rename({"s2": "^s.*$"}), {"scores": ["s1", "^s.*$"]}, "would be read as a pattern"),
        (LOG.head(0), {"scores": "s1"}, "there are no rows"),
        (LOG.with_columns(w=0.0), {"scores": "s1", "weight": "w"}, "no rows with a positive w"),
        (LOG.with_columns(w=1e200), {"scores": "s1", "weight": "w"}, "rescale the weights"),
        (pd.DataFrame({"s1": [object(), object()]}), {"scores": "s1"}, "column 's1' holds Object"),
        (LOG, {"scores": "s1", "missing": "fill"}, "missing='fill' is unknown"),
        (LOG, {"scores": "s1", "top_k": ("site", 3)}, "pass a TopK"),
        (LOG, {"scores": None}, "scores=None is not a column name"),
        (LOG, {"scores": 5}, "scores=5 is not a column name"),
        (3, {"scores": "s1"}, "int is neither a path nor a frame"),
        ([], {"scores": "s1"}, "there is no file to read"),
    ],
)
def test_what_is_refused_is_named(source, options, message):
    with pytest.raises(UncurseError, match=message):
        collect(source, **options)


def test_logits_that_look_like_probabilities_are_warned_of():
    with pytest.warns(UserWarning, match="every value of p1 lies in"):
        collect(LOG, ["p1", "p2"])
    percent = LOG.with_columns(p1=100 * pl.col("p1"))
    with pytest.warns(UserWarning, match="if these are percentages, divide them by 100"):
        collect(percent, "p1")
    with pytest.raises(UncurseError, match="are these percentages"):
        collect(percent, "p1", scale="probability")
    collect(pl.concat([LOG, LOG.with_columns(site=pl.lit("b"), s1=pl.col("p1").cast(pl.Float32))]), "s1")


# ---------------------------------------------------------------------------- settled labels

TIMES = [datetime(2026, 11, 1 + i // 4, 6 * (i % 4), tzinfo=UTC) for i in range(40)]
BEFORE = datetime(2026, 11, 5, tzinfo=UTC)
KINDS = {
    "timestamps": pl.Series(TIMES),
    "local timestamps": pl.Series(TIMES).dt.replace_time_zone(None),
    "times of another zone": pl.Series(TIMES).dt.convert_time_zone("Asia/Tokyo"),
    "text": [time.strftime("%Y-%m-%d %H:%M") for time in TIMES],
    "text in UTC": [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in TIMES],
    "text with offsets": [f"2026-11-{1 + i // 4:02d}T{6 * (i % 4) + 2:02d}:00:00.000+02:00" for i in range(40)],
    "dates": [time.date() for time in TIMES],
    "text of dates": [str(time.date()) for time in TIMES],
}


def settled_log(times):
    return pl.DataFrame({"s": np.linspace(-2, 2, 40), "click": [0, 1] * 20, "time": times})


def collect_settled(log, **limits):
    return collect_spec(log, LogSpec(("s",), label="click"), settled=Settled(**limits))


@pytest.mark.parametrize("kind", KINDS)
def test_only_rows_in_time_count(kind, tmp_path):
    log = settled_log(KINDS[kind])
    assert collect_settled(log, time="time", before=BEFORE).rows == 16
    assert collect_settled(log, time="time", since=datetime(2026, 11, 3, tzinfo=UTC), before=BEFORE).rows == 8
    log.write_parquet(tmp_path / "log.parquet")
    assert collect_settled(tmp_path / "log.parquet", time="time", before=BEFORE).rows == 16


def test_rows_without_a_label_are_left_out_and_counted():
    log = settled_log(TIMES).with_columns(click=pl.when(pl.int_range(40) >= 10).then("click"))
    with pytest.warns(UserWarning, match="10 rows have no click; they are not counted"):
        assert collect_settled(log).rows == 30
    with pytest.warns(UserWarning, match="10 rows have no click"):
        assert collect_settled(log, time="time", before=BEFORE).rows == 6


@pytest.mark.parametrize(
    ("times", "before", "message"),
    [
        (["11/01/2026"] * 40, BEFORE, "column 'time' is '11/01/2026'; pass an ISO date or time"),
        ([None, *TIMES[1:]], BEFORE, "column 'time', row 0 is missing"),
        ([*KINDS["text"][:9], "2026-13-01", *KINDS["text"][10:]], BEFORE, "column 'time' is '2026-13-01'"),
        ([0.5] * 40, BEFORE, "time column 'time' holds Float64"),
    ],
)
def test_times_that_are_missing_or_ambiguous_are_refused(times, before, message):
    with pytest.raises(UncurseError, match=message):
        collect_settled(settled_log(times), time="time", before=before)


def test_a_type_that_polars_does_not_have_is_an_error_only_where_it_is_read(capfd):
    wide = pa.array([Decimal("1.25")] * 3, pa.decimal256(60, 2))
    table = pa.table({"s": [1.0, 2.0, 3.0], "wide": wide})
    assert collect(table, "s").rows == 3
    with pytest.raises(UncurseError, match="the frame: "):
        collect(table, "wide")


def test_collected_evidence_has_all_that_auto_needs():
    pool = collect(LOG, ["s1", "s2", "s3"], scale="logit")
    fitted = Auto(scale="logit", replicas="seeds").fit(pool)
    assert fitted.interval(0.1)[0] < 0 < fitted.interval(0.1)[1]


def test_lines_of_a_csv_file_may_end_in_two_ways(tmp_path):
    rows = LOG.select("s1", "s2").head(400).write_csv().splitlines()
    (tmp_path / "mixed.csv").write_bytes("\r\n".join(rows[:201]).encode() + b"\n" + "\n".join(rows[201:]).encode())
    assert collect(tmp_path / "mixed.csv", ["s1", "s2"]).rows == 400


def test_an_error_of_the_library_behind_an_address_is_one_of_uncurse(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no credentials were found")

    monkeypatch.setattr(pl.LazyFrame, "collect_schema", refuse)
    with pytest.raises(UncurseError, match=r"gs://bucket/a\.parquet: no credentials were found"):
        collect("gs://bucket/a.parquet", ["s1", "s2"])
