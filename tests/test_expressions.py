import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from engines import EAGER, ENGINES, SQL, arrow
from uncurse import Affine, Chain, Curve, Grouped, Steps, UncurseError
from uncurse.logs.expressions import with_prediction
from uncurse.logs.lazy_maps import LazyColumns
from uncurse.maps import ScoreMap
from uncurse.maps.shapes import logit_knots

# What Ibis and PySpark themselves say about the newest DuckDB and pandas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

N = 4_000
RNG = np.random.default_rng(7)
GROUPS = RNG.choice(["a", "ü", "it's", "back\\slash", "never seen", ""], N)
SCORES = RNG.normal(-2, 3, N)
SCORES[:6] = [800, -800, 0.5, -1.0, 36.5, -745]  # beyond what exp can hold, and on the edges below
STEPS = Steps((-1.0, 0.5), (-3.0, -1.0, 2.0), 1e-6, 0.1)
CURVE = Curve((-2.0, 0.0, 1.5), (-1.5, -1.0, 2.0), 0.5, 1.2)
STAIRS = Steps(np.unique(RNG.normal(size=700)), np.sort(RNG.normal(size=701)), 1e-7, 0.1)
BEND = Curve(logit_knots(256), np.sort(RNG.normal(size=256)), 0.5, 1.2)
FLIGHT = Steps(STAIRS.edges[::16], STAIRS.values[: len(STAIRS.edges[::16]) + 1], 1e-7, 0.1)
ARC = Curve(BEND.x[::16], BEND.y[::16], 0.5, 1.2)
MAPS = {
    "affine": Affine(0.7, -0.3),
    "affine of probabilities": Affine(0.7, -0.3, scale="probability"),
    "affine in identity": Affine(0.7, 0.02, "identity", "probability"),
    "affine of values in log": Affine(0.7, 0.02, "log", "value"),
    "affine of values": Affine(0.7, 0.02, "identity", "value"),
    "affine of logits in log": Affine(0.7, 0.02, "log"),
    "curve": CURVE,
    "one knot": Curve((0.1,), (0.2,), 0.5, 1.2),
    "steps": STEPS,
    "one step": Steps((), (0.3,)),
    "256 knots": BEND,
    "701 steps": STAIRS,
    "chain": Chain((Affine(1.0, -2.3), STEPS, Affine(0.8, 0.1))),
    "chain of links": Chain((STEPS, Affine(0.8, 0.01, "identity"))),
    "chain in a chain": Chain((Chain((Affine(0.5, 0.1), CURVE)), Affine(0.9, 0.2, "log"))),
    "groups of affine": Grouped(Affine(0.7, -0.3), {"a": Affine(1.0, 0.1), "ü": Affine(0.2, 1.0), "": Affine(2.0, 0)}),
    "groups of steps": Grouped(STEPS, {"it's": FLIGHT, "back\\slash": Steps((), (0.1,)), "ü": STEPS}),
    "groups of all kinds": Grouped(CURVE, {"a": ARC, "it's": Affine(1.0, 2.0), "": STEPS, "ü": Affine(0.5, 0.0)}),
    "no groups at all": Grouped(CURVE, {}),
}

# The type of the scores is the same to all maps after the first step, which depends on their scale.
# Ibis and Spark take seconds to compile long maps: a test below has one, of a few rows.
LONG = {"ibis": ("256 knots", "701 steps"), "pyspark": ("701 steps",)}
ALSO_OF_FLOAT32 = ("affine", "affine of probabilities", "affine of values in log", "curve", "steps", "groups of affine")


def scores_for(score_map, dtype=np.float64):
    if score_map.scale == "logit":
        return SCORES.astype(dtype)
    values = np.exp(np.clip(SCORES, -30, 30))
    values = values if score_map.scale == "value" else values / (1 + values)
    if score_map.scale == "probability":
        values[:2] = [0.0, 1.0]
    return values.astype(dtype)


