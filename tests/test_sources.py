"""Files in every shape that logs come in, and what is refused of them."""

import os

import numpy as np
import polars as pl
import pytest

from uncurse import VAD, Affine, Evidence, UncurseError, collect, evaluate
from uncurse.evidence import TopK
from uncurse.links import logistic
from uncurse.logs import apply_to_files, with_prediction
from uncurse.logs.files import find_files, locate
from uncurse.metrics import evaluate_log

ENGINES = ["polars", "duckdb", pytest.param("spark", marks=pytest.mark.spark)]


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


def make(rows=600, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1, 1, rows)
    return pl.DataFrame(
        {
            "s1": truth + rng.normal(0, 0.3, rows),
            "s2": truth + rng.normal(0, 0.3, rows),
            "y": rng.integers(0, 2, rows),
            "q": np.arange(rows) // 10,
        }
    )


def test_columns_of_csv_files_are_matched_by_name(engine, tmp_path):
    (tmp_path / "a.csv").write_text("s1,s2\n0.5,1\n-1,0\n")
    (tmp_path / "b.csv").write_text("s2,extra,s1\n100,x,0.25\n100,y,-2\n")
    np.testing.assert_allclose(collect(tmp_path, ["s1", "s2"], engine=engine).moments.mean, [-0.5625, 50.25])


def test_groups_of_a_csv_are_text_as_it_is_written(engine, tmp_path):
    lines = [f"{i / 7},{i / 6},{i % 2:03d}" for i in range(1_500)] + ["0.5,0.25,unknown", "0.25,0.5,unknown"]
    (tmp_path / "log.csv").write_text("s1,s2,g\n" + "\n".join(lines))
    assert set(collect(tmp_path, ["s1", "s2"], group="g", engine=engine).groups) == {"000", "001", "unknown"}


def test_files_that_differ_in_types_are_one_log(engine, tmp_path):
    log = make()
    log[:200].with_columns(pl.col("s1").cast(pl.Float32), y=pl.col("y") == 1).write_parquet(tmp_path / "a.parquet")
    log[200:400].with_columns(pl.col("q").cast(pl.Int32)).write_parquet(tmp_path / "b.parquet")
    log[400:].with_columns(pl.col("q").cast(pl.String)).write_parquet(tmp_path / "c.parquet")
    if engine == "polars":
        log.head(0).with_columns(s1=pl.lit(None)).write_parquet(tmp_path / "d.parquet")  # no rows, so no types
    found = collect(tmp_path, ["s1", "s2"], label="y", group="q", engine=engine)
    assert found.rows == 600
    assert found.cells.label.sum() == log["y"].sum()
    assert len(found.groups) == 60


def test_folders_below_the_source_are_columns_and_those_above_are_not(engine, tmp_path):
    log = make()
    for day in ("007", "008"):
        folder = tmp_path / "run=5" / "logs" / f"day={day}"
        folder.mkdir(parents=True)
        log.write_parquet(folder / "part.parquet")
    source = tmp_path / "run=5" / "logs"
    assert set(collect(source, ["s1", "s2"], group="day", engine=engine).groups) == {"007", "008"}
    with pytest.raises(UncurseError, match="has no column 'run'"):
        collect(source, ["s1", "s2"], group="run", engine=engine)


def test_a_folder_is_no_column_that_the_file_has(engine, tmp_path):
    (tmp_path / "q=7").mkdir()
    make().write_parquet(tmp_path / "q=7" / "log.parquet")
    assert len(collect(tmp_path, ["s1", "s2"], group="q", engine=engine).groups) == 60


def test_apply_adds_one_column_whatever_the_folders_are_called(engine, tmp_path):
    log = make()
    (tmp_path / "in" / "q=7").mkdir(parents=True)
    log.write_parquet(tmp_path / "in" / "q=7" / "log.parquet")
    apply_to_files(Affine(0.5, 0.0), tmp_path / "in", tmp_path / "out", score="s1", engine=engine)
    (written,) = find_files([tmp_path / "out"])
    assert pl.read_parquet(written, hive_partitioning=False).drop("prediction").equals(log)


