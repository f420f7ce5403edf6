"""Maps and classifiers in MLflow: logged to a real tracking server, and loaded in another process."""

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import uncurse
from uncurse import Affine, Chain, Curve, Grouped, Steps, UncurseError
from uncurse.debias import load_record as read_record
from uncurse.mlflow import TRUSTED_TYPES, load_map, load_record, log_map, requirements

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'uncurse[mlflow]'")
pd = pytest.importorskip("pandas")
skops_io = pytest.importorskip("skops.io")
for module in ("mlflow.pyfunc", "mlflow.sklearn"):
    pytest.importorskip(module)
MlflowException = mlflow.exceptions.MlflowException

pytestmark = pytest.mark.filterwarnings("ignore:Operation with range is deprecated")  # of MLflow

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "mlflow.md").read_text(encoding="utf-8")
QUIET = {
    "DO_NOT_TRACK": "true",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
SECONDS = 120  # a process that takes longer is stopped
# The command `mlflow`, until standard input is closed, as it is when the tests are killed. Where it starts Uvicorn in
# another interpreter, this one becomes the server, which has loaded MLflow already.
MLFLOW = """
import os, runpy, signal, sys, threading

def watch():
    sys.stdin.read()
    os.killpg(0, signal.SIGTERM)

def become(command, extra_env, **options):
    os.environ.update(extra_env)
    sys.argv[:] = command[2:]
    runpy.run_module(command[2], run_name="__main__", alter_sys=True)

threading.Thread(target=watch, daemon=True).start()
import mlflow.cli, mlflow.server
mlflow.server._exec_cmd = become
mlflow.cli.cli()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A tracking server with SQLite on a free port of this machine; the result is its folder."""
    for part in ("aiohttp", "alembic", "flask", "flask_cors", "graphene", "huey"):
        pytest.importorskip(part, reason="a tracking server needs more than mlflow-skinny: pip install 'uncurse[dev]'")
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    words = [sys.executable, "-W", "ignore", "-c", MLFLOW, "server", "--workers", "1"]
    words += ["--host", "127.0.0.1", "--port", str(port)]
    words += ["--backend-store-uri", "sqlite:///store.db", "--artifacts-destination", "artifacts"]
    with pytest.MonkeyPatch.context() as patch, (folder / "server.log").open("w+b") as log:
        for name, value in {**QUIET, "MLFLOW_TRACKING_URI": address}.items():
            patch.setenv(name, value)
        # A group of its own: the server starts workers.
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait_for(f"{address}/health", process, folder / "server.log")
            mlflow.set_tracking_uri(address)
            yield folder
        finally:
            mlflow.set_tracking_uri(None)
            for number in (signal.SIGTERM, signal.SIGKILL):
                with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.killpg(process.pid, number)
                    process.wait(timeout=10)
            process.stdin.close()


def wait_for(address, process, log):
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)


def run_python(code, *arguments, cwd):
    words = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    result = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=SECONDS)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    return rng.normal(-2, 1, 20_000)[:, None] + rng.normal(0, 0.5, (20_000, 3))


@pytest.fixture(scope="module")
def groups():
    return np.random.default_rng(1).choice(["news", "sport", "other"], 20_000)


@pytest.fixture(scope="module")
def auto(scores):
    return uncurse.Auto(scale="logit", replicas="seeds").fit(scores)


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(300, 6)), rng.normal(size=(500, 6))
    y = (rng.random(300) < 1 / (1 + np.exp(-X.sum(axis=1) / 2))).astype(int)
    return uncurse.UncursedClassifierCV(random_state=0).fit(X, y, pool=pool), X, y, pool


# ---------------------------------------------------------------------------- the acceptance test

