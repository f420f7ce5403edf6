"""Predictions of a map on frames of every engine are those of NumPy, and so are those in files."""

import datetime
import gzip
import os
import sys
from contextlib import nullcontext
from decimal import Decimal

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

from uncurse import Affine, Curve, Segmented, Steps, UncurseError, collect
from uncurse.logs import apply_to_files, with_prediction

SPARK = pytest.param("spark", marks=pytest.mark.spark)
EAGER = ["pandas", "polars", "pyarrow"]
STREAMS = ["reader", "stream", "duckdb", "ibis"]
ENGINES = [*EAGER, "lazy polars", *STREAMS, SPARK]
RNG = np.random.default_rng(7)
SCORES = RNG.normal(-2, 3, 4_000)
SEGMENTS = RNG.choice(["a", "ü", "it's", "back\\slash", ""], len(SCORES))
STEPS = Steps((-1.0, 0.5), (-3.0, -1.0, 2.0), 1e-6, 0.1)
CURVE = Curve((-2.0, 0.0, 1.5), (-1.5, -1.0, 2.0), 0.5, 1.2)
SEGMENTED = Segmented(
    CURVE, {"a": STEPS, "it's": Affine(1.0, 2.0), "": STEPS, "ü": Affine(0.5, 0.0), "back\\slash": CURVE}
)
HALF = Affine(0.5, 0.0)


def table_of(scores=SCORES, segments=SEGMENTS):
    rows = np.arange(len(scores))
    return pa.table({"row": rows, "s 1": scores, "segment": segments, "x.y": [f"t{i}" for i in rows]})


def arrow(frame):
    """Return what a frame of any library holds."""
    if isinstance(frame, pd.DataFrame):
        return pa.Table.from_pandas(frame, preserve_index=False)
    if isinstance(frame, pl.DataFrame | pl.LazyFrame):
        return frame.lazy().collect(engine="streaming").to_arrow()
    if isinstance(frame, pa.RecordBatchReader):
        return frame.read_all()
    return frame if isinstance(frame, pa.Table) else frame.toArrow()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("score_map", [CURVE, SEGMENTED], ids=["one map", "segments"])
def test_every_engine_predicts_as_numpy_and_keeps_the_rest(engine, score_map, make):
    table = table_of()
    given = make(engine, table)
    segment = "segment" if isinstance(score_map, Segmented) else None
    out = with_prediction(given, score_map, score="s 1", column="p", segment=segment)
    assert isinstance(out, pa.RecordBatchReader if engine in STREAMS else type(given))
    result = arrow(out)
    assert result.column_names == [*table.column_names, "p"]
    expected = score_map(SCORES) if segment is None else score_map(SCORES, SEGMENTS)
    np.testing.assert_allclose(result["p"].to_numpy(), expected, rtol=1e-12)
    for column in table.column_names:
        assert result[column].to_pylist() == table[column].to_pylist()


@pytest.mark.parametrize("scale", ["probability", "value"])
def test_other_scales_and_types_of_numbers(scale):
    score_map = Affine(0.7, 0.02, "identity", scale)
    for scores in (expit(SCORES), expit(SCORES).astype(np.float32), (SCORES > 0).astype(np.int16)):
        for frame in (pl.DataFrame({"s": scores}), pl.LazyFrame({"s": scores})):
            out = arrow(with_prediction(frame, score_map, score="s", column="p"))
            np.testing.assert_allclose(out["p"].to_numpy(), score_map(scores), rtol=1e-6)


@pytest.mark.parametrize("engine", ["pandas", "lazy polars", "duckdb"])
def test_whole_numbers_are_segments_by_their_text(engine, make):
    segments = RNG.integers(-3, 1_500, len(SCORES)).astype(np.int16)
    segmented = Segmented(Affine(1.0, 0.0), {str(i): Affine(0.5, i / 400) for i in range(-2, 1_400)})
    given = make(engine, table_of(segments=segments))
    out = with_prediction(given, segmented, score="s 1", column="p", segment="segment") if engine != "pandas" else None
    if out is None:
        with pytest.warns(UserWarning, match="without a map of its own; they get the default map"):
            out = with_prediction(given, segmented, score="s 1", column="p", segment="segment")
    np.testing.assert_allclose(arrow(out)["p"].to_numpy(), segmented(SCORES, segments), rtol=1e-12)