def test_a_map_by_the_folders_of_a_log(engine, tmp_path):
    log = make()
    for day in ("007", "008"):
        (tmp_path / "in" / f"day={day}").mkdir(parents=True)
        log.write_parquet(tmp_path / "in" / f"day={day}" / "part.parquet")
    vad = VAD().fit(collect(tmp_path / "in", ["s1", "s2"], group="day"))
    vad.map_.maps["007"] = Affine(0.25, 0.5)
    apply_to_files(vad.map_, tmp_path / "in", tmp_path / "out", score="s1", group="day", engine=engine)
    out = pl.read_parquet(tmp_path / "out" / "day=007" / "part.parquet", hive_partitioning=False)
    np.testing.assert_allclose(out["prediction"], logistic(0.25 * log["s1"].to_numpy() + 0.5), rtol=1e-12)
    assert out.columns == [*log.columns, "prediction"]


def test_patterns_in_file_names_are_names(engine, tmp_path):
    log = make()
    log.write_parquet(tmp_path / "[1].parquet")
    log[:10].write_parquet(tmp_path / "it's {x}*.parquet")
    assert collect(tmp_path / "[1].parquet", ["s1", "s2"], engine=engine).rows == 600
    assert collect(tmp_path / "it's {x}*.parquet", ["s1", "s2"], engine=engine).rows == 10


