"""Files that are refused because they would be misread, and files that a killed or repeated `apply` leaves."""

import gzip
import os
import signal
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from uncurse import VAD, Affine, Auto, Grouped, Tower, UncurseError, collect
from uncurse.logs import apply_to_files
from uncurse.logs.csv_files import check_csv
from uncurse.logs.files import find_files

ENGINES = ["polars", "duckdb", pytest.param("spark", marks=pytest.mark.spark)]
HALF = Affine(0.5, 0.0)


@pytest.fixture(params=ENGINES)
def engine(request):
    if request.param == "spark":
        request.getfixturevalue("spark")
    return request.param


def make(rows=200, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1, 1, rows)
    return pl.DataFrame({"s1": truth + rng.normal(0, 0.3, rows), "s2": truth + rng.normal(0, 0.3, rows)})


# ---------------------------------------------------------------------------- CSV


@pytest.mark.parametrize(
    ("row", "fields"),
    [("b,7,3,4", 4), ("b,7", 2), ('"x,y",7,3,4', 4), ('"two\nlines",7', 2), ('6" pipe,7,3,4', 4), ("b,7,3,", 4)],
)
def test_a_row_with_more_or_fewer_fields_than_the_header_is_refused(engine, row, fields, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("\n".join(["id,s1,s2", *["a,1,2"] * 30, row, *["a,1,2"] * 30, ""]))
    line = 32 + row.count("\n")
    message = rf"log\.csv, line {line} has {fields} fields and the header has 3; repair it"
    with pytest.raises(UncurseError, match=message):
        collect(path, ["s1", "s2"], engine=engine)
    with pytest.raises(UncurseError, match=message):
        apply_to_files(HALF, path, tmp_path / "out.csv", score="s1", engine=engine)
    assert os.listdir(tmp_path) == ["log.csv"]


def test_a_ragged_row_of_a_compressed_file_is_refused(tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(b"id,s1,s2\na,1,2\nb,7,3,4\n"))
    with pytest.raises(UncurseError, match=r"log\.csv\.gz, line 3 has 4 fields and the header has 3"):
        collect(tmp_path, ["s1", "s2"])


def test_commas_quotes_and_lines_inside_quoted_fields_are_text(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text('id,"s,1"\n"a, b",1\n"say ""x, y""",2\n"two\nlines, no row",3\n6" and 7" pipes,4\n"\r\n",5\r\n')
    assert check_csv(str(path)) == ["id", "s,1"]
    assert collect(path, "s,1").rows == 5


def test_two_columns_of_one_name_are_refused(engine, tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("s1,s2,s1\n1,2,3\n2,1,0\n")
    with pytest.raises(UncurseError, match=r"log\.csv has two columns named 's1'; rename one of them"):
        collect(path, ["s1", "s2"], engine=engine)
    with pytest.raises(UncurseError, match=r"log\.csv has two columns named 's1'; rename one of them"):
        apply_to_files(HALF, path, tmp_path / "out.csv", score="s2", engine=engine)


def test_a_csv_without_a_header_is_refused(tmp_path):
    (tmp_path / "log.csv").write_text("\n\n")
    with pytest.raises(UncurseError, match=r"log\.csv has no header line; write it again with the names"):
        collect(tmp_path, ["s1", "s2"])


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:12] + b"\xff" * 9 + b[21:], lambda b: b"no" + b[2:]])
def test_a_damaged_compressed_csv_is_refused(damage, tmp_path):
    content = gzip.compress(b"id,s1,s2\n" + b"a,1,2\n" * 99)
    (tmp_path / "log.csv.gz").write_bytes(damage(content))
    with pytest.raises(UncurseError, match=r"log\.csv\.gz"):
        collect(tmp_path, ["s1", "s2"])


@pytest.mark.parametrize("name", ["uncurse score as a number", "uncurse_score", "UNCURSE_SCORE_"])
def test_apply_keeps_a_column_whatever_its_name(name, tmp_path):
    (tmp_path / "log.csv").write_text(f"s1,{name}\n0.5,kept\n")
    apply_to_files(HALF, tmp_path / "log.csv", tmp_path / "out.csv", score="s1")
    out = pl.read_csv(tmp_path / "out.csv")
    assert out.columns == ["s1", name, "prediction"]
    assert out[name].to_list() == ["kept"]


# ---------------------------------------------------------------------------- groups