LOAD = """
import json, sys
import mlflow, mlflow.pyfunc, mlflow.sklearn, numpy as np, pandas as pd
from uncurse.mlflow import load_map

uris, served, groups, X = json.loads(sys.argv[1]), np.load("served.npy"), np.load("groups.npy"), np.load("X.npy")
found = {}
for name, uri in uris.items():
    if name == "classifier":
        found[name] = mlflow.sklearn.load_model(uri).predict_proba(X)
        found["classifier pyfunc"] = mlflow.pyfunc.load_model(uri).predict(X)
        continue
    frame = pd.DataFrame({"group": groups, "request": 1, "score": served})
    found[name + " pyfunc"] = mlflow.pyfunc.load_model(uri).predict(frame)
    found[name] = load_map(uri)(served, groups) if name == "grouped" else load_map(uri)(served)
np.savez("found.npz", **found)
"""


@pytest.fixture(scope="module")
def sources(scores, groups, auto):
    """What is logged, by its name."""
    return {
        "line": Affine(0.8, -0.4),
        "map": auto,
        "chain": Chain((Affine(0.8, -0.4), Curve((-3.0, 0.0), (-2.9, -0.2), 0.9, 0.7))),
        "steps": Steps((-2.0, 0.0), (-3.0, -1.0, 0.5)),
        "grouped": uncurse.VAD(scale="logit").fit(scores, groups=groups),
    }


@pytest.fixture(scope="module")
def logged(server, sources):
    """How MLflow answered to each."""
    return {
        name: log_map(source, name, registered_model_name="daily" if name == "map" else None)
        for name, source in sources.items()
    }


def test_logged_models_predict_the_same_in_another_process(server, scores, groups, classifier, sources, logged):
    clf, _, _, pool = classifier
    served, vad = scores[:, 0], sources["grouped"]
    maps = {name: getattr(source, "map_", source) for name, source in sources.items()}
    assert isinstance(maps["map"], Curve)
    assert isinstance(maps["grouped"], Grouped)
    uris = {name: info.model_uri for name, info in logged.items()}
    uris["classifier"] = mlflow.sklearn.log_model(
        clf,
        name="classifier",
        serialization_format="skops",
        skops_trusted_types=TRUSTED_TYPES,
        pyfunc_predict_fn="predict_proba",
        pip_requirements=requirements("scikit-learn", "skops"),
    ).model_uri
    for name, values in {"served": served, "groups": groups, "X": pool}.items():
        np.save(server / f"{name}.npy", values)
    run_python(LOAD, json.dumps(uris), cwd=server)
    wanted = {name: one(served) for name, one in maps.items() if name != "grouped"}
    wanted |= {"grouped": vad.predict_proba(served, groups), "classifier": clf.predict_proba(pool)}
    with np.load(server / "found.npz") as found:
        assert set(found) == {*wanted, *(f"{name} pyfunc" for name in wanted)}
        for name, values in wanted.items():
            for loaded in (found[name], found[f"{name} pyfunc"]):
                np.testing.assert_allclose(loaded, values, rtol=0, atol=1e-15, err_msg=name)


# ---------------------------------------------------------------------------- what is logged


def test_a_map_is_found_by_run_by_alias_and_in_a_folder_with_its_record(logged, auto, tmp_path):
    info = logged["map"]
    mlflow.MlflowClient().set_registered_model_alias("daily", "champion", info.registered_model_version)
    folder = mlflow.artifacts.download_artifacts(artifact_uri=info.model_uri, dst_path=str(tmp_path))
    for uri in (info.model_uri, f"runs:/{info.run_id}/map", "models:/daily@champion", "models:/daily/1", folder):
        assert load_map(uri) == auto.map_
        record = load_record(uri)
        assert (record.lambda_, record.method) == (auto.record_.lambda_, auto.method_)
        assert [(one.alpha, one.level) for one in record.remaining_error] == [
            (0.01, 0.9), (0.02, 0.9), (0.05, 0.9), (0.1, 0.9)
        ]  # fmt: skip
        assert (record.remaining_error[1].low, record.remaining_error[1].high) == auto.interval(0.02)
    path = Path(folder, "data", "map.json")
    assert uncurse.load(path) == auto.map_
    assert read_record(path) == record
    names = {one.name for one in Path(folder).rglob("*") if one.is_file()}
    assert names == {
        "MLmodel", "map.json", "conda.yaml", "python_env.yaml", "requirements.txt", "registered_model_meta",
        "input_example.json", "serving_input_example.json",
    }  # fmt: skip
    listed = Path(folder, "requirements.txt").read_text().split()
    assert listed == [f"uncurse=={uncurse.__version__}", f"mlflow-skinny=={mlflow.__version__}", "pandas"]


