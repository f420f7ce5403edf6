"""A map runs anywhere: every export agrees with the map itself, in both tails, on every edge and beside it."""

import functools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import expit

from uncurse import Affine, Auto, Curve, Segmented, Steps, UncurseError, load
from uncurse.links import to_link
from uncurse.maps.compose import thin
from uncurse.maps.program import compile_map
from uncurse.maps.shapes import logit_knots
from uncurse.methods import DataRecord, FitRecord, Fitted
from uncurse.serving.export.code import to_c, to_python
from uncurse.serving.export.sql import DIALECTS, to_sql

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

RNG = np.random.default_rng(11)
KNOTS = logit_knots(128)
CURVE = Curve(KNOTS, 0.85 * KNOTS - 0.3 + 0.2 * np.tanh(KNOTS), 0.8, 0.9)
TIES = Steps(np.unique(RNG.normal(-2, 2, 60)), np.sort(RNG.normal(-2, 2, 61)), 1e-6, 0.1)
FALLING = Steps(np.linspace(-5, 3, 20), RNG.normal(-2, 1, 21), monotone=False)
BEND = Curve((-3.0, 0.0, 1.0), (-2.5, 0.2, 0.7), 0.4, 1.3)
ARC = Curve(CURVE.x[15::40], CURVE.y[15::40], 0.8, 0.9)
STAIRS = Steps(np.unique(RNG.normal(-2, 2, 3)), np.sort(RNG.normal(-2, 2, 4)), 1e-6, 0.1)
MAPS = {
    "affine": Affine(0.7, -0.3),
    "affine of probabilities": Affine(0.7, -0.3, scale="probability"),
    "flat": Affine(0.0, -0.3),
    "curve of probabilities": replace(ARC, scale="probability"),
    "steps with ties broken": STAIRS,
    "steps of probabilities": replace(FALLING, scale="probability"),
    "steps with ties broken of probabilities": replace(STAIRS, scale="probability"),
    "one step": Steps((), (0.3,)),
    "curve in log of probabilities": replace(BEND, link="log", scale="probability"),
    "steep curve": Curve((0.0, 1e-6), (-1e3, 1e3), 1e4, 1e4),
    "identity": replace(Steps((0.1, 0.4), (0.05, 0.2, 0.6), 1e-7), link="identity", scale="probability"),
    "log of logits": Affine(0.9, -0.1, "log"),
    "value": replace(BEND, link="identity", scale="value"),
    "value in log": replace(BEND, link="log", scale="value"),
}
EXPORTS = ["python", "c", "onnx", "torch", "duckdb", "bigquery", "snowflake"]
ENGINES = [*EXPORTS, pytest.param("spark", marks=pytest.mark.spark)]
BAD = {"logit": [np.nan, np.inf, -np.inf], "probability": [np.nan, np.inf, -1e-9, 1 + 1e-9]}