@pytest.mark.parametrize("kind", ["csv", "parquet", "frame", "pandas"])
def test_a_group_that_ends_in_a_null_character_is_refused(kind, tmp_path):
    log = make(4).with_columns(g=pl.Series(["a", "a\0", "a", "a\0"]))
    source = log
    if kind == "pandas":
        source = log.to_pandas()
    elif kind != "frame":
        source = tmp_path / f"log.{kind}"
        log.write_csv(source) if kind == "csv" else log.write_parquet(source)
    with pytest.raises(UncurseError, match=r"'a\\x00', which ends in a null character; rename the group"):
        collect(source, ["s1", "s2"], group="g")
    with pytest.raises(UncurseError, match=r"the group 'a\\x00' ends in a null character; rename it"):
        Grouped(HALF, {"a\0": HALF})
    with pytest.raises(UncurseError, match="ends in a null character"):
        VAD().fit(log.select("s1", "s2").to_numpy(), groups=log["g"].to_list())


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_groups_in_files_and_folders_stay_text_as_written(engine, kind, tmp_path):
    for day, site in (("007", "a%20b"), ("7", "c%2Fd%3De")):
        folder = tmp_path / "in" / f"day={day}" / f"site={site}"
        folder.mkdir(parents=True)
        log = make().with_columns(code=pl.lit("0" + day))
        log.write_csv(folder / "log.csv") if kind == "csv" else log.write_parquet(folder / "log.parquet")
    expected = {"day": {"007", "7"}, "site": {"a b", "c/d=e"}, "code": {"0007", "07"}}
    for group, names in expected.items():
        assert set(collect(tmp_path / "in", ["s1", "s2"], group=group, engine=engine).groups) == names
        grouped = Grouped(HALF, {name: Affine(1.0, float(i + 1)) for i, name in enumerate(sorted(names))})
        out = tmp_path / group
        apply_to_files(grouped, tmp_path / "in", out, score="s1", group=group, engine=engine)
        file = f"day=007/site=a%20b/log.{kind}"
        table = pl.read_csv(out / file) if kind == "csv" else pl.read_parquet(out / file, hive_partitioning=False)
        name = {"day": "007", "site": "a b", "code": "0007"}[group]
        np.testing.assert_allclose(table["prediction"], grouped.maps[name](table["s1"].to_numpy()), rtol=1e-12)


def test_a_csv_written_as_parquet_keeps_its_groups(tmp_path):
    (tmp_path / "log.csv").write_text("s1,g\n0.5,007\n0.5,7\n")
    grouped = Grouped(HALF, {"007": Affine(1.0, 1.0), "7": Affine(1.0, 2.0)})
    apply_to_files(grouped, tmp_path / "log.csv", tmp_path / "out.parquet", score="s1", group="g")
    out = pl.read_parquet(tmp_path / "out.parquet")
    assert out["g"].to_list() == ["007", "7"]
    np.testing.assert_allclose(out["prediction"], grouped([0.5, 0.5], ["007", "7"]))


def test_the_default_partition_of_hive_is_a_missing_value(engine, tmp_path):
    for site in ("a", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "in" / f"site={site}").mkdir(parents=True)
        make().write_parquet(tmp_path / "in" / f"site={site}" / "log.parquet")
    message = (
        r"PARTITION__.log\.parquet: 'site' is missing, as its folder site=__HIVE_DEFAULT_PARTITION__ says; fill it"
    )
    with pytest.raises(UncurseError, match=message):
        collect(tmp_path / "in", ["s1", "s2"], group="site", engine=engine)
    with pytest.raises(UncurseError, match=message):
        apply_to_files(Grouped(HALF, {}), tmp_path / "in", tmp_path / "out", score="s1", group="site", engine=engine)
    assert collect(tmp_path / "in", ["s1", "s2"], engine=engine).rows == 400


def test_a_folder_is_no_column_of_numbers(tmp_path):
    for kind in ("csv", "parquet"):
        folder = tmp_path / kind / "w=2"
        folder.mkdir(parents=True)
        make().write_csv(folder / "log.csv") if kind == "csv" else make().write_parquet(folder / "log.parquet")
        with pytest.raises(UncurseError, match="column 'w' holds String, not numbers"):
            collect(tmp_path / kind, ["s1", "s2"], weight="w")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_groups_at_a_remote_address_stay_text_as_written(engine, kind, tmp_path):
    log = make().with_columns(g=pl.when(pl.int_range(pl.len()) < 90).then(pl.lit("007")).otherwise(pl.lit("7")))
    path = tmp_path / f"log.{kind}"
    log.write_csv(path) if kind == "csv" else log.write_parquet(path)
    found = collect(path.as_uri(), ["s1", "s2"], group="g", engine=engine)
    assert {name: part.rows for name, part in found.groups.items()} == {"007": 90, "7": 110}
    with pytest.raises(UncurseError, match=r"s9"):
        collect(path.as_uri(), ["s1", "s9"], engine=engine)