def test_the_run_holds_the_figures_of_the_record(logged, auto):
    info = logged["map"]
    run = mlflow.get_run(info.run_id)
    assert run.info.status == "FINISHED"
    assert mlflow.active_run() is None
    assert run.data.params["map/method"] == auto.method_
    assert run.data.params["map/reason"] == auto.reason_
    assert run.data.params["map/replicas"] == "seeds"
    low, high = auto.interval(0.02)
    figures = {
        "map/lambda": auto.record_.lambda_,
        "map/standard_error": auto.record_.standard_error,
        "map/remaining_error_low_0.02": low,
        "map/remaining_error_high_0.02": high,
        "map/pool_rows": 20_000,
    }
    assert {key: run.data.metrics[key] for key in figures} == figures
    model = mlflow.get_logged_model(info.model_id)
    assert {one.key: one.value for one in model.metrics} == run.data.metrics


def test_a_run_can_hold_several_maps_by_name_and_none_twice(server, auto, classifier, tmp_path):
    auto.map_.save(tmp_path / "map.json", auto.record_.to_dict())
    with mlflow.start_run() as run:
        sources = {"line": Affine(0.5, 1.0), "file": tmp_path / "map.json", "classifier": classifier[0]}
        infos = [log_map(source, name) for name, source in sources.items()]
        with pytest.raises(MlflowException, match="line/kind"):
            log_map(auto, "line")
        assert mlflow.active_run().info.run_id == run.info.run_id
    assert {info.run_id for info in infos} == {run.info.run_id}
    found = mlflow.get_run(run.info.run_id)
    assert (found.data.metrics["line/slope"], found.data.metrics["line/intercept"]) == (0.5, 1.0)
    assert found.data.metrics["file/lambda"] == auto.record_.lambda_
    assert {one.model_id for one in found.outputs.model_outputs} == {info.model_id for info in infos}
    assert load_record(infos[0].model_uri) is None
    assert load_record(infos[1].model_uri) == auto.record_
    assert load_map(infos[2].model_uri) == classifier[0].map_


def test_the_map_of_an_estimator_is_logged_with_its_record(server, classifier):
    clf, X, y, _ = classifier
    regressor = uncurse.UncursedRegressorCV(random_state=0).fit(X, X.sum(axis=1) + y)
    with mlflow.start_run() as run:
        uris = [log_map(one, name).model_uri for one, name in ((clf, "clf"), (regressor, "regressor"))]
    data = mlflow.get_run(run.info.run_id).data
    for name, one in (("clf", clf), ("regressor", regressor)):
        assert (data.params[f"{name}/method"], data.params[f"{name}/reason"]) == (one.method_, one.reason_)
        assert data.metrics[f"{name}/lambda"] == one.record_.lambda_
    assert (data.metrics["clf/pool_rows"], data.metrics["clf/labelled_rows"]) == (500, 300)
    for alpha in (0.01, 0.02, 0.05, 0.1):
        ends = (data.metrics[f"clf/remaining_error_{end}_{alpha:g}"] for end in ("low", "high"))
        assert tuple(ends) == clf.interval(alpha)
    logged, of_values = map(load_record, uris)
    assert dataclasses.replace(logged, remaining_error=()) == clf.record_
    assert of_values == regressor.record_


def test_a_refreshed_map_is_logged_with_its_record(server, scores):
    labels = np.random.default_rng(1).random(len(scores)) < 1 / (1 + np.exp(-scores[:, 0]))
    fitted = uncurse.refresh(Affine(0.8, -0.4), uncurse.evidence.from_arrays(scores[:, :1], labels))
    with mlflow.start_run():
        uri = log_map(fitted, "refreshed").model_uri
    assert load_map(uri) == fitted.map
    assert load_record(uri) == fitted.record


# ---------------------------------------------------------------------------- the pyfunc


