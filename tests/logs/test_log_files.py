"""Files in every shape that logs come in, and files that are refused because they would be misread."""

import gzip
import os

import numpy as np
import polars as pl
import pytest

from uncurse import Affine, UncurseError, collect
from uncurse.evidence import TopK
from uncurse.logs import apply_to_files
from uncurse.metrics import evaluate_log

HALF = Affine(0.5, 0.0)
SCORES = ["s1", "s2"]


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


# ---------------------------------------------------------------------------- finding


@pytest.mark.parametrize("kind", ["folder", "glob", "list", "csv", "deep glob", "link"])
def test_a_log_may_be_a_folder_a_glob_or_a_list_of_files(kind, tmp_path):
    folder = tmp_path / "logs" / "deep"
    folder.mkdir(parents=True)
    for i in range(2):
        log = make(seed=i)
        log.write_csv(folder / f"{i}.csv") if kind == "csv" else log.write_parquet(folder / ("0.pq", "1.PARQUET")[i])
    for name in (".hidden.parquet", "_hidden.csv", "_temporary"):  # what a killed writer leaves behind
        (folder / name).write_bytes(b"half")
    if kind == "link":
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "elsewhere" / "sub").symlink_to(folder)
    source = {
        "glob": f"{folder}/*.[pP]*",
        "deep glob": f"{tmp_path}/**/*.[pP]*",
        "list": sorted(folder.glob("[01].*")),
        "link": tmp_path / "elsewhere",
    }.get(kind, tmp_path)
    found = collect(source, SCORES)
    assert found.rows == 1_200
    expected = pl.concat([make(seed=0), make(seed=1)]).select(SCORES).mean().row(0)
    assert found.moments.mean == pytest.approx(expected)
    assert found.sources == tuple(map(str, source if kind == "list" else [source]))


def test_patterns_in_names_of_files_are_names(tmp_path):
    for name in ("[1].parquet", "it's {x}*.parquet"):
        make().write_parquet(tmp_path / name)
        assert collect(tmp_path / name, SCORES).rows == 600


def test_hidden_files_are_read_if_they_are_named(tmp_path):
    make().write_parquet(tmp_path / "_log.parquet")
    assert collect(tmp_path / "_log.parquet", SCORES).rows == 600
    assert collect(f"{tmp_path}/_lo?.parquet", SCORES).rows == 600
    with pytest.raises(UncurseError, match="there is no such file"):
        collect(f"{tmp_path}/*.parquet", SCORES)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("none.parquet", "cannot read none.parquet: there is no such file"),
        ("none-*.parquet", "cannot read none-"),
        ("empty", "cannot read empty.* no .parquet or .csv file in this folder"),
        ("notes.txt", "notes.txt is neither .parquet nor .csv"),
        (["log.parquet", "log.csv"], "log.csv are not of one kind"),
        (["log.parquet", "./log.parquet"], "is named twice"),
        (["log.parquet", "link.parquet"], "is named twice"),
        (["log.parquet", "*g.parquet"], "is named twice"),
        (["log.parquet", "copy.parquet"], "copy.parquet is a copy of log.parquet, so its rows would count twice"),
        ("copies", "is a copy of"),
        ("gone.parquet", "gone.parquet: it is a link to nothing"),
        ("links", "gone.parquet: it is a link to nothing"),
        ("links/*.parquet", "gone.parquet: it is a link to nothing"),
        ("zero.csv", "zero.csv: it is a link to nothing, or no regular file"),
        ("", "a path is empty"),
        (["log.parquet", ""], "a path is empty"),
        ("x" * 300, "there is no such file"),
    ],
)
def test_paths_that_name_no_log_are_refused(source, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make().write_parquet("log.parquet")
    make().write_csv("log.csv")
    os.symlink("log.parquet", "link.parquet")
    os.mkdir("empty")
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "log.parquet").read_bytes())
    os.mkdir("copies")
    for name in ("a.parquet", "b.parquet"):
        make().write_parquet(tmp_path / "copies" / name)
    os.mkdir("links")
    make().write_parquet("links/log.parquet")
    for name in ("gone.parquet", "links/gone.parquet"):
        os.symlink("nowhere.parquet", name)
    os.symlink("/dev/zero", "zero.csv")
    with pytest.raises(UncurseError, match=message):
        collect(source, SCORES)