# ---------------------------------------------------------------------------- tables of other formats


@pytest.mark.parametrize(
    ("metadata", "data", "name"),
    [
        ("_delta_log/00000.json", ".", "a Delta Lake table"),
        ("_delta_log/00000.json", "date=1", "a Delta Lake table"),
        ("metadata/00001-abc.metadata.json", "data", "an Iceberg table"),
        (".hoodie/hoodie.properties", "date=1", "a Hudi table"),
    ],
)
def test_tables_with_metadata_of_their_own_are_refused(metadata, data, name, tmp_path):
    table = tmp_path / "table"
    for path in (table / metadata, table / data / "part.parquet"):
        path.parent.mkdir(parents=True, exist_ok=True)
    (table / metadata).write_text("{}")
    make().write_parquet(table / data / "part.parquet")
    message = rf"table is {name}, whose files may hold deleted rows; load it with Spark or DuckDB and pass the frame"
    for source in (table, tmp_path, table / data, f"{table}/**/*.parquet", table / data / "part.parquet"):
        with pytest.raises(UncurseError, match=message):
            collect(source, ["s1", "s2"])
    with pytest.raises(UncurseError, match=message):
        apply_to_files(HALF, table, tmp_path / "out", score="s1")


def test_a_folder_named_metadata_is_no_table(tmp_path):
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text("{}")  # without a folder named data
    make().write_parquet(tmp_path / "log.parquet")
    assert collect(tmp_path, ["s1", "s2"]).rows == 200


# ---------------------------------------------------------------------------- apply


def test_a_glob_gives_a_folder_however_many_files_it_matches(tmp_path):
    (tmp_path / "in" / "a").mkdir(parents=True)
    make().write_parquet(tmp_path / "in" / "a" / "x.parquet")
    source = str(tmp_path / "in" / "*" / "*.parquet")
    assert apply_to_files(HALF, source, tmp_path / "one", score="s1") == [str(tmp_path / "one" / "a" / "x.parquet")]
    with pytest.raises(UncurseError, match=r"is a folder or a glob, which may .* names one file; name a folder"):
        apply_to_files(HALF, source, tmp_path / "out.parquet", score="s1")
    (tmp_path / "in" / "b").mkdir()
    make().write_parquet(tmp_path / "in" / "b" / "x.parquet")
    written = apply_to_files(HALF, source, tmp_path / "two", score="s1")
    assert written == [str(tmp_path / "two" / name / "x.parquet") for name in "ab"]
    assert apply_to_files(HALF, tmp_path / "in" / "a", tmp_path / "folder", score="s1") == [
        str(tmp_path / "folder" / "x.parquet")
    ]


def test_a_file_whose_name_is_a_pattern_gives_a_file(tmp_path):
    make().write_parquet(tmp_path / "[1].parquet")
    assert apply_to_files(HALF, tmp_path / "[1].parquet", tmp_path / "out.parquet", score="s1") == [
        str(tmp_path / "out.parquet")
    ]