def test_the_model_takes_the_columns_of_its_signature_and_refuses_bad_values(server):
    grouped = Grouped(Affine(1.0, 0.0, scale="probability"), {"news": Affine(1.0, 1.0, scale="probability")})
    info = log_map(grouped, score="p", group="section", pip_requirements=["uncurse", "mlflow-skinny"])
    assert [(one.name, one.type.name) for one in info.signature.inputs] == [("p", "double"), ("section", "string")]
    model = mlflow.pyfunc.load_model(info.model_uri)
    good = {"section": ["news", "new"], "p": np.array([0.2, 0.5], np.float32)}
    wanted = grouped(good["p"], good["section"])
    np.testing.assert_array_equal(model.predict(pd.DataFrame(good)), wanted)
    np.testing.assert_array_equal(model.predict(good), wanted)
    with pytest.raises(MlflowException, match=r"missing inputs \['section'\]"):
        model.predict({"p": np.array([0.5])})
    with pytest.raises(MlflowException, match="missing inputs"):
        model.predict(np.array([[0.5, 0.5]]))
    with pytest.raises(UncurseError, match=r"scores\[1\] is nan.* drop or repair"):
        model.predict(pd.DataFrame({"p": [0.5, np.nan], "section": ["news", "news"]}))
    with pytest.raises(UncurseError, match=r"1\.5, which is not a probability"):
        model.predict(pd.DataFrame({"p": [0.5, 1.5], "section": ["news", "news"]}))
    with pytest.raises(UncurseError, match=r"groups\[1\] is .*; fill missing values"):
        model.predict(pd.DataFrame({"p": [0.5, 0.5], "section": ["news", None]}))
    with pytest.raises(UncurseError, match="scores is empty"):
        model.predict(pd.DataFrame({"p": np.zeros(0), "section": np.zeros(0, str)}))


def test_a_served_map_answers_over_http(logged, sources):
    import uvicorn
    from mlflow.pyfunc import scoring_server

    score_map = sources["line"]
    app = scoring_server.init(mlflow.pyfunc.load_model(logged["line"].model_uri))  # what `mlflow models serve` runs
    web = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=web.run, args=([listener],), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/invocations"
        body = json.dumps({"dataframe_split": {"columns": ["score"], "data": [[-1.5], [0.0]]}}).encode()
        request = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        deadline = time.monotonic() + SECONDS
        while not web.started and time.monotonic() < deadline:
            time.sleep(0.01)
        with urllib.request.urlopen(request, timeout=30) as answer:
            found = json.load(answer)["predictions"]
        web.should_exit = True
        thread.join(timeout=10)
    np.testing.assert_allclose(found, score_map([-1.5, 0.0]), rtol=0, atol=1e-15)


# ---------------------------------------------------------------------------- errors


def test_sources_that_are_no_fitted_map_are_refused(tmp_path):
    for source in (3, uncurse.UncursedClassifierCV()):
        with pytest.raises(
            UncurseError, match=f"map is of type {type(source).__name__}; pass a map, a fitted method or"
        ):
            log_map(source)
    with pytest.raises(UncurseError, match="this VAD is not fitted; call fit first"):
        log_map(uncurse.VAD())
    with pytest.raises(UncurseError, match=r"cannot read .*absent.json"):
        log_map(tmp_path / "absent.json")
    with pytest.raises(UncurseError, match="score='a' and group='a'; pass two different names"):
        log_map(Grouped(Affine(1.0, 0.0), {}), score="a", group="a")
    with pytest.raises(UncurseError, match="score='' and"):
        log_map(Affine(1.0, 0.0), score="")
    with pytest.raises(UncurseError, match="absent-package is not installed; name packages as pip does"):
        requirements("scikit-learn", "absent-package")


def test_a_model_of_another_flavor_is_refused(tmp_path):
    (tmp_path / "MLmodel").write_text("flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n")
    (tmp_path / "empty").mkdir()
    for folder in (tmp_path, tmp_path / "empty"):
        for function in (load_map, load_record):
            with pytest.raises(UncurseError, match=f"{folder} is not a map logged by uncurse.mlflow.log_map; load it"):
                function(str(folder))