def scores_for(score_map, count=5_000):
    """Scores with both tails, and the edges with the floats on either side of them."""
    rng = np.random.default_rng(count)
    l = np.concatenate([rng.uniform(-50, 50, count // 2), rng.normal(-3, 2, count - count // 2)])
    special = [1e6, -1e6, 800.0, -800.0, -745.0, 37.0, 0.0]
    edges = np.array(compile_map(score_map).link_edges)
    edges = np.concatenate([edges, np.nextafter(edges, -np.inf), np.nextafter(edges, np.inf)])
    if score_map.scale == "probability":
        l, special, edges = 1 / (1 + np.exp(-l)), [0.0, 1.0, 1e-300, 1e-20, 1 - 1e-16, 0.5, 5e-324], []
    elif score_map.link == "log" and score_map.scale == "value":
        l, special, edges = np.exp(l / 2), [0.0, -1.0, 1e-300, 1e30], []
    elif score_map.link == "identity" and score_map.scale == "logit":
        edges = []
    return np.concatenate([l, special, edges])


@pytest.fixture
def apply(request, tmp_path):
    """An export of a map, run on scores; None where it refuses one."""

    def to_engine(engine, score_map, scores):
        if engine == "spark":
            return run_spark(request.getfixturevalue("spark"), score_map, scores, tmp_path)
        return RUNNERS[engine](score_map, np.asarray(scores, dtype=np.float64), tmp_path)

    def to_all(engine, pairs):
        if engine == "c":
            return run_all_c(
                [(score_map, np.asarray(scores, dtype=np.float64)) for score_map, scores in pairs], tmp_path
            )
        return [to_engine(engine, score_map, scores) for score_map, scores in pairs]

    to_engine.all = to_all
    return to_engine


def run_python(score_map, scores, folder):
    (folder / "made.py").write_text(to_python(score_map))
    (folder / "run.py").write_text(
        "import array, sys\n"
        "space = {}\n"
        f"exec(open({str(folder / 'made.py')!r}, encoding='utf-8').read(), space)\n"
        "scores = array.array('d', sys.stdin.buffer.read())\n"
        "def one(score):\n"
        "    try:\n"
        "        return space['predict'](score)\n"
        "    except ValueError:\n"
        "        return float('nan')\n"
        "array.array('d', map(one, scores)).tofile(sys.stdout.buffer)\n"
    )
    command = [sys.executable, "-I", "-S", folder / "run.py"]  # without a single package
    return np.frombuffer(subprocess.run(command, input=scores.tobytes(), capture_output=True, check=True).stdout)


C_MAIN = """
#include <stdio.h>
#define RUN(function) \\
    while (fread(&score, sizeof score, 1, stdin) == 1) { \\
        made = function(score); \\
        fwrite(&made, sizeof made, 1, stdout); \\
    }
int main(int argc, char **argv)
{
    double score, made;
"""
STRICT = ["-Wall", "-Wextra", "-Werror", "-pedantic"]


def run_c(score_map, scores, folder, compiler=("gcc", "-std=c99", "-O2"), name="main.c"):
    return run_all_c([(score_map, scores)], folder, compiler, name)[0]


def run_all_c(pairs, folder, compiler=("gcc", "-std=c99", "-O2"), name="main.c"):
    """Maps on their scores, in one program: compiling takes most of the time."""
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"there is no {compiler[0]} on this machine")
    made = [to_c(score_map, f"map{i}" if i else "uncurse_predict") for i, (score_map, _) in enumerate(pairs)]
    for i, text in enumerate(made):
        (folder / f"made{i}.h").write_text(text)
    (folder / name).write_text(
        "".join(f'#include "made{i}.h"\n' for i in range(len(made)))
        + C_MAIN
        + "".join(f"    if (argv[1][0] == '{chr(ord('a') + i)}') RUN(map{i})\n" for i in range(1, len(made)))
        + "    if (argv[1][0] == 'a') RUN(uncurse_predict)\n    return argc - 2;\n}\n"
    )
    subprocess.run([*compiler, *STRICT, name, "-o", "made", "-lm"], cwd=folder, check=True)
    commands = [[folder / "made", chr(ord("a") + i)] for i in range(len(made))]
    return [
        np.frombuffer(subprocess.run(command, input=scores.tobytes(), capture_output=True, check=True).stdout)
        for command, (_, scores) in zip(commands, pairs, strict=True)
    ]


def run_onnx(score_map, scores, folder):
    onnx = pytest.importorskip("onnx")
    from uncurse.serving.export.onnx import to_onnx

    model = to_onnx(score_map)
    onnx.checker.check_model(model, full_check=True)
    return session(model).run(None, {"score": scores})[0]


def session(model):
    onnxruntime = pytest.importorskip("onnxruntime")
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def run_torch(score_map, scores, folder):
    torch = pytest.importorskip("torch")
    from uncurse.serving.export.torch import MapModule

    return MapModule(score_map)(torch.from_numpy(scores)).numpy()


def run_duckdb(score_map, scores, folder):
    return query(to_sql(score_map, 'the "score"'), {'the "score"': scores})


def query(expression, columns):
    duckdb = pytest.importorskip("duckdb")
    relation = duckdb.connect().from_arrow(pa.table(columns))
    made = relation.project(f"{expression} as p").to_arrow_table()["p"]
    assert made.type == pa.float64()
    return made.to_numpy(zero_copy_only=False)


def through_sqlglot(dialect):
    """Nobody here has these warehouses: the expression must parse as theirs, and is run in DuckDB's words."""

    def run(score_map, scores, folder):
        sqlglot = pytest.importorskip("sqlglot")
        text = to_sql(score_map, "s c", dialect=dialect)
        parsed = sqlglot.parse_one(text, read=dialect)
        assert isinstance(parsed, sqlglot.exp.Case)
        assert {column.name for column in parsed.find_all(sqlglot.exp.Column)} == {"s c"}
        numbers = re.findall(r"(?<![\w.])\d[\d.]*(?:e[+-]?\d+)?", text)
        assert all("e" in number for number in numbers)  # none is a decimal
        return query(parsed.sql("duckdb"), {"s c": scores})

    return run


def run_spark(spark, score_map, scores, folder):
    pq.write_table(pa.table({"the `score`": np.asarray(scores)}), folder / "scores.parquet")
    frame = spark.read.parquet((folder / "scores.parquet").as_uri())
    made = frame.selectExpr(to_sql(score_map, "the `score`", dialect="spark") + " as p").toArrow()["p"]
    assert made.type == pa.float64()
    return made.to_numpy()


RUNNERS = {
    "python": run_python,
    "c": run_c,
    "onnx": run_onnx,
    "torch": run_torch,
    "duckdb": run_duckdb,
    "bigquery": through_sqlglot("bigquery"),
    "snowflake": through_sqlglot("snowflake"),
}


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("engine", ENGINES)
def test_scores_between_all_knots_of_a_curve_agree(engine, apply, tmp_path):
    # sqlglot takes seconds to translate a long curve, whose text is the same in all dialects but for names.
    curve = Curve(CURVE.x[::16], CURVE.y[::16], 0.8, 0.9) if engine in ("bigquery", "snowflake") else CURVE
    curve.save(tmp_path / "map.json")
    scores = scores_for(curve, 50_000)
    expected = load(tmp_path / "map.json")(scores)
    made = apply(engine, curve, scores)
    assert len(made) == len(expected) > 50_000
    assert len(np.unique(np.searchsorted(curve.x, scores))) == len(curve.x) + 1
    np.testing.assert_allclose(made, expected, rtol=1e-9)


@pytest.mark.usefixtures("one_torch_thread")
@pytest.mark.parametrize("engine", ENGINES)
def test_every_map_agrees_on_every_scale(engine, apply):
    pairs = [(score_map, scores_for(score_map)) for score_map in MAPS.values()]
    for name, (score_map, scores), made in zip(MAPS, pairs, apply.all(engine, pairs), strict=True):
        expected = score_map(scores)
        atol = 1e-12 if score_map.scale == "value" else 0.0  # values may be as near 0 as they like
        np.testing.assert_allclose(made, expected, rtol=1e-9, atol=atol, err_msg=name)
        if score_map.scale != "value":
            assert ((made > 0) & (made < 1)).all(), name


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_no_score_is_told(engine, apply):
    maps = (MAPS["affine"], FALLING, MAPS["affine of probabilities"], MAPS["steps of probabilities"])
    answers = apply.all(engine, [(score_map, [*BAD[score_map.scale], 0.5]) for score_map in maps])
    for score_map, made in zip(maps, (answer.astype(float) for answer in answers), strict=True):
        assert np.isnan(made[:-1]).all()
        assert made[-1] == pytest.approx(score_map(0.5), rel=1e-9)


# ---------------------------------------------------------------------------- segments

GROUPED = Segmented(
    BEND,
    {
        "news": Affine(0.5, 0.1),
        "it's": Steps((-1.0, 0.5), (-3.0, -1.0, 2.0), 1e-6, 0.1),
        "back\\slash": Affine(0.9, 0.2),
        'a "b" `c`': FALLING,
        "ü": Affine(0.9, 0.01, "identity"),
        "": Affine(0.1, 0),
        "7": Affine(0.2, 0.3),
    },
)
NAMES = np.array([*GROUPED.maps, "unseen"])


def test_a_python_module_takes_the_segment():
    space = {}
    exec(to_python(GROUPED, name="corrected"), space)
    scores = RNG.normal(-2, 3, 500)
    segments = RNG.choice(NAMES, 500)
    made = [space["corrected"](score, segment) for score, segment in zip(scores.tolist(), segments, strict=True)]
    np.testing.assert_allclose(made, GROUPED(scores, segments), rtol=1e-9)
    assert space["corrected"](0.5) == space["corrected"](0.5, None) == pytest.approx(BEND(0.5))
    assert space["corrected"](0.5, 7) == space["corrected"](0.5, 7.0) == pytest.approx(GROUPED.maps["7"](0.5))
    with pytest.raises(ValueError, match="score is nan; a score is a finite number"):
        space["corrected"](float("nan"), "news")


@pytest.mark.parametrize("dialect", ["duckdb", "bigquery", "snowflake"])
def test_in_sql_the_segment_is_looked_up_as_text(dialect):
    sqlglot = pytest.importorskip("sqlglot")
    scores, segments = RNG.normal(-2, 3, 500), RNG.choice(NAMES, 500)
    expression = to_sql(GROUPED, "s", dialect=dialect, segment="g h")
    if dialect != "duckdb":
        expression = sqlglot.parse_one(expression, read=dialect).sql("duckdb")
    table = {"s": scores, "g h": segments.astype(object)}
    np.testing.assert_allclose(query(expression, table), GROUPED(scores, segments), rtol=1e-9)
    table["g h"] = np.full(500, 7)
    np.testing.assert_allclose(query(expression, table), GROUPED.maps["7"](scores), rtol=1e-9)
    table["g h"] = pa.nulls(500, pa.string())
    np.testing.assert_allclose(query(expression, table), BEND(scores), rtol=1e-9)
    with pytest.raises(UncurseError, match="this map has a map for each segment; pass segment=, their column"):
        to_sql(GROUPED, "s", dialect=dialect)


@pytest.mark.spark
def test_spark_reads_the_names_of_segments_as_they_are(spark):
    names = [*NAMES, "line\nend", "tab\there"]
    segmented = Segmented(BEND, {**GROUPED.maps, "line\nend": Affine(1.0, 1.0), "tab\there": Affine(1.0, 2.0)})
    scores, segments = RNG.normal(-2, 3, 500), RNG.choice(names, 500)
    frame = spark.createDataFrame(pa.table({"s": scores, "g": segments.astype(object)}))
    made = frame.selectExpr(to_sql(segmented, "s", dialect="spark", segment="g") + " as p").toArrow()["p"].to_numpy()
    np.testing.assert_allclose(made, segmented(scores, segments), rtol=1e-9)


@pytest.mark.parametrize("engine", ["c", "onnx", "torch"])
def test_elsewhere_segments_are_refused_with_the_remedy(engine, apply):
    with pytest.raises(UncurseError, match="a map for each segment, and this form has one; serve it as Python or SQL"):
        apply(engine, GROUPED, [0.0])


# ---------------------------------------------------------------------------- SQL


def test_sql_takes_any_column_of_numbers_and_leaves_null_alone():
    for kind in (pa.float32(), pa.int32(), pa.decimal128(21, 2)):
        column = pa.array([1, -2, None]).cast(kind)
        first, second, third = query(to_sql(CURVE, "s"), {"s": column})
        assert first == pytest.approx(CURVE(1.0), rel=1e-9)
        assert second == pytest.approx(CURVE(-2.0), rel=1e-9)
        assert np.isnan(third)


def test_sql_of_a_curve_is_short_and_compares_only_the_score():
    for dialect in DIALECTS:
        for scale, most in (("logit", 8_000), ("probability", 12_000)):
            short = thin(replace(CURVE, scale=scale))
            text = to_sql(short, dialect=dialect)
            assert len(text) < most * (1.2 if dialect == "snowflake" else 1)
            assert re.findall(r"WHEN (?!CAST|.score.<)", text) == []
            assert text.count("THEN") == len(short.x) + 1


def test_names_are_quoted_and_escaped():
    assert 'CAST("a""b\\c" AS DOUBLE)' in to_sql(CURVE, 'a"b\\c')
    assert 'CAST("a""b" AS DOUBLE)' in to_sql(CURVE, 'a"b', dialect="snowflake")
    assert "CAST(`a``b` AS DOUBLE)" in to_sql(CURVE, "a`b", dialect="spark")
    assert r"CAST(`a\`b\\c` AS FLOAT64)" in to_sql(CURVE, "a`b\\c", dialect="bigquery")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dialect": "oracle"}, "dialect='oracle' is unknown; choose one of duckdb, spark, bigquery, snowflake"),
        ({"score": ""}, "'' names no column; pass the column's name"),
        ({"segment": "g"}, "this map has no segments, yet segment='g'; leave it out"),
    ],
)
def test_sql_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(UncurseError, match=message):
        to_sql(CURVE, **arguments)


