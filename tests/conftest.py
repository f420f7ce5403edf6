import warnings

import pytest

from uncurse import UncurseError


@pytest.fixture
def one_torch_thread():
    """Two test processes share two cores; and sums in another order are other sums."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def spark():
    """One small, quiet Spark for all tests of a worker."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'uncurse[spark]'")
    from uncurse.tables.spark import find_java, session

    try:
        find_java()
    except UncurseError as error:
        pytest.skip(str(error))
    options = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "4",
        "spark.driver.memory": "1g",
        "spark.ui.showConsoleProgress": "false",
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        made = session(**options)
    made.sparkContext.setLogLevel("OFF")
    yield made
    made.stop()


@pytest.fixture
def make(request):
    """A frame of an engine from an Arrow table, by the engine's name."""

    def of(engine, table):
        if engine == "pandas":
            return table.to_pandas()
        if engine == "pyarrow":
            return table
        if engine in ("polars", "lazy polars"):
            import polars as pl

            frame = pl.DataFrame(pl.from_arrow(table))
            return frame if engine == "polars" else frame.lazy()
        if engine == "duckdb":
            return pytest.importorskip("duckdb").connect().from_arrow(table)
        if engine == "ibis":
            backend = pytest.importorskip("ibis").duckdb.connect()
            backend.con.register("log", table)
            return backend.table("log")
        return request.getfixturevalue("spark").createDataFrame(table)

    return of