HIDE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name == "mlflow":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import uncurse

for call in (
    lambda: uncurse.mlflow.log_map(uncurse.Affine(1.0, 0.0)),
    lambda: uncurse.mlflow.load_map("models:/daily/1"),
    lambda: uncurse.mlflow.load_record("models:/daily/1"),
):
    try:
        call()
    except uncurse.UncurseError as error:
        print(error)
"""


def test_without_mlflow_the_error_says_what_to_install(tmp_path):
    lines = run_python(HIDE, cwd=tmp_path).splitlines()
    assert lines == ["this needs mlflow; pip install 'uncurse[mlflow]'"] * 3


def test_without_pandas_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.delitem(sys.modules, "mlflow.pyfunc")  # MLflow imports pandas, too
    for call in (
        lambda: log_map(Affine(1.0, 0.0)),
        lambda: load_map("models:/daily/1"),
        lambda: load_record("models:/daily/1"),
    ):
        with pytest.raises(UncurseError, match=r"^this needs pandas; pip install 'uncurse\[mlflow\]'$"):
            call()


# ---------------------------------------------------------------------------- skops


def untrusted(data):
    return set(skops_io.get_untrusted_types(data=data))


@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, few iterations
def test_trusted_types_are_exactly_those_that_skops_asks_for(classifier):
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier

    clf, X, y, _ = classifier
    kind, mlp = uncurse.UncursedClassifierCV, MLPClassifier((4,), max_iter=20)
    models = [clf, uncurse.UncursedRegressorCV(random_state=0).fit(X, X.sum(axis=1) + y)]
    for options in (
        {"n_replicas": 2},
        {"method": "tower"},
        {"method": "vad", "cv": None},
        {"estimator": GaussianNB(), "cv": None},
        {"estimator": mlp, "replicas": "seeds"},
    ):
        models.append(kind(random_state=0, **options).fit(X, y))
    found = set().union(*(untrusted(skops_io.dumps(model)) for model in models))
    assert list(TRUSTED_TYPES) == sorted(name for name in found if not name.startswith("sklearn."))


@pytest.mark.filterwarnings("ignore::UserWarning")  # few rows, few iterations
def test_the_page_lists_the_types_of_base_models(classifier):
    from sklearn import ensemble
    from sklearn.neural_network import MLPClassifier

    _, X, y, pool = classifier
    models = [
        ensemble.GradientBoostingClassifier(n_estimators=3),
        ensemble.ExtraTreesClassifier(3),
        MLPClassifier((2,), max_iter=20),
    ]
    models += [ensemble.HistGradientBoostingClassifier(max_iter=3)]
    for library, name, options in (
        ("lightgbm", "LGBMClassifier", {"verbose": -1}),
        ("xgboost", "XGBClassifier", {}),
        ("catboost", "CatBoostClassifier", {"verbose": 0, "allow_writing_files": False}),
    ):
        models.append(getattr(pytest.importorskip(library), name)(n_estimators=3, **options))
    for model in models:
        clf = uncurse.UncursedClassifierCV(model, random_state=0, cv=None, method="vad", n_replicas=2).fit(X, y)
        data = skops_io.dumps(clf)
        named = untrusted(data) - set(TRUSTED_TYPES)
        assert named
        for name in named:
            assert f'`"{name}"`' in PAGE
        loaded = skops_io.loads(data, trusted=[*TRUSTED_TYPES, *named])
        np.testing.assert_allclose(loaded.predict_proba(pool), clf.predict_proba(pool), rtol=0, atol=1e-15)


def test_loaded_classifiers_give_the_same_intervals_and_lines(classifier):
    clf, *_ = classifier
    loaded = skops_io.loads(skops_io.dumps(clf), trusted=TRUSTED_TYPES)
    assert loaded.interval(0.1) == clf.interval(0.1)
    assert loaded.line() == clf.line()


# ---------------------------------------------------------------------------- the page


def test_the_code_of_the_page_runs(server, capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "docs/how-to/mlflow.md", "exec"), {})
    assert "one λ = 0.799 describes the replicas" in capsys.readouterr().out
