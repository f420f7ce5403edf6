"""Engines by name for the tests of tables, and what their frames hold."""

import pyarrow as pa
import pytest

EAGER = ["pandas", "polars", "pyarrow"]
SQL = ["duckdb", "ibis", pytest.param("pyspark", marks=pytest.mark.spark)]
LAZY = ["lazy polars", *SQL]
ENGINES = [*EAGER, *LAZY]
# Under the fixture `many_rows_are_few`, more rows than these are many, and the grid of replicas starts from the second
# number of rows. Two thirds of these fill more cells than a grid holds, so that it is made coarser.
MANY_ROWS, SAMPLE_ROWS = 1 << 14, 56_000


def arrow(frame):
    """What a frame of any engine holds, as an Arrow table."""
    kind = type(frame).__module__.partition(".")[0]
    if kind == "ibis":  # through its DuckDB: the result is the query's, whatever Ibis converts it with
        import ibis

        return frame.get_backend().con.sql(str(ibis.to_sql(frame))).to_arrow_table()
    if kind == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "polars":
        return frame.lazy().collect(engine="streaming").to_arrow()
    if kind in ("duckdb", "_duckdb"):
        return frame.to_arrow_table()
    return frame.toArrow() if kind == "pyspark" else frame