@pytest.mark.parametrize("engine", [*EAGER, "lazy polars", "reader", SPARK])
def test_a_frame_without_rows_gets_a_column_without_rows(engine, make):
    result = arrow(with_prediction(make(engine, table_of().slice(0, 0)), STEPS, score="s 1", column="p"))
    assert (result.num_rows, result["p"].type) == (0, pa.float64())


@pytest.mark.parametrize("engine", [*EAGER, "lazy polars", "stream", SPARK])
def test_missing_scores_and_segments_are_refused_or_kept_or_dropped(engine, make):
    table = pa.table({"s": [0.3, None, 0.3], "g": ["a", "a", None]})
    options = {"score": "s", "column": "p", "segment": "g"}
    with pytest.warns(match="2 of 3 rows have no s or g; they are left out") if engine in EAGER else nullcontext():
        out = arrow(with_prediction(make(engine, table), SEGMENTED, missing="drop", **options))
    assert (out.num_rows, out["g"].to_pylist()) == (1, ["a"])
    assert out["p"].to_pylist() == pytest.approx([SEGMENTED.maps["a"](0.3)], rel=1e-12)
    if engine in EAGER:
        with pytest.warns(UserWarning, match="1 of 3 rows have") as warned:
            out = with_prediction(make(engine, table), SEGMENTED, missing="null", **options)
        assert {str(one.message).split(" have ", 1)[1] for one in warned} == {
            "no s; they have no prediction",
            "a g without a map of its own; they get the default map",
        }
    else:
        out = with_prediction(make(engine, table), SEGMENTED, missing="null", **options)
    out = arrow(out)["p"].to_pylist()
    assert out[1] is None
    assert (out[0], out[2]) == pytest.approx((SEGMENTED.maps["a"](0.3), SEGMENTED.default(0.3)), rel=1e-12)
    for bad, problem in ((table.slice(0, 2), "'s'.* is missing"), (table.slice(2), "'g'.* is missing; fill it")):
        with pytest.raises(Exception, match=problem) as raised:
            arrow(with_prediction(make(engine, bad), SEGMENTED, **options))
        if engine in EAGER:
            assert isinstance(raised.value, UncurseError)
            assert f"row {len(bad) - 1}" in str(raised.value)


def test_a_frame_of_narwhals_in_gives_a_native_frame_out():
    for native in (pl.DataFrame(table_of()), pl.LazyFrame(table_of())):
        assert type(with_prediction(nw.from_native(native), STEPS, score="s 1", column="p")) is type(native)


def test_pandas_rows_are_met_by_place_whatever_their_index():
    frame = pd.DataFrame({"s": [0.0, 1.0, 2.0]}, index=[5, 5, 1])
    out = with_prediction(frame, HALF, score="s", column="p")
    np.testing.assert_array_equal(out["p"], HALF([0.0, 1.0, 2.0]))
    assert (list(out.index), list(frame.columns)) == ([5, 5, 1], ["s"])


@pytest.mark.parametrize("engine", ["polars", "lazy polars", "duckdb", SPARK])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"column": "row"}, "column 'row' is there already"),
        ({"score": "s 2"}, "has no column 's 2'; did you mean 's 1'"),
        ({"segment": "segmnt"}, "has no column 'segmnt'"),
        ({"segment": None}, "segment=None"),
        ({"missing": "fill"}, "missing='fill' is unknown"),
    ],
)
def test_columns_that_cannot_be_are_named_before_anything_runs(engine, options, message, make):
    given = {"score": "s 1", "column": "p", "segment": "segment", **options}
    with pytest.raises(UncurseError, match=message):
        with_prediction(make(engine, table_of()), SEGMENTED, **given)


@pytest.mark.parametrize("engine", ["polars", "lazy polars", "duckdb"])
def test_types_that_cannot_be_are_named_before_anything_runs(engine, make):
    frame = make(engine, table_of())
    with pytest.raises(UncurseError, match="column 'segment' holds String, not numbers"):
        with_prediction(frame, HALF, score="segment", column="p")
    with pytest.raises(UncurseError, match="column 's 1' holds Float64"):
        with_prediction(frame, SEGMENTED, score="row", column="p", segment="s 1")
    with pytest.raises(UncurseError, match="segment='segment'"):
        with_prediction(frame, HALF, score="s 1", column="p", segment="segment")