def test_every_file_of_a_folder_is_read(tmp_path):
    log = make()
    (tmp_path / "logs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    log.write_parquet(tmp_path / "logs" / "a.parquet")
    log.write_parquet(tmp_path / "logs" / "B.PARQUET")
    log.write_parquet(tmp_path / "elsewhere" / "c.parquet")
    (tmp_path / "logs" / "sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "up").symlink_to(tmp_path / "logs")  # round and round
    assert collect(tmp_path / "logs", ["s1", "s2"]).rows == 1_800


def test_names_that_are_no_text(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff.parquet"
    make().write_parquet(tmp_path / "a.parquet")
    os.rename(tmp_path / "a.parquet", path)
    with pytest.raises(UncurseError, match="is not UTF-8; rename the file"):
        collect(tmp_path, ["s1", "s2"])


def test_keys_of_a_path_are_those_below_its_source(tmp_path):
    (tmp_path / "a=1" / "b=2=3").mkdir(parents=True)
    make().write_parquet(tmp_path / "a=1" / "b=2=3" / "x.parquet")
    (file,) = locate([tmp_path])
    assert file.folder_values == {"a": "1", "b": "2=3"}
    (file,) = locate([str(tmp_path / "a=1" / "*" / "*.parquet")])
    assert file.folder_values == {"b": "2=3"}


def test_two_files_may_not_become_one(tmp_path):
    log = make()
    (tmp_path / "in").mkdir()
    log.write_csv(tmp_path / "in" / "a.csv")
    log.lazy().sink_csv(tmp_path / "in" / "a.csv.gz", compression="gzip")
    assert len(apply_to_files(Affine(0.5, 0.0), tmp_path / "in", tmp_path / "out", score="s1")) == 2
    assert sorted(os.listdir(tmp_path / "out")) == ["a.csv", "a.csv.gz"]
    assert len(pl.read_csv(tmp_path / "out" / "a.csv.gz")) == 600


@pytest.mark.parametrize(("mean", "sd", "shift"), [(30, 4, -32), (-20, 1.5, 18)])
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_logits_beyond_the_grid_are_still_told_apart(mean, sd, shift, engine):
    rng = np.random.default_rng(0)
    l = rng.normal(mean, sd, 200_000)
    y = (rng.random(200_000) < logistic(l + shift)).astype(int)
    log = pl.DataFrame({"s": l, "y": y})
    source = log if engine == "polars" else pytest.importorskip("duckdb").connect().from_arrow(log.to_arrow())
    score_map = Affine(1.0, float(shift))
    found = evaluate_log(collect(source, "s", label="y"), score_map, [0.05, 0.3])
    for ours, exact in zip(found.rows, evaluate(y, score_map(l), [0.05, 0.3]).rows, strict=True):
        assert abs(ours.calibration_error - exact.calibration_error) < 0.005
        assert abs(ours.observed / exact.observed - 1) < 0.02


@pytest.mark.usefixtures("many_rows_are_few")
@pytest.mark.parametrize("engine", ["duckdb", pytest.param("spark", marks=pytest.mark.spark)])
def test_the_error_of_lambda_from_sums_holds_for_coarse_scores(engine, opened):
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 2, 30_000)
    scores = (truth[:, None] + rng.normal(0, 0.5, (30_000, 2))).round()
    source, options = opened(engine, pl.DataFrame({"s1": scores[:, 0], "s2": scores[:, 1]}))
    error = VAD().fit(collect(source, ["s1", "s2"], **options)).standard_error_
    assert 0.4 < error / VAD().fit(scores).standard_error_ < 2.5


def test_merging_changes_neither_side_and_counts_every_row():
    a, b, c = (collect(make(seed=i).with_columns(g=pl.lit(f"{min(i, 1)}")), ["s1"], group="g") for i in range(3))
    merged = a.merge(b).merge(c)
    assert merged.rows == merged.cells.rows == 1_800
    assert {name: part.rows for name, part in merged.groups.items()} == {"0": 600, "1": 1_200}
    assert [part.rows for part in (a, b, c)] == [600] * 3
    assert b.groups["1"].rows == b.groups["1"].cells.rows == 600
    assert isinstance(merged, Evidence)


def test_scores_of_one_group_may_look_like_probabilities():
    log = make().with_columns(g=pl.lit("a"))
    odd = pl.DataFrame({"s1": np.linspace(0, 1, 200), "s2": np.linspace(0, 0.9, 200), "g": ["b"] * 200})
    collect(pl.concat([log.select("s1", "s2", "g"), odd]), ["s1", "s2"], group="g")  # no warning: they are errors here
    with pytest.warns(UserWarning, match="every value of s1 lies in"):
        collect(odd, ["s1", "s2"])


def test_a_column_that_is_called_as_ours_is(tmp_path):
    log = make().rename({"y": "uncurse_rank"})
    expected = collect(log, "s1", label="uncurse_rank", top_k=TopK("q"))
    duckdb, ibis = pytest.importorskip("duckdb"), pytest.importorskip("ibis")
    connection = duckdb.connect()
    connection.execute("create table log as select 42 as a")
    for source in (log.lazy(), connection.from_arrow(log.to_arrow()), ibis.memtable(log.to_arrow())):
        found = collect(source, "s1", label="uncurse_rank", top_k=TopK("q"))
        assert found.rows == 60
        assert found.cells.label.sum() == expected.cells.label.sum()


def test_python_objects_are_told_from_nulls():
    import pandas as pd

    frame = pd.DataFrame({"s1": pd.Series([object(), object()], dtype=object), "s2": [0.0, 1.0]})
    with pytest.raises(UncurseError, match="column 's1' holds Python objects, not numbers"):
        collect(frame, ["s1", "s2"])


def test_a_name_that_is_a_pattern():
    with pytest.raises(UncurseError, match="would be read as a pattern; rename it"):
        collect(make().rename({"s2": "^s.*$"}), ["s1", "^s.*$"])


@pytest.mark.spark
def test_a_dot_in_a_name_is_refused_on_spark(spark):
    frame = spark.createDataFrame(make().rename({"s1": "a.b"}).to_arrow())
    for call in (
        lambda: collect(frame, ["a.b", "s2"]),
        lambda: with_prediction(frame, Affine(0.5, 0.0), score="a.b", column="p"),
    ):
        with pytest.raises(UncurseError, match=r"Spark cannot be asked for column 'a\.b' by its name"):
            call()


def test_what_is_no_frame_and_no_path():
    with pytest.raises(UncurseError, match="int is neither a path nor a frame that narwhals knows"):
        collect(3, ["s1"])
    with pytest.raises(UncurseError, match="there is no file to read"):
        collect([], ["s1"])


def test_evidence_of_values_is_not_evaluated():
    found = collect(make(), ["s1", "s2"], label="y", scale="value", link="identity")
    with pytest.raises(UncurseError, match="has scale='value', which does not predict a label"):
        evaluate_log(found)


@pytest.mark.parametrize("weight", [1e200, 1e-200])
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_weights_whose_squares_are_no_numbers(weight, engine):
    log = make(140_000).with_columns(w=pl.lit(weight))
    source = log if engine == "polars" else pytest.importorskip("duckdb").connect().from_arrow(log.to_arrow())
    with pytest.raises(UncurseError, match="rescale the weights"):
        collect(source, "s1", weight="w")