# ---------------------------------------------------------------------------- source


def test_the_header_is_cplusplus_too_and_two_live_together(tmp_path):
    scores = scores_for(CURVE, 1000)
    made = run_c(CURVE, scores, tmp_path, ("g++", "-std=c++11"), "main.cc")
    np.testing.assert_allclose(made, CURVE(scores), rtol=1e-12)
    (tmp_path / "a.h").write_text(to_c(CURVE, "first"))
    (tmp_path / "b.h").write_text(to_c(TIES, "second"))
    (tmp_path / "both.c").write_text(
        '#include "a.h"\n#include "a.h"\n#include "b.h"\nint main(void) { return first(0.0) < second(0.0); }\n'
    )
    subprocess.run(["gcc", "-std=c99", *STRICT, "both.c", "-o", "both", "-lm"], cwd=tmp_path, check=True)


def test_the_sql_of_typical_fits_is_short():
    rng = np.random.default_rng(1)
    truth = rng.normal(-2, 1, (50_000, 1))
    pool = truth + 0.4 * rng.normal(size=(50_000, 3))
    methods = set()
    for bend in (0.0, 0.03, 0.06):
        labels = rng.random(50_000) < expit(truth[:, 0] - bend * (truth[:, 0] + 2) ** 2)
        auto = Auto(scale="logit", replicas="seeds").fit(pool, labeled=(pool, labels), labels_from="elsewhere")
        methods.add(auto.method_)
        assert len(to_sql(auto.fitted_)) < 8_000
    assert {"average", "labels"} <= methods


