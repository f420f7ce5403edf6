"""Maps and classifiers in MLflow: logged to a database, and loaded in another process."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import uncurse
from uncurse import Affine, Fitted, Segmented, Steps, UncurseError
from uncurse.mlflow import load_map, log_map

mlflow = pytest.importorskip("mlflow", reason="needs MLflow: pip install 'uncurse[mlflow]'")
pd = pytest.importorskip("pandas")
skops_io = pytest.importorskip("skops.io")
for module in ("mlflow.pyfunc", "mlflow.sklearn", "alembic"):
    pytest.importorskip(module)
MlflowException = mlflow.exceptions.MlflowException

pytestmark = pytest.mark.filterwarnings("ignore")  # of MLflow and its database

PAGE = (Path(__file__).parents[1] / "docs" / "how-to" / "mlflow.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def store(tmp_path_factory):
    """The folder of a database of runs and models, and of their files."""
    folder = tmp_path_factory.mktemp("mlflow")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY"):
            patch.setenv(name, "true")
        patch.setenv("MLFLOW_TRACKING_URI", "sqlite:///store.db")
        yield folder


@pytest.fixture(scope="module")
def scores():
    rng = np.random.default_rng(0)
    return rng.normal(-2, 1, 20_000)[:, None] + rng.normal(0, 0.5, (20_000, 3))


@pytest.fixture(scope="module")
def segments():
    return np.random.default_rng(1).choice(["news", "sport", "other"], 20_000)


@pytest.fixture(scope="module")
def auto(scores):
    return uncurse.Auto(scale="logit", replicas="seeds").fit(scores)


@pytest.fixture(scope="module")
def classifier():
    rng = np.random.default_rng(0)
    X, pool = rng.normal(size=(300, 6)), rng.normal(size=(500, 6))
    y = (rng.random(300) < 1 / (1 + np.exp(-X.sum(axis=1) / 2))).astype(int)
    return uncurse.UncursedClassifierCV(random_state=0).fit(X, y, pool=pool), pool


@pytest.fixture(scope="module")
def sources(scores, segments, auto):
    """What is logged, by its name."""
    return {
        "line": Affine(0.8, -0.4),
        "map": auto,
        "steps": Steps((-2.0, 0.0), (-3.0, -1.0, 0.5)),
        "segmented": uncurse.VAD(scale="logit", replicas="seeds").fit(scores, segments=segments),
    }


@pytest.fixture(scope="module")
def logged(store, sources):
    """How MLflow answered to each."""
    return {
        name: log_map(source, name, registered_model_name="daily" if name == "map" else None)
        for name, source in sources.items()
    }


LOAD = """
import json, sys
import mlflow, mlflow.pyfunc, mlflow.sklearn, numpy as np, pandas as pd
from uncurse.mlflow import load_map

uris, served, segments, X = json.loads(sys.argv[1]), np.load("served.npy"), np.load("segments.npy"), np.load("X.npy")
found = {}
for name, uri in uris.items():
    if name == "classifier":
        found[name] = mlflow.sklearn.load_model(uri).predict_proba(X)
        found["classifier pyfunc"] = mlflow.pyfunc.load_model(uri).predict(X)
        continue
    frame = pd.DataFrame({"segment": segments, "request": 1, "score": served})
    found[name + " pyfunc"] = mlflow.pyfunc.load_model(uri).predict(frame)
    found[name] = load_map(uri)(served, segments) if name == "segmented" else load_map(uri)(served)