def test_values_off_the_scale_are_named():
    with pytest.raises(UncurseError, match="row 1 is 2; that is not a probability"):
        with_prediction(pl.DataFrame({"s": [0.0, 2.0]}), Affine(1, 0, scale="probability"), score="s", column="p")
    with pytest.raises(UncurseError, match="list is neither a path nor a frame"):
        with_prediction([1.0], STEPS, score="s", column="p")


# ---------------------------------------------------------------------------- files


def make_log(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1, 1, rows)
    return pl.DataFrame({"s1": truth + rng.normal(0, 0.3, rows), "s2": truth + rng.normal(0, 0.3, rows)})


def test_a_csv_keeps_every_other_value_as_it_is_written(tmp_path):
    text = 'id,s1,note\n007,0.50,"a, b"\n1e3,-1,\n0x1, 2.0 ,"été ""x"""\n'
    (tmp_path / "log.csv").write_text(text)
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(text.encode()))
    for source, out in (("log.csv", "out.csv"), ("log.csv.gz", "packed.csv.gz")):
        apply_to_files(HALF, tmp_path / source, tmp_path / out, score="s1")
        content = (tmp_path / out).read_bytes()
        lines = (gzip.decompress(content) if out.endswith("gz") else content).decode().splitlines()
        assert [line.rsplit(",", 1)[0] for line in lines] == text.splitlines()
        values = [float(line.rsplit(",", 1)[1]) for line in lines[1:]]
        np.testing.assert_allclose(values, HALF([0.5, -1.0, 2.0]), rtol=1e-12)


def test_a_parquet_keeps_types_and_a_csv_becomes_one_of_text(tmp_path):
    log = make_log().with_columns(day=pl.date(2026, 11, 15), tags=pl.lit(["a", "b"]), id=pl.lit(1, pl.UInt8))
    log.write_parquet(tmp_path / "log.parquet", row_group_size=70)
    apply_to_files(HALF, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s1")
    assert pl.read_parquet(tmp_path / "out.parquet").drop("prediction").equals(log)
    (tmp_path / "log.csv").write_text("s1,g\n0.5,007\n0.5,7\n")
    segmented = Segmented(HALF, {"007": Affine(1.0, 1.0), "7": Affine(1.0, 2.0)})
    apply_to_files(segmented, tmp_path / "log.csv", tmp_path / "out.parquet", score="s1", segment="g")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out["g"].to_list() == ["007", "7"]
    np.testing.assert_allclose(out["prediction"], segmented([0.5, 0.5], ["007", "7"]))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_segments_in_files_and_folders_stay_text_as_written(kind, tmp_path):
    for day, site in (("007", "a%20b"), ("7", "c%2Fd%3De")):
        folder = tmp_path / "in" / f"day={day}" / f"site={site}"
        folder.mkdir(parents=True)
        log = make_log().with_columns(code=pl.lit("0" + day))
        log.write_csv(folder / "log.csv") if kind == "csv" else log.write_parquet(folder / "log.parquet")
    expected = {"day": {"007", "7"}, "site": {"a b", "c/d=e"}, "code": {"0007", "07"}}
    for segment, names in expected.items():
        assert set(collect(tmp_path / "in", ["s1", "s2"], segment=segment).segments) == names
        segmented = Segmented(HALF, {name: Affine(1.0, float(i + 1)) for i, name in enumerate(sorted(names))})
        apply_to_files(segmented, tmp_path / "in", tmp_path / segment, score="s1", segment=segment)
        file = tmp_path / segment / f"day=007/site=a%20b/log.{kind}"
        out = pl.read_csv(file) if kind == "csv" else pl.read_parquet(file, hive_partitioning=False)
        assert out.columns == ["s1", "s2", "code", "prediction"]
        name = {"day": "007", "site": "a b", "code": "0007"}[segment]
        np.testing.assert_allclose(out["prediction"], segmented.maps[name](out["s1"].to_numpy()), rtol=1e-12)


TIME, DAY, WHEN = datetime.time(1, 2, 3), datetime.date(2026, 11, 15), datetime.datetime(2026, 11, 15, 1, 2, 3, 456789)
LETTERS = pa.array(["a", None, "b"])
OTHER_TYPES = [
    *(pa.array([TIME, None, TIME], kind) for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"))),
    *(pa.array([DAY, None, DAY], kind) for kind in (pa.date32(), pa.date64())),
    *(pa.array([WHEN, None, WHEN], pa.timestamp(*kind)) for kind in (["s"], ["ms"], ["us", "UTC"], ["ns", "+02:00"])),
    *(pa.array([b"ab", None, b"cd"], kind) for kind in (pa.binary(2), pa.binary(), pa.large_binary())),
    *(pa.array([Decimal("1.25"), None, Decimal(2)], kind) for kind in (pa.decimal128(10, 2), pa.decimal256(60, 2))),
    *(LETTERS.cast(kind) for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))),
    *(pa.array([[1, 2], None, [3, 4]], kind) for kind in (pa.list_(pa.int8()), pa.list_(pa.float32(), 2))),
    pa.array([{"a": [{"b": "x"}], "c": TIME}, None, {"a": [], "c": None}]),
    pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    pa.array([datetime.timedelta(seconds=3), None, None], pa.duration("s")),
    pa.array(np.array([1, 2, 3], np.float16)),
    pa.array([2**64 - 1, None, 0], pa.uint64()),
    pa.nulls(3),
]