@pytest.mark.parametrize("name", ["2nd", "a b", "class", "max", "", "f():\n    import os#"])
def test_a_name_that_cannot_be_in_python_is_refused(name):
    with pytest.raises(UncurseError, match="cannot name the function of a module"):
        to_python(CURVE, name)


@pytest.mark.parametrize("name", ["2nd", "a b", "naïve", "", "f(){}"])
def test_a_name_that_cannot_be_in_c_is_refused(name):
    with pytest.raises(UncurseError, match="choose"):
        to_c(CURVE, name)


# ---------------------------------------------------------------------------- torch


def test_a_module_keeps_shape_and_dtype_and_its_doubles():
    torch = pytest.importorskip("torch")
    from uncurse.serving.export.torch import MapModule

    model = torch.nn.Sequential(torch.nn.Linear(4, 1), MapModule(CURVE))
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        model = model.to(dtype)
        assert {buffer.dtype for buffer in model[1].buffers()} == {torch.float64}
        scores = torch.linspace(-9, 9, 60).reshape(5, 4, 3).to(dtype)
        made = model[1](scores)
        assert made.shape == scores.shape
        assert made.dtype == dtype
        expected = CURVE(scores.double().numpy().ravel()).reshape(5, 4, 3)
        np.testing.assert_allclose(made.double().numpy(), expected, rtol=2 * torch.finfo(dtype).eps)
    assert model.to("meta")[1].edges.device.type == "meta"
    assert MapModule(CURVE)(torch.tensor([0, 1])).dtype == torch.float64


