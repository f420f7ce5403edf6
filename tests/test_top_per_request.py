import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from engines import EAGER, ENGINES, LAZY, arrow
from uncurse import UncurseError, top_k
from uncurse.logs.top_per_request import top_per_request

# What Ibis and PySpark themselves say about the newest DuckDB and pandas.
pytestmark = [
    pytest.mark.filterwarnings("ignore:fetch_arrow_table:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

N = 5_000
RNG = np.random.default_rng(11)
REQUESTS = RNG.integers(0, 700, N)


def log_of(scores, requests=REQUESTS):
    return pa.table(
        {
            "row": np.arange(len(scores)),
            "s.1": scores,
            "re quest": requests,
            "text": [f"t{i}" for i in range(len(scores))],
        }
    )


def won(frame, k, columns=("row", "s.1", "text"), score="s.1", request="re quest"):
    return arrow(top_per_request(nw.from_native(frame), score, request, k, columns=columns).to_native())


@pytest.mark.parametrize(("k", "dtype"), [(1, np.float32), (1, np.float64), (3, np.float32), (50, np.float64)])
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_picks_the_rows_that_numpy_picks(engine, k, dtype, make):
    scores = RNG.permutation(N).astype(dtype) / 7  # no ties
    table = log_of(scores)
    expected = np.flatnonzero(top_k(scores, REQUESTS, k))
    result = won(make(engine, table), k)
    assert result.column_names == ["row", "s.1", "text"]
    rows = result["row"].to_numpy()
    np.testing.assert_array_equal(np.sort(rows), expected)
    np.testing.assert_array_equal(result["s.1"].to_numpy(), scores[rows])
    assert result["text"].to_pylist() == [f"t{i}" for i in rows]
    assert result["s.1"].type == table["s.1"].type


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_ties_leave_exactly_k_whole_rows(engine, k, make):
    scores = RNG.integers(0, 3, N).astype(float)
    result = won(make(engine, log_of(scores)), k, ["row", "re quest", "s.1", "text"])
    rows = result["row"].to_numpy()
    # The values of one row, not the best of several.
    np.testing.assert_array_equal(result["re quest"].to_numpy(), REQUESTS[rows])
    np.testing.assert_array_equal(result["s.1"].to_numpy(), scores[rows])
    assert result["text"].to_pylist() == [f"t{i}" for i in rows]
    counts = np.bincount(REQUESTS[rows], minlength=700)
    np.testing.assert_array_equal(counts, np.minimum(np.bincount(REQUESTS, minlength=700), k))
    chosen = top_k(scores, REQUESTS, k)
    assert np.sort(scores[rows]).tolist() == np.sort(scores[chosen]).tolist()
    if engine in EAGER:  # the earlier row, and rows stay in order
        np.testing.assert_array_equal(rows, np.flatnonzero(chosen))


def test_ties_over_many_batches_of_a_scan_leave_whole_rows():
    rows = 400_000
    scan = pl.LazyFrame({"row": np.arange(rows), "s": RNG.integers(0, 2, rows).astype(np.float32)})
    scan = scan.with_columns(
        q=pl.col("row") * 7919 % 40_000, text=pl.col("row").cast(pl.String), double=pl.col("row") * 2
    )
    found = top_per_request(nw.from_native(scan), "s", "q", 1, columns=["row", "text", "double", "q"]).to_native()
    result = found.collect(engine="streaming")
    assert result.height == 40_000
    assert result.select(
        (pl.col("double") == 2 * pl.col("row")).all(),
        text=(pl.col("text") == pl.col("row").cast(pl.String)).all(),
        q=(pl.col("q") == pl.col("row") * 7919 % 40_000).all(),
    ).row(0) == (True, True, True)


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_without_a_request_are_a_request_of_their_own(engine, k, make):
    for requests in (["b", None, "", None, None, "b"], [1, None, 0, None, None, 1]):
        table = pa.table({"row": range(6), "s": [0.1, 0.5, 0.2, 0.9, 0.7, 0.3], "q": requests})
        result = won(make(engine, table), k, ["row"], "s", "q")
        assert sorted(result["row"].to_pylist()) == ([2, 3, 5] if k == 1 else [0, 2, 3, 4, 5])


@pytest.mark.parametrize("bad", [None, np.nan])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("engine", LAZY)
def test_a_score_that_is_none_wins_a_lazy_request_so_that_it_is_met(engine, k, bad, make):
    table = pa.table({"row": range(4), "s": [0.1, 0.2, 0.9, bad], "q": ["a", "a", "b", "b"]}, nullable_scores())
    assert 3 in won(make(engine, table), k, ["row"], "s", "q")["row"].to_pylist()


def nullable_scores():
    return pa.schema([("row", pa.int64()), ("s", pa.float64()), ("q", pa.string())])


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_numbers_are_scores_and_a_column_may_be_asked_for_twice_in_a_role(engine, make):
    table = pa.table({"s": [3, 5, 4], "q": ["a", "a", "b"]})
    for columns in (["s"], ["q", "s"], ["q"]):
        result = won(make(engine, table), 1, columns, "s", "q")
        assert result.column_names == columns
        assert sorted(result[columns[-1]].to_pylist()) == ([4, 5] if columns[-1] == "s" else ["a", "b"])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_log_without_rows_has_no_winners(engine, make):
    assert won(make(engine, log_of(np.zeros(N)).slice(0, 0)), 1).num_rows == 0


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize("engine", EAGER)
def test_in_memory_the_first_bad_score_is_named(engine, make):
    for bad in (None, np.nan, np.inf):
        table = pa.table({"row": [0, 1, 2], "s": [0.5, bad, bad], "q": ["a", "a", "b"]}, nullable_scores())
        with pytest.raises(UncurseError, match=r"s\[1\] is (missing|nan|inf) \(2 such values\); drop or repair"):
            won(make(engine, table), 1, ["row"], "s", "q")


@pytest.mark.parametrize("engine", ENGINES)
def test_missing_columns_and_counts_are_named(engine, make):
    frame = make(engine, log_of(np.zeros(N)))
    with pytest.raises(UncurseError, match=r"this frame has no column 's\.2'; did you mean 's\.1'"):
        won(frame, 1, score="s.2")
    with pytest.raises(UncurseError, match="this frame has no column 'request'; did you mean 're quest'"):
        won(frame, 1, request="request")
    with pytest.raises(UncurseError, match="this frame has no column 'txt'; did you mean 'text'"):
        won(frame, 1, ["txt"])
    with pytest.raises(UncurseError, match="column 'text' holds String, not numbers"):
        won(frame, 1, score="text")
    with pytest.raises(UncurseError, match="k=0; pass an integer, 1 or more"):
        won(frame, 0)


@pytest.mark.parametrize("engine", ["polars", "lazy polars", "pandas", "duckdb"])
def test_requests_that_differ_in_a_null_character_are_two(engine, make):
    table = pa.table({"s": [0.1, 0.2, 0.3], "q": ["a", "a\0", None]})
    found = top_per_request(nw.from_native(make(engine, table)), "s", "q", 1, columns=["s"])
    assert len(arrow(found.to_native())) == 3


def test_an_engine_nobody_has_taught_is_refused(make, monkeypatch):
    frame = nw.from_native(make("duckdb", log_of(np.zeros(N))))
    monkeypatch.setattr(nw.LazyFrame, "implementation", nw.Implementation.DASK)
    with pytest.raises(UncurseError, match="there is no query for dask; collect the frame first"):
        top_per_request(frame, "s.1", "re quest", 1, columns=["row"])