def test_equal_files_without_rows_or_of_other_folders_are_no_copies(tmp_path):
    for name in ("a", "b"):
        folder = tmp_path / f"site={name}"
        folder.mkdir()
        make().write_parquet(folder / "log.parquet")
        make().head(0).write_parquet(folder / f"empty-{name}.parquet")
        make().head(0).write_parquet(folder / "empty.parquet")
    assert collect(tmp_path, SCORES).rows == 1_200


@pytest.mark.parametrize(
    ("metadata", "data", "name"),
    [
        ("_delta_log/00000.json", ".", "a Delta Lake table"),
        ("_delta_log/00000.json", "date=1", "a Delta Lake table"),
        ("metadata/00001-abc.metadata.json", "data", "an Iceberg table"),
        (".hoodie/hoodie.properties", "date=1", "a Hudi table"),
    ],
)
def test_tables_whose_files_may_hold_deleted_rows_are_refused(metadata, data, name, tmp_path):
    table = tmp_path / "table"
    for path in (table / metadata, table / data / "part.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
    (table / metadata).write_text("{}")
    make().write_parquet(table / data / "part.parquet")
    inside = [table / data / "part.parquet", f"{table}/**/*.parquet", *([] if data == "." else [table / data])]
    for source in (tmp_path, *inside):
        with pytest.raises(UncurseError, match=f"table is {name}"):
            collect(source, SCORES)
    with pytest.raises(UncurseError, match=f"table is {name}"):
        apply_to_files(HALF, table, tmp_path / "out", score="s1")


def test_the_current_rows_of_a_delta_table_are_read(tmp_path):
    deltalake = pytest.importorskip("deltalake", reason="pip install deltalake")
    log = make()
    log.write_delta(tmp_path / "table")
    make(seed=1).write_delta(tmp_path / "table", mode="append")
    deltalake.DeltaTable(str(tmp_path / "table")).delete("s1 > 0")
    kept = pl.concat([log, make(seed=1)]).filter(pl.col("s1") <= 0)
    found = collect(tmp_path / "table", SCORES)
    assert found.rows == len(kept)
    assert found.moments.mean == pytest.approx(kept.select(SCORES).mean().row(0))
    with pytest.raises(UncurseError, match="has no column 's9'"):
        collect(tmp_path / "table", "s9")


@pytest.mark.filterwarnings("ignore:Iceberg scan planning")  # by Polars, of a faster package
def test_the_current_rows_of_an_iceberg_table_are_read(tmp_path):
    catalog = pytest.importorskip("pyiceberg.catalog.sql", reason="pip install 'pyiceberg[sql-sqlite]'")
    made = catalog.SqlCatalog("test", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    made.create_namespace("logs")
    table = made.create_table("logs.pool", make().to_arrow().schema)
    for seed in range(2):
        table.append(make(seed=seed).to_arrow())
    table.delete("s1 > 0")
    kept = pl.concat([make(seed=0), make(seed=1)]).filter(pl.col("s1") <= 0)
    folder = table.location().removeprefix("file://")
    for file in sorted(os.listdir(f"{folder}/metadata"), reverse=True):  # as a copy may have it: the oldest one last
        os.utime(f"{folder}/metadata/{file}")
    assert collect(folder, SCORES).rows == len(kept)
    with pytest.raises(UncurseError, match="an Iceberg table, whose files may hold deleted rows"):
        collect(f"{folder}/data", SCORES)


@pytest.mark.parametrize(
    ("source", "package"), [("table", "deltalake"), ("s3://bucket/table", "deltalake"), ("ice", "pyiceberg")]
)
def test_a_table_whose_package_is_absent_names_it(source, package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("uncurse.logs.files.find_spec", lambda name: None)
    for folder in ("table/_delta_log", "ice/data", "ice/metadata"):
        os.makedirs(folder)
    (tmp_path / "ice" / "metadata" / "v1.metadata.json").write_text("{}")
    with pytest.raises(UncurseError, match=f"pip install {package}"):
        collect(source, SCORES)


def test_a_folder_named_metadata_is_no_table(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")  # without a folder named data
    make().write_parquet(tmp_path / "log.parquet")
    assert collect(tmp_path, SCORES).rows == 600


# ---------------------------------------------------------------------------- columns


def test_files_that_differ_in_types_and_other_columns_are_one_log(tmp_path):
    log = make()
    log[:200].with_columns(pl.col("s1").cast(pl.Float32), y=pl.col("y") == 1).write_parquet(tmp_path / "a.parquet")
    log[200:400].with_columns(pl.col("q").cast(pl.Int32), extra=1).write_parquet(tmp_path / "b.parquet")
    log[400:].with_columns(pl.col("q").cast(pl.String)).write_parquet(tmp_path / "c.parquet")
    log.head(0).with_columns(s1=pl.lit(None)).write_parquet(tmp_path / "d.parquet")  # no rows, so no types
    found = collect(tmp_path, SCORES, label="y", segment="q")
    assert (found.rows, len(found.segments)) == (600, 60)
    assert evaluate_log(found, None, [1.0]).rows[0].observed == log["y"].sum()
    assert collect(tmp_path, SCORES, top_k=TopK("q", 3)).rows == 180


def test_columns_of_csv_files_are_matched_by_name_and_segments_are_text(tmp_path):
    (tmp_path / "a.csv").write_text("s1,s2,g\n0.5,1,007\n-1,0,7\n")
    (tmp_path / "b.csv").write_text("s2,extra,s1,g\n 100 ,x,0.25,unknown\n100,y,-2,007\n")
    found = collect(tmp_path, SCORES, segment="g")
    np.testing.assert_allclose(found.moments.mean, [-0.5625, 50.25])
    assert {name: part.rows for name, part in found.segments.items()} == {"007": 2, "7": 1, "unknown": 1}


def test_folders_below_the_source_are_columns_unless_the_files_have_them(tmp_path):
    for day in ("007", "008"):
        folder = tmp_path / "run=5" / "logs" / f"day={day}" / "q=1=2"
        folder.mkdir(parents=True)
        make().write_parquet(folder / "part.parquet")
    source = tmp_path / "run=5" / "logs"
    assert set(collect(source, SCORES, segment="day").segments) == {"007", "008"}
    assert len(collect(source, SCORES, segment="q").segments) == 60
    assert set(collect(f"{source}/*/q*/*.parquet", SCORES, segment="day").segments) == {"007", "008"}
    for name in ("run", "part"):
        with pytest.raises(UncurseError, match=f"has no column '{name}'"):
            collect(source, SCORES, segment=name)
    with pytest.raises(UncurseError, match="'day' holds String, not numbers"):
        collect(source, SCORES, weight="day")


def test_the_default_partition_of_hive_is_a_missing_value(tmp_path):
    for site in ("a", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "in" / f"site={site}").mkdir(parents=True)
        make().write_parquet(tmp_path / "in" / f"site={site}" / "log.parquet")
    with pytest.raises(UncurseError, match=r"log\.parquet, column 'site', row 0 is missing"):
        collect(tmp_path / "in", SCORES, segment="site")
    assert collect(tmp_path / "in", SCORES).rows == 1_200


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_addresses_are_passed_to_polars(kind, tmp_path):
    log = make().with_columns(g=pl.when(pl.int_range(pl.len()) < 90).then(pl.lit("007")).otherwise(pl.lit("7")))
    log.write_csv(tmp_path / "a.csv") if kind == "csv" else log.write_parquet(tmp_path / "a.parquet")
    found = collect((tmp_path / f"a.{kind}").as_uri(), SCORES, segment="g")
    assert {name: part.rows for name, part in found.segments.items()} == {"007": 90, "7": 510}
    with pytest.raises(UncurseError, match="has no column 's9'"):
        collect((tmp_path / f"a.{kind}").as_uri(), ["s1", "s9"])


# ---------------------------------------------------------------------------- CSV


def test_a_csv_may_say_true_and_false(tmp_path):
    lines = [f"{i / 7},{'True' if i % 2 else ' false'}" for i in range(50)]
    (tmp_path / "log.csv").write_text("s1,click\n" + "\n".join(lines))
    assert evaluate_log(collect(tmp_path, "s1", label="click"), None, [1.0]).rows[0].observed == 25


@pytest.mark.parametrize("row", ["b,7,3,4", '"x,y",7,3,4', '"two\nlines",7,3,4', '6" pipe,7,3,4', "b,7", '"two\nl",7'])
@pytest.mark.parametrize("packed", [False, True])
def test_a_row_with_more_or_fewer_fields_than_the_header_is_refused(packed, row, tmp_path):
    text = "\n".join(["id,s1,s2", *["a,1,2"] * 30, row, *["a,1,2"] * 30, ""])
    path = tmp_path / ("log.csv.gz" if packed else "log.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(UncurseError, match=f"{path.name}"):
        collect(path, SCORES)
    with pytest.raises(UncurseError, match=f"{path.name}"):
        apply_to_files(HALF, path, tmp_path / "out.csv", score="s2")
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s1,s2,s1\n1,2,3\n", "log.csv has two columns named 's1'"),
        ("", "log.csv is not a readable csv file"),
        ("\n\n", "log.csv"),
        ("s1,s2\n1,2\n3,oops\n", "log.csv, column 's2', line 3 is 'oops'; that is text"),
        ("s1,s2\n1,2\n\n3,4\n", "log.csv, column 's1', line 3 is missing"),
        ("s1,s2\n1,\n", "log.csv, column 's2', line 2 is missing"),
    ],
)
def test_a_csv_that_would_be_misread_is_refused(text, message, tmp_path):
    (tmp_path / "log.csv").write_text(text)
    with pytest.raises(UncurseError, match=message):
        collect(tmp_path / "log.csv", SCORES)


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:12] + b"\xff" * 9 + b[21:], lambda b: b"no" + b[2:]])
def test_a_damaged_compressed_csv_is_refused(damage, tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(damage(gzip.compress(b"id,s1,s2\n" + b"a,1,2\n" * 99)))
    with pytest.raises(UncurseError, match=r"log\.csv\.gz"):
        collect(tmp_path, SCORES)


# ---------------------------------------------------------------------------- one bad file among many


def _truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def _damage(path):
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56  # the head of the first page
    path.write_bytes(bytes(content))


def _change(**columns):
    return lambda path: pl.read_parquet(path).with_columns(**columns).write_parquet(path)


ROW = pl.int_range(pl.len())
FAULTS = {
    "truncated": (_truncate, "is not a readable parquet file"),
    "empty": (lambda path: path.write_bytes(b""), "is not a readable parquet file"),
    "damaged": (_damage, "cannot be read"),
    "no column": (lambda path: pl.read_parquet(path).drop("s2").write_parquet(path), "has no column 's2'"),
    "text": (_change(s2=pl.col("s2").cast(pl.String)), "column 's2' holds String, not numbers"),
    "float segments": (_change(q=pl.col("q").cast(pl.Float64)), "column 'q' holds Float64"),
    "all null": (_change(s1=pl.lit(None)), "column 's1', row 0 is missing"),
    "nan": (_change(s2=pl.when(ROW < 500).then("s2").otherwise(float("nan"))), "column 's2', row 500 is"),
    "label": (_change(y=pl.when(ROW == 9).then(2).otherwise("y")), "column 'y', row 9 is 2; labels must be 0 or 1"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_one_file_of_many_is_named(fault, tmp_path):
    spoil, message = FAULTS[fault]
    for i in range(12):
        make(seed=i).write_parquet(tmp_path / f"{i:02d}.parquet", compression="uncompressed")
    spoil(tmp_path / "07.parquet")
    with pytest.raises(UncurseError, match=f"07.parquet.*{message}") as raised:
        collect(tmp_path, SCORES, label="y", segment="q")
    assert "\n" not in str(raised.value)