def test_a_module_is_saved_and_loaded(tmp_path):
    torch = pytest.importorskip("torch")
    from uncurse.serving.export.torch import MapModule

    other = replace(CURVE, y=tuple(np.array(CURVE.y) + 0.5))
    torch.save(MapModule(CURVE).state_dict(), tmp_path / "map.pt")
    loaded = MapModule(other)
    loaded.load_state_dict(torch.load(tmp_path / "map.pt", weights_only=True))
    scores = torch.linspace(-9, 9, 50, dtype=torch.float64)
    assert torch.equal(loaded(scores), MapModule(CURVE)(scores))


def test_a_module_goes_through_torch_export():
    torch = pytest.importorskip("torch")
    from uncurse.serving.export.torch import MapModule

    module = MapModule(MAPS["curve of probabilities"])
    rows = {0: torch.export.Dim("rows")}
    exported = torch.export.export(module, (torch.zeros(5),), dynamic_shapes=(rows,)).module()
    scores = torch.linspace(0, 1, 77)
    assert torch.equal(exported(scores), module(scores))


# ---------------------------------------------------------------------------- the programs of docs/reference/map.md

JAVA = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]  # which compile less and start sooner
PROGRAMS = {
    "python": ([sys.executable, "-I", "-S", "map.py"], "map.py"),
    "java": ([*JAVA, "Map"], "Map.java"),
    "go": (["go", "run", "map.go"], "map.go"),
}
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "map.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A folder with the program of a language, in Java a compiled one."""

    @functools.cache
    def of(language):
        command, name = PROGRAMS[language]
        if shutil.which(command[0]) is None:
            pytest.skip(f"there is no {command[0]} on this machine")
        folder = tmp_path_factory.mktemp(language)
        (folder / name).write_text(blocks(language)[0])
        if language == "java":
            compiler = "jdk.compiler/com.sun.tools.javac.Main"
            subprocess.run([*JAVA, "-m", compiler, name], cwd=folder, check=True)
        return folder

    return of


