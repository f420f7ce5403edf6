import gc
import os
import sys
import warnings

# Before NumPy is loaded: on small matrices the threads of BLAS wait for each other, which costs ten times their work.
# So do those of OpenMP in PyTorch, LightGBM and XGBoost, while other test processes use the same cores.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import settings

from engines import MANY_ROWS, SAMPLE_ROWS
from required_options import with_required
from uncurse import UncurseError

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


@pytest.fixture
def one_torch_thread():
    """Two test processes share two cores; and sums in another order are other sums."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def one_process(monkeypatch):
    """Experiments run in this process, as on one core: others would load the libraries again."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)


@pytest.fixture(scope="module")
def many_rows_are_few():
    """Engines sum up logs of more than `MANY_ROWS` rows, as they do above 131,072 rows otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("logs.SMALL", "evidence.cells.EXACT_ROWS"):
            patch.setattr(f"uncurse.{name}", MANY_ROWS)
        for name in ("logs.queries._LEVEL_SAMPLE", "evidence.replica_counts._SAMPLE"):
            patch.setattr(f"uncurse.{name}", SAMPLE_ROWS)
        yield


@pytest.fixture(scope="session")
def spark():
    """One small, quiet Spark for all tests of a worker."""
    pytest.importorskip("pyspark", reason="needs PySpark: pip install 'uncurse[spark]'")
    from uncurse.logs.spark import find_java, session

    try:
        find_java()
    except UncurseError as error:
        pytest.skip(str(error))
    options = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        # No query runs long enough to be worth the optimising compiler of Java, or a collector with threads of its own.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
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


@pytest.fixture
def opened(request, tmp_path):
    """A log in an engine, and the options that `collect` needs for it."""

    import polars as pl

    def open_in(engine, log):
        if engine == "polars":
            return log, {}
        if engine == "lazy polars":
            return log.lazy(), {}
        if engine == "pandas":
            return log.to_pandas(), {}
        if engine == "pyarrow":
            return log.to_arrow(), {}
        if engine == "ibis":
            return pytest.importorskip("ibis").memtable(log.to_arrow()), {}
        if engine == "duckdb":
            arrow = log.to_arrow()
            return pytest.importorskip("duckdb").connect().from_arrow(arrow), {}
        kind, _, reader = ("parquet spark frame" if engine == "spark" else engine).partition(" ")
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.{kind}"
        if kind == "csv":
            log.cast({pl.Float32: pl.Float64}).write_csv(path)  # the digits of a float32 are those of another float64
        else:
            log.write_parquet(path)
        spark = request.getfixturevalue("spark") if "spark" in reader else None
        if reader == "spark frame":
            return spark.read.parquet(path.as_uri()), {}
        return path, {"engine": reader} if reader else {}

    return open_in


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