def log_of(scores, groups=GROUPS):
    return pa.table({"row": np.arange(len(scores)), "s 1": scores, "group": groups, "x.y": np.arange(len(scores)) / 7})


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_predicts_as_numpy_and_leaves_the_rest_alone(engine, dtype, make):
    for name, score_map in MAPS.items():
        if name in LONG.get(engine, ()) or (dtype == np.float32 and name not in ALSO_OF_FLOAT32):
            continue
        table = log_of(scores_for(score_map, dtype))
        group = "group" if isinstance(score_map, Grouped) else None
        values = table["s 1"].to_numpy()
        expected = score_map(values) if group is None else score_map(values, GROUPS)
        given = make(engine, table)
        out = with_prediction(given, score_map, score="s 1", column="p", group=group)
        assert type(out) is type(given)
        result = arrow(out)
        assert result.column_names == [*table.column_names, "p"]
        assert result["p"].type == pa.float64()
        p = result["p"].to_numpy()
        np.testing.assert_allclose(p, expected, rtol=1e-12, atol=0, err_msg=name)
        for column in table.column_names:
            assert result[column].to_pylist() == table[column].to_pylist()
        if score_map.scale != "value":
            assert (p > 0).all()
            assert (p < 1).all()
        if group is None:
            assert (np.diff(p[np.argsort(values, kind="stable")]) >= 0).all(), name


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_numbers_are_groups_by_their_text(engine, make):
    groups = RNG.integers(-3, 12, N).astype(np.int16)
    grouped = Grouped(Affine(1.0, 0.0), {str(i): Affine(0.5, i / 4) for i in range(-2, 11)})
    out = with_prediction(make(engine, log_of(SCORES, groups)), grouped, score="s 1", column="p", group="group")
    np.testing.assert_allclose(arrow(out)["p"].to_numpy(), grouped(SCORES, groups), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_more_than_a_thousand_groups_each_get_their_own_map(engine, make):
    names = np.array([f"site {i}" for i in range(1500)])
    grouped = Grouped(Affine(1.0, 0.0), {str(n): Affine(0.5 + i / 1500, i / 500) for i, n in enumerate(names[:1400])})
    groups = RNG.choice(names, N)
    out = with_prediction(make(engine, log_of(SCORES, groups)), grouped, score="s 1", column="p", group="group")
    np.testing.assert_allclose(arrow(out)["p"].to_numpy(), grouped(SCORES, groups), rtol=1e-12)


@pytest.mark.parametrize("engine", ["polars", "lazy polars", "pandas"])
def test_categories_are_groups_by_their_names(engine, make):
    table = pl.DataFrame(pl.from_arrow(log_of(SCORES))).with_columns(pl.col("group").cast(pl.Categorical))
    grouped = MAPS["groups of affine"]
    frame = table.lazy() if engine == "lazy polars" else table if engine == "polars" else table.to_pandas()
    out = with_prediction(frame, grouped, score="s 1", column="p", group="group")
    np.testing.assert_allclose(arrow(out)["p"].to_numpy(), grouped(SCORES, GROUPS), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_map_by_group_needs_the_column_of_groups(engine, make):
    with pytest.raises(UncurseError, match="this map has a map for each group; pass group=, their column"):
        with_prediction(make(engine, log_of(SCORES)), MAPS["groups of all kinds"], score="s 1", column="p")


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_number_scores_are_scores(engine, make):
    scores = np.arange(-3, 4, dtype=np.int32)
    out = with_prediction(make(engine, pa.table({"s": scores})), CURVE, score="s", column="p")
    np.testing.assert_allclose(arrow(out)["p"].to_numpy(), CURVE(scores), rtol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_frame_without_rows_gets_a_column_without_rows(engine, make):
    result = arrow(with_prediction(make(engine, log_of(SCORES).slice(0, 0)), STEPS, score="s 1", column="p"))
    assert result.num_rows == 0
    assert result["p"].type == pa.float64()


@pytest.mark.parametrize("name", ["affine", "701 steps", "groups of all kinds"])
@pytest.mark.parametrize("engine", ["lazy polars", *SQL])
def test_in_a_lazy_frame_null_stays_null_and_a_null_group_gets_the_whole(engine, name, make):
    score_map = MAPS[name]
    grouped = isinstance(score_map, Grouped)
    table = pa.table({"s": [0.3, None, 0.3], "g": ["a", "a", None]})
    out = with_prediction(make(engine, table), score_map, score="s", column="p", group="g" if grouped else None)
    first, second, third = arrow(out)["p"].to_pylist()
    assert second is None
    assert first == pytest.approx((score_map.maps["a"] if grouped else score_map)(0.3), rel=1e-12)
    assert third == pytest.approx((score_map.default if grouped else score_map)(0.3), rel=1e-12)


@pytest.mark.parametrize("engine", SQL)
def test_in_sql_what_is_no_score_gives_null(engine, make):
    frame = make(engine, pa.table({"s": [np.nan, np.inf, -np.inf, 0.0]}))
    assert arrow(with_prediction(frame, STEPS, score="s", column="p"))["p"].to_pylist()[:3] == [None] * 3
    frame = make(engine, pa.table({"s": [-0.1, 1.1, 0.5]}))
    p = arrow(with_prediction(frame, MAPS["affine of probabilities"], score="s", column="p"))["p"].to_pylist()
    assert p[:2] == [None, None]
    assert p[2] is not None


@pytest.mark.parametrize("engine", ["polars", "lazy polars", "duckdb"])
def test_a_narwhals_frame_in_gives_a_native_frame_out(engine, make):
    native = make(engine, log_of(SCORES))
    out = with_prediction(nw.from_native(native), STEPS, score="s 1", column="p")
    assert type(out) is type(native)


def test_a_scan_streams_in_order(tmp_path):
    scores = RNG.normal(size=300_000)
    pl.DataFrame({"s": scores}).write_parquet(tmp_path / "log.parquet", row_group_size=10_000)
    scan = with_prediction(pl.scan_parquet(tmp_path / "log.parquet"), BEND, score="s", column="p")
    np.testing.assert_array_equal(scan.collect(engine="streaming")["p"].to_numpy(), BEND(scores))


def test_pandas_rows_are_met_by_place_whatever_their_index():
    frame = pd.DataFrame({"s": [0.0, 1.0, 2.0]}, index=[5, 5, 1])
    out = with_prediction(frame, MAPS["affine"], score="s", column="p")
    np.testing.assert_array_equal(out["p"], MAPS["affine"]([0.0, 1.0, 2.0]))
    assert list(out.index) == [5, 5, 1]
    assert list(frame.columns) == ["s"]


def test_columns_named_like_ours_are_left_alone(make):
    table = pa.table({"uncurse_1": [1.0], "uncurse__2": [2.0], "s": [0.5]})
    result = arrow(with_prediction(make("duckdb", table), STEPS, score="s", column="uncurse_3"))
    assert result.column_names == ["uncurse_1", "uncurse__2", "s", "uncurse_3"]
    assert result["uncurse_1"].to_pylist() == [1.0]


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize("engine", ENGINES)
def test_columns_that_cannot_be_are_named_before_anything_runs(engine, make):
    frame = make(engine, log_of(SCORES))
    for arguments, message in (
        ({"column": "row"}, "has a column 'row' already; choose another name, or drop it first"),
        ({"score": "s 2"}, "this frame has no column 's 2'; did you mean 's 1'"),
        ({"score": "group"}, "column 'group' holds String, not numbers"),
        ({"group": "grp"}, "this frame has no column 'grp'; did you mean 'group'"),
    ):
        with pytest.raises(UncurseError, match=message):
            with_prediction(frame, MAPS["groups of affine"], **{"score": "s 1", "column": "p", **arguments})


def test_a_group_for_a_map_without_groups_is_refused(make):
    with pytest.raises(UncurseError, match="this map has no groups, yet group='group'; leave it out"):
        with_prediction(make("polars", log_of(SCORES)), STEPS, score="s 1", column="p", group="group")


@pytest.mark.parametrize("engine", SQL)
def test_in_sql_groups_are_text_or_whole_numbers(engine, make):
    frame = make(engine, pa.table({"s": [0.0], "g": [1.5]}))
    with pytest.raises(UncurseError, match="group column 'g' holds Float64; groups are text or whole numbers"):
        with_prediction(frame, MAPS["groups of affine"], score="s", column="p", group="g")


@pytest.mark.parametrize("engine", SQL)
def test_a_probit_map_names_who_can_apply_it(engine, make):
    frame = make(engine, pa.table({"s": [0.0]}))
    with pytest.raises(UncurseError, match=r"the probit link has no expression in SQL; .* Polars or numpy"):
        with_prediction(frame, Affine(1.0, 0.0, "probit"), score="s", column="p")


def test_a_map_of_a_kind_of_ones_own_has_no_expression(make):
    class Half(ScoreMap):
        kind, link, scale = "half", "logistic", "logit"

    with pytest.raises(UncurseError, match="a Half map cannot be compiled; use an Affine, Curve, Steps or Chain map"):
        with_prediction(make("duckdb", pa.table({"s": [0.0]})), Half(), score="s", column="p")


@pytest.mark.parametrize("engine", EAGER)
def test_in_memory_the_first_bad_row_is_named(engine, make):
    bad = make(engine, pa.table({"s": [0.0, 1.0, np.nan]}))
    with pytest.raises(UncurseError, match=r"s\[2\] is (nan|missing) \(1 such values\); drop or repair"):
        with_prediction(bad, STEPS, score="s", column="p")
    bad = make(engine, pa.table({"s": [0.0, None, 0.5]}))
    with pytest.raises(UncurseError, match=r"s\[1\] is missing \(1 such values\); drop or repair those rows first"):
        with_prediction(bad, STEPS, score="s", column="p")
    bad = make(engine, pa.table({"s": [0.0, 0.0, 0.5], "g": ["a", None, None]}))
    with pytest.raises(UncurseError, match=r"g\[1\] is missing \(2 such values\); fill it, say with 'unknown'"):
        with_prediction(bad, MAPS["groups of affine"], score="s", column="p", group="g")
    bad = make(engine, pa.table({"s": [0.0, 2.0]}))
    with pytest.raises(UncurseError, match="s holds 2, which is not a probability"):
        with_prediction(bad, MAPS["affine of probabilities"], score="s", column="p")


def test_a_scan_names_a_bad_score_when_it_runs(make):
    scan = with_prediction(make("lazy polars", pa.table({"s": [0.0, np.inf]})), STEPS, score="s", column="p")
    with pytest.raises(
        (UncurseError, pl.exceptions.ComputeError), match="column 's' holds inf; drop or repair those rows"
    ):
        scan.collect(engine="streaming")


def test_what_is_no_frame_is_refused():
    with pytest.raises(UncurseError, match="list is neither a path nor a frame that narwhals knows"):
        with_prediction([1.0], STEPS, score="s", column="p")


def test_an_engine_without_expressions_is_refused():
    with pytest.raises(UncurseError, match="there are no expressions for polars; collect the frame"):
        LazyColumns(nw.from_native(pl.LazyFrame({"s": [0.0]})))