@pytest.mark.parametrize("many", [False, True])
def test_unfinished_output_is_hidden_from_globs_and_folders(engine, many, tmp_path):
    (tmp_path / "in").mkdir()
    for i in range(2):
        make(seed=i).write_parquet(tmp_path / "in" / f"{i}.parquet")
    seen = []

    def look(_):
        seen.append({str(path) for path in tmp_path.rglob("*.parquet") if "/." not in str(path)})
        assert find_files([tmp_path]) == find_files([tmp_path / "in"])
        assert find_files([f"{tmp_path}/**/*.parquet"]) == find_files([tmp_path / "in"])

    source, out = (tmp_path / "in", "out") if many else (tmp_path / "in" / "0.parquet", "out.parquet")
    apply_to_files(HALF, source, tmp_path / out, score="s1", engine=engine, progress=look)
    assert seen == [set(find_files([tmp_path / "in"]))] * (2 if many else 1)
    assert sorted(os.listdir(tmp_path)) == ["in", out]


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("many", [False, True])
def test_what_a_killed_apply_leaves_is_hidden_and_removed_by_the_next(engine, many, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for i in range(2):
        make(seed=i).write_parquet(folder / f"{i}.parquet")
    source, out = (folder, tmp_path / "out") if many else (folder / "0.parquet", folder / "out.parquet")
    code = (
        "import os, signal, sys\nfrom uncurse import Affine\nfrom uncurse.logs import apply_to_files\n"
        "apply_to_files(Affine(0.5, 0.0), sys.argv[1], sys.argv[2], score='s1', engine=sys.argv[3],"
        " progress=lambda _: os.kill(os.getpid(), signal.SIGKILL))"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(source), str(out), engine], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = [name for name in os.listdir(out.parent) if name.startswith(".")]
    assert left.startswith(".uncurse-")
    assert len(find_files([folder])) == len(find_files([f"{folder}/*"])) == 2
    apply_to_files(HALF, source, out, score="s1", engine=engine)
    assert not [name for name in os.listdir(out.parent) if name.startswith(".")]


def test_an_empty_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make().write_parquet("log.parquet")
    for source in ("", [""], ["log.parquet", ""]):
        with pytest.raises(UncurseError, match="a path is empty; pass a file, a glob or a folder"):
            collect(source, ["s1", "s2"])
    with pytest.raises(UncurseError, match="a path is empty; pass a file, a glob or a folder"):
        apply_to_files(HALF, "", "out", score="s1")
    with pytest.raises(UncurseError, match="the path of the output is empty; name a file or a folder"):
        apply_to_files(HALF, "log.parquet", "", score="s1")
    assert os.listdir(tmp_path) == ["log.parquet"]


def test_a_path_that_is_too_long_is_refused(engine, tmp_path):
    log, name = tmp_path / "log.parquet", "x" * 300
    make().write_parquet(log)
    with pytest.raises(UncurseError, match="there is no such file or folder"):
        collect(tmp_path / name, ["s1", "s2"], engine=engine)
    with pytest.raises(UncurseError, match="no file matches"):
        collect(f"{tmp_path}/{name}*", ["s1", "s2"], engine=engine)
    with pytest.raises(UncurseError, match="there is no such file or folder"):
        apply_to_files(HALF, tmp_path / name, tmp_path / "out", score="s1", engine=engine)
    (tmp_path / "logs").mkdir()
    make().write_parquet(tmp_path / "logs" / "0.parquet")
    for source, out in ((log, f"{name}.parquet"), (tmp_path / "logs", name)):
        with pytest.raises(UncurseError, match=r"cannot write .*: File name too long"):
            apply_to_files(HALF, source, tmp_path / out, score="s1", engine=engine)
    assert sorted(os.listdir(tmp_path)) == ["log.parquet", "logs"]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_map_of_logits_applied_to_probabilities_warns(engine, kind, tmp_path):
    path, out = tmp_path / f"log.{kind}", tmp_path / f"out.{kind}"

    def apply(low, high, rows, score_map=HALF):
        log = pl.DataFrame({"s": np.linspace(low, high, rows)})
        log.write_csv(path) if kind == "csv" else log.write_parquet(path)
        apply_to_files(score_map, path, out, score="s", engine=engine)

    with pytest.warns(UserWarning, match=r"every value of s lies in \[0, 1\]; .* apply the map to their logits"):
        apply(0.0, 1.0, 100)
    apply(0.0, 1.0, 99)  # warnings are errors here
    apply(0.0, 1.1, 100)
    apply(0.1, 0.9, 100, Affine(0.5, 0.0, scale="probability"))


def test_a_log_without_rows_is_applied_without_a_warning(tmp_path):
    make().head(0).write_parquet(tmp_path / "log.parquet")
    apply_to_files(HALF, tmp_path / "log.parquet", tmp_path / "out.parquet", score="s1")
    assert pl.read_parquet(tmp_path / "out.parquet").columns == ["s1", "s2", "prediction"]


# ---------------------------------------------------------------------------- tiny pools


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rows", [1, 2, 3])
@pytest.mark.parametrize("columns", [2, 3])
@pytest.mark.parametrize(
    "method",
    [
        VAD(),
        VAD(intervals=True),
        VAD(shape="free"),
        VAD(calibrator="platt"),
        VAD(calibrator="isotonic"),
        Tower(),
        Auto(),
    ],
)
def test_a_pool_of_few_rows_gives_a_map_or_an_error_of_ours(method, columns, rows, tmp_path):
    names = ["s1", "s2", "s3"][:columns]
    rng = np.random.default_rng(rows)
    log = pl.DataFrame({name: rng.normal(size=rows) for name in names}).with_columns(y=pl.int_range(rows) % 2)
    log.write_parquet(tmp_path / "log.parquet")
    pool = collect(tmp_path / "log.parquet", names, replica_counts=True)
    labelled = collect(tmp_path / "log.parquet", names, label="y", replica_counts=True)
    for given in ({"labelled": labelled}, {}):
        if not given and isinstance(method, Tower):
            continue  # it needs labels
        try:
            fitted = method.fit(pool, **given)
        except UncurseError:
            continue
        assert np.isfinite(fitted.map_([-1.0, 0.0, 1.0])).all()
        try:
            fitted.interval(0.5)
        except UncurseError:
            continue