np.savez("found.npz", **found)
"""


def test_logged_models_predict_the_same_in_another_process(store, scores, segments, classifier, sources, logged):
    (clf, pool), served, vad = classifier, scores[:, 0], sources["segmented"]
    uris = {name: info.model_uri for name, info in logged.items()}
    uris["classifier"] = mlflow.sklearn.log_model(
        clf,
        name="classifier",
        serialization_format="skops",
        skops_trusted_types=skops_io.get_untrusted_types(data=skops_io.dumps(clf)),
        pyfunc_predict_fn="predict_proba",
        pip_requirements=["uncurse", "scikit-learn", "skops"],
    ).model_uri
    for name, values in {"served": served, "segments": segments, "X": pool}.items():
        np.save(store / f"{name}.npy", values)
    words = [sys.executable, "-W", "ignore", "-c", LOAD, json.dumps(uris)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=store, timeout=120)
    assert done.returncode == 0, done.stderr
    wanted = {name: getattr(one, "map_", one)(served) for name, one in sources.items() if name != "segmented"}
    wanted |= {"segmented": vad.predict_proba(served, segments), "classifier": clf.predict_proba(pool)}
    with np.load(store / "found.npz") as found:
        assert set(found) == {*wanted, *(f"{name} pyfunc" for name in wanted)}
        for name, values in wanted.items():
            for loaded in (found[name], found[f"{name} pyfunc"]):
                np.testing.assert_allclose(loaded, values, rtol=0, atol=1e-15, err_msg=name)


def test_a_map_is_found_by_run_by_alias_and_in_a_folder_with_its_record(logged, auto, tmp_path):
    info = logged["map"]
    mlflow.MlflowClient().set_registered_model_alias("daily", "champion", info.registered_model_version)
    folder = mlflow.artifacts.download_artifacts(artifact_uri=info.model_uri, dst_path=str(tmp_path))
    for uri in (info.model_uri, f"runs:/{info.run_id}/map", "models:/daily@champion", "models:/daily/1", folder):
        assert load_map(uri) == auto.fitted_
    assert uncurse.load(Path(folder, "data", "map.json")) == auto.fitted_
    assert not [*Path(folder).rglob("*.pkl")]
    listed = Path(folder, "requirements.txt").read_text().split()
    assert listed == [f"uncurse=={uncurse.__version__}", f"mlflow-skinny=={mlflow.__version__}", "pandas"]


def test_the_run_holds_the_figures_of_the_record(logged, auto):
    info = logged["map"]
    data = mlflow.get_run(info.run_id).data
    assert mlflow.active_run() is None
    wanted = {"map/method": auto.method_, "map/reason": auto.reason_, "map/replicas": "seeds", "map/scale": "logit"}
    assert {key: data.params[key] for key in wanted} == wanted
    low, high = auto.interval(0.02)
    figures = {
        "map/lambda": auto.record_.lambda_,
        "map/standard_error": auto.record_.standard_error,
        "map/remaining_error_low_0.02": low,
        "map/remaining_error_high_0.02": high,
        "map/pool_rows": 20_000,
    }
    assert {key: data.metrics[key] for key in figures} == figures
    assert {one.key: one.value for one in mlflow.get_logged_model(info.model_id).metrics} == data.metrics


def test_a_run_can_hold_several_maps_by_name_and_none_twice(auto, classifier, tmp_path):
    clf, _ = classifier
    auto.save(tmp_path / "map.json")
    labels = np.random.default_rng(1).random(500) < 0.5
    refreshed = uncurse.refresh(
        Affine(0.8, -0.4), uncurse.evidence.from_arrays(np.linspace(-1, 1, 500)[:, None], labels)
    )
    sources = {"line": Affine(0.5, 1.0), "file": tmp_path / "map.json", "clf": clf, "refreshed": refreshed}
    with mlflow.start_run() as run:
        infos = {name: log_map(source, name) for name, source in sources.items()}
        with pytest.raises(MlflowException, match="line/kind"):
            log_map(auto, "line")
        assert mlflow.active_run().info.run_id == run.info.run_id
    found = mlflow.get_run(run.info.run_id)
    assert (found.data.metrics["line/slope"], found.data.metrics["line/intercept"]) == (0.5, 1.0)
    assert found.data.params["clf/method"] == clf.method_
    assert (found.data.metrics["clf/pool_rows"], found.data.metrics["clf/labeled_rows"]) == (500, 300)
    assert {one.model_id for one in found.outputs.model_outputs} == {info.model_id for info in infos.values()}
    loaded = {name: load_map(info.model_uri) for name, info in infos.items()}
    wanted = {"line": Fitted(sources["line"]), "file": auto.fitted_, "clf": clf.fitted_, "refreshed": refreshed}
    assert loaded == wanted


def test_the_model_takes_the_columns_of_its_signature_and_refuses_bad_values():
    segmented = Segmented(Affine(1.0, 0.0, scale="probability"), {"news": Affine(1.0, 1.0, scale="probability")})
    info = log_map(segmented, score="p", segment="section", pip_requirements=["uncurse", "mlflow-skinny"])
    assert [(one.name, one.type.name) for one in info.signature.inputs] == [("p", "double"), ("section", "string")]
    model = mlflow.pyfunc.load_model(info.model_uri)
    good = {"section": ["news", "new"], "p": np.array([0.2, 0.5], np.float32)}
    wanted = segmented(good["p"], good["section"])
    np.testing.assert_array_equal(model.predict(pd.DataFrame(good)), wanted)
    np.testing.assert_array_equal(model.predict(good), wanted)
    with pytest.raises(MlflowException, match="section"):
        model.predict({"p": np.array([0.5])})
    for p, section, match in (
        ([0.5, np.nan], ["news", "news"], r"scores\[1\] is nan"),
        ([0.5, 1.5], ["news", "news"], r"1\.5"),
        ([0.5, 0.5], ["news", None], r"segments\[1\]"),
        (np.zeros(0), np.zeros(0, str), "scores is empty"),
    ):
        with pytest.raises(UncurseError, match=match):
            model.predict(pd.DataFrame({"p": p, "section": section}))


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("source", "names", "match"),
    [
        (3, {}, "int"),
        (uncurse.UncursedClassifierCV(), {}, "UncursedClassifierCV"),
        (uncurse.VAD(scale="logit", replicas="seeds"), {}, "VAD"),
        ("absent.json", {}, "absent"),
        (Segmented(Affine(1.0, 0.0), {}), {"score": "a", "segment": "a"}, "score='a'"),
        (Affine(1.0, 0.0), {"score": ""}, "score=''"),
    ],
)
def test_what_is_no_fitted_map_and_names_that_are_none_are_refused(source, names, match):
    with pytest.raises(ValueError, match=match):  # NotFittedError for an estimator, UncurseError otherwise
        log_map(source, **names)


@pytest.mark.parametrize("other", [False, True])
def test_a_folder_without_a_logged_map_is_refused(other, tmp_path):
    if other:
        (tmp_path / "MLmodel").write_text(
            "flavors:\n  python_function:\n    loader_module: mlflow.sklearn\n    data: x\n"
        )
    with pytest.raises(UncurseError, match=str(tmp_path)):
        load_map(str(tmp_path))
    with pytest.raises(UncurseError, match="NoneType"):
        load_map(None)


@pytest.mark.parametrize("library", ["mlflow", "pandas"])
def test_without_a_library_the_error_says_what_to_install(library, monkeypatch):
    for name in [name for name in sys.modules if name.startswith(("mlflow.pyfunc", f"{library}."))]:
        monkeypatch.delitem(sys.modules, name)  # MLflow imports pandas, too
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UncurseError, match=rf"{library}.*; pip install 'uncurse\[mlflow\]'"):
        log_map(Affine(1.0, 0.0))


def test_the_code_of_the_page_runs(capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    exec(compile(code, "docs/how-to/mlflow.md", "exec"), {})
    assert "one λ = 0.799 fits the replicas" in capsys.readouterr().out


@pytest.mark.parametrize(
    "uri", ["models:/none/1", "models:/", "mlflow-artifacts:/x", "http://[", "file:///nonexistent"]
)
def test_what_cannot_be_loaded_is_an_error_of_ours(uri, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UncurseError, match="pass the URI of a logged map"):
        load_map(uri)