@pytest.mark.parametrize("column", OTHER_TYPES, ids=lambda column: str(column.type))
def test_columns_of_all_types_pass_through(column, tmp_path):
    table = pa.table({"x": column, "s": [0.1, 0.2, 0.3]}).replace_schema_metadata({"owner": "ads"})
    pq.write_table(table, tmp_path / "log.parquet")
    apply_to_files(HALF, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
    outputs = {
        "file": (pq.read_table(tmp_path / "log.parquet"), pq.read_table(tmp_path / "out.parquet")),
        "table": (table, with_prediction(table, HALF, score="s", column="prediction")),
        "stream": (table, with_prediction(table.to_reader(), HALF, score="s", column="prediction").read_all()),
    }
    for kind, (before, after) in outputs.items():
        assert after.drop_columns("prediction").equals(before, check_metadata=True), kind
        np.testing.assert_allclose(after["prediction"], HALF([0.1, 0.2, 0.3]))
    assert collect(tmp_path / "log.parquet", "s").rows == 3


def test_parquet_files_keep_values_and_metadata_without_pyarrow(tmp_path, monkeypatch):
    table = pa.table({"s": [0.1], "t": [TIME], "d": [b"ab"]}).replace_schema_metadata({"owner": "ads"})
    pq.write_table(table, tmp_path / "log.parquet")
    pq.write_table(table.append_column("x", OTHER_TYPES[13][:1]), tmp_path / "wide.parquet")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        apply_to_files(HALF, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s")
        with pytest.raises(UncurseError, match=r"cannot write .*wide\.parquet .*; pip install pyarrow"):
            apply_to_files(HALF, tmp_path / "wide.parquet", tmp_path / "out2.parquet", score="s")
    assert sorted(os.listdir(tmp_path)) == ["log.parquet", "out.parquet", "wide.parquet"]
    assert pq.read_metadata(tmp_path / "out.parquet").metadata[b"owner"] == b"ads"
    assert pq.read_table(tmp_path / "out.parquet").drop_columns("prediction").to_pylist() == table.to_pylist()


def test_a_glob_or_a_folder_gives_a_folder_and_a_file_a_file(tmp_path):
    for name in "ab":
        (tmp_path / "in" / name).mkdir(parents=True)
    make_log().write_parquet(tmp_path / "in" / "a" / "x.parquet")
    source = str(tmp_path / "in" / "*" / "*.parquet")
    assert apply_to_files(HALF, source, tmp_path / "one", score="s1") == [str(tmp_path / "one" / "a" / "x.parquet")]
    make_log().write_parquet(tmp_path / "in" / "b" / "x.parquet")
    written = apply_to_files(HALF, tmp_path / "in", tmp_path / "v1.2", score="s1")
    assert written == [str(tmp_path / "v1.2" / name / "x.parquet") for name in "ab"]
    make_log().write_parquet(tmp_path / "[1].parquet")
    apply_to_files(HALF, tmp_path / "[1].parquet", tmp_path / "out.parquet", score="s1")
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["s1", "s2", "prediction"]


@pytest.mark.parametrize(
    ("source", "out", "options", "message"),
    [
        ("in", "out.parquet", {}, "out.parquet must be a new or empty folder"),
        ("in", "in/out", {}, "lies inside"),
        ("in", "full", {}, "full must be a new or empty folder"),
        ("in/0.parquet", "in", {}, "0.parquet is the log itself"),
        ("in/0.parquet", "out.txt", {}, "out.txt is neither .parquet nor .csv"),
        ("in/0.parquet", "x" * 300 + ".parquet", {}, "cannot write .*: File name too long"),
        ("in", "x" * 300, {}, "cannot write .*: File name too long"),
        ("", "out", {}, "a path is empty"),
        ("none.parquet", "out", {}, "there is no such file"),
        ("in/0.parquet", "out.parquet", {"column": ""}, "column '' "),
        ("in/0.parquet", "out.parquet", {"column": "s2"}, "column 's2' is there already"),
        ("in/0.parquet", "out.parquet", {"score": "s9"}, "has no column 's9'"),
    ],
)
def test_outputs_that_cannot_be_are_refused(source, out, options, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir("in")
    make_log().write_parquet("in/0.parquet")
    os.mkdir("full")
    (tmp_path / "full" / "other").touch()
    with pytest.raises(UncurseError, match=message):
        apply_to_files(HALF, source, out, **{"score": "s1", **options})
    assert sorted(os.listdir()) == ["full", "in"]
    assert os.listdir("in") == ["0.parquet"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_bad_score_names_its_row_and_leaves_nothing(kind, tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(3):
        log = make_log()
        if i == 1:
            log = log.with_columns(s1=pl.when(pl.int_range(200) == 40).then(float("inf")).otherwise("s1"))
        path = tmp_path / "in" / f"{i}.{kind}"
        log.write_csv(path) if kind == "csv" else log.write_parquet(path)
    place = "line 42" if kind == "csv" else "row 40"
    with pytest.raises(UncurseError, match=f"1.{kind}, column 's1', {place} is inf"):
        apply_to_files(HALF, tmp_path / "in", tmp_path / "out", score="s1")
    assert os.listdir(tmp_path) == ["in"]


def test_missing_scores_of_files_may_stay_missing(tmp_path):
    (tmp_path / "log.csv").write_text("id,s1\na,0.5\nb,\n")
    with pytest.raises(UncurseError, match="column 's1', line 3 is missing"):
        apply_to_files(HALF, tmp_path / "log.csv", tmp_path / "out.csv", score="s1")
    for missing, text in (("null", "b,,"), ("drop", "")):
        with pytest.warns(UserWarning, match="1 of 2 rows have no s1"):
            apply_to_files(HALF, tmp_path / "log.csv", tmp_path / f"{missing}.csv", score="s1", missing=missing)
        assert "".join((tmp_path / f"{missing}.csv").read_text().splitlines()[2:]) == text


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_map_of_logits_applied_to_probabilities_warns(kind, tmp_path):
    path, out = tmp_path / f"log.{kind}", tmp_path / f"out.{kind}"

    def apply(low, high, rows, score_map=HALF):
        log = pl.DataFrame({"s": np.linspace(low, high, rows)})
        log.write_csv(path) if kind == "csv" else log.write_parquet(path)
        apply_to_files(score_map, path, out, score="s")

    with pytest.warns(UserWarning, match=r"every value of s lies in \[0, 1\]; .* apply the map to their logits"):
        apply(0.0, 1.0, 100)
    apply(0.0, 1.0, 99)  # warnings are errors here
    apply(0.0, 1.1, 100)
    apply(0.1, 0.9, 100, Affine(0.5, 0.0, scale="probability"))
    apply(0.0, 0.0, 0)