@pytest.fixture
def program(tmp_path, request, programs):
    """A program of the page, ready to run on a map's file and scores."""
    command = PROGRAMS[request.param][0]
    shutil.copytree(programs(request.param), tmp_path, dirs_exist_ok=True)

    def run(*arguments):
        made = subprocess.run([*command, *map(str, arguments)], cwd=tmp_path, capture_output=True, text=True)
        return made.returncode, made.stdout, made.stderr

    return run


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
@pytest.mark.parametrize("name", ["curve of probabilities", "steps of probabilities"])
def test_the_programs_of_the_page_agree(program, name, tmp_path):
    score_map = MAPS[name]
    record = FitRecord("vad", DataRecord(3, ("s0",)), command='a "quoted" \\ word, {braces} [too]')
    Fitted(score_map, record).save(tmp_path / "map.json")
    scores = scores_for(score_map, 200)[:1200]
    if isinstance(score_map, Steps):  # a logarithm rounds otherwise in other languages: on an edge it is either side
        clear = np.abs(to_link(scores, "probability", "logistic")[:, None] - np.array(score_map.edges)).min(axis=1)
        scores = scores[clear > 1e-12]
    code, out, error = program("map.json", *map(repr, scores.tolist()))
    assert code == 0, error
    np.testing.assert_allclose(np.array(out.split(), float), score_map(scores), rtol=1e-9)


@pytest.mark.parametrize("program", PROGRAMS, indirect=True)
def test_the_programs_of_the_page_refuse_what_they_cannot_do(program, tmp_path):
    MAPS["affine of probabilities"].save(tmp_path / "map.json")
    (tmp_path / "new.json").write_text(json.dumps({**json.loads(MAPS["affine"].to_json()), "schema_version": 3}))
    for arguments in (("map.json", 1.5), ("new.json", 0.5)):
        code, out, error = program(*arguments)
        assert code != 0
        assert out == ""
        assert "1.5" in error or "schema_version" in error


def test_the_examples_of_the_page_run(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("torch")
    from uncurse.serving.export.onnx import to_onnx

    monkeypatch.chdir(tmp_path)
    CURVE.save("map.json")
    Path("map.onnx").write_bytes(to_onnx(CURVE).SerializeToString())
    examples = blocks("python")[1:]
    assert len(examples) == 2
    for example in examples:
        space = {}
        exec(example, space)
        np.testing.assert_allclose(space["prediction"].tolist(), CURVE([0.5, 1.5]), rtol=1e-6)
    documents = [one for one in re.findall(r"^`(\{\"kind\".*?\})`$", PAGE, re.M | re.S) if "…" not in one]
    assert len(documents) == 3
    for document in documents:
        Path("map.json").write_text(document)
        assert load("map.json").map.kind == json.loads(document)["kind"]


def test_sql_beyond_the_limit_of_a_warehouse_is_warned_of():
    x = np.linspace(-8.0, 3.0, 50)
    curve = Curve(tuple(x), tuple(0.7 * x + 0.3 * np.tanh(x)), 0.7, 0.7)
    small, large = (Segmented(curve, {f"g{i}": curve for i in range(n)}) for n in (50, 300))
    with pytest.warns(UserWarning, match="bigquery takes queries of at most 1 MB"):
        to_sql(large, "s", segment="g", dialect="bigquery")
    to_sql(small, "s", segment="g", dialect="bigquery")  # warnings are errors here
    to_sql(large, "s", segment="g", dialect="duckdb")
