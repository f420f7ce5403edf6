"""Every export agrees with the map in NumPy, and a folded model with the map after the model."""

import shutil
import subprocess

import numpy as np
import pytest
from scipy.special import expit, logit

from uncurse import VAD, Affine, ReplicaCalibrator, calibrate, fold, serving

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-2.0, 0.8, (2_000, 1))
SCORES = TRUTH + 0.4 * RNG.normal(size=(2_000, 2))
LABELS = RNG.random(2_000) < expit(TRUTH[:, 0])
COMMON = {"scale": "logit", "replicas": "seeds"}
MAPS = {
    "affine": VAD(**COMMON).fit(SCORES).map_,
    "curve": ReplicaCalibrator(**COMMON).fit(SCORES, labeled=(SCORES, LABELS), labels_from="elsewhere").map_,
    "steps": calibrate("histogram", SCORES[:, 0], LABELS, scale="logit"),
}
SERVED = np.concatenate([SCORES[:, 0], np.linspace(-40, 40, 801), RNG.normal(-2, 2, 1_000)])


def run_python(score_map, folder):
    module = {}
    exec(serving.to_python(score_map, "predict"), module)
    return np.array([module["predict"](score) for score in SERVED.tolist()])


def run_sql(score_map, folder):
    duckdb, pa = pytest.importorskip("duckdb"), pytest.importorskip("pyarrow")
    log = duckdb.connect().from_arrow(pa.table({"score": SERVED}))
    return log.project(f"{serving.to_sql(score_map, 'score')} as p").to_arrow_table()["p"].to_numpy()


def run_c(score_map, folder):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc on this machine")
    (folder / "map.h").write_text(serving.to_c(score_map, "predict"))
    (folder / "main.c").write_text(
        '#include <stdio.h>\n#include "map.h"\n'
        "int main(void) { double x; while (fread(&x, sizeof x, 1, stdin) == 1) "
        "{ x = predict(x); fwrite(&x, sizeof x, 1, stdout); } return 0; }\n"
    )
    subprocess.run(["gcc", "-std=c99", "-O2", "main.c", "-o", "main", "-lm"], cwd=folder, check=True)
    made = subprocess.run([folder / "main"], input=SERVED.tobytes(), capture_output=True, check=True)
    return np.frombuffer(made.stdout)


def run_onnx(score_map, folder):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = serving.to_onnx(score_map).SerializeToString()
    return runtime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"score": SERVED})[0]


def run_torch(score_map, folder):
    torch = pytest.importorskip("torch")
    return serving.MapModule(score_map)(torch.from_numpy(SERVED)).numpy()


@pytest.mark.parametrize("run", [run_python, run_sql, run_c, run_onnx, run_torch])
@pytest.mark.parametrize("name", MAPS)
def test_an_export_agrees_with_numpy(name, run, tmp_path):
    np.testing.assert_allclose(run(MAPS[name], tmp_path), MAPS[name](SERVED), rtol=1e-9, atol=0)


# ---------------------------------------------------------------------------- folding

X = RNG.normal(size=(1_000, 6))
Y = (RNG.random(1_000) < expit(X[:, 0] - 0.5)).astype(int)


def of_sklearn():
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression().fit(X, Y)
    return model, lambda m: m.predict_proba(X)[:, 1]


def of_lightgbm():
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 20)
    return model, lambda m: m.predict(X, num_threads=1)


def of_xgboost():
    xgboost = pytest.importorskip("xgboost")
    model = xgboost.XGBClassifier(n_estimators=20, n_jobs=1).fit(X, Y)
    return model, lambda m: m.predict_proba(X)[:, 1]


def of_catboost():
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostClassifier(iterations=20, verbose=False, thread_count=1, allow_writing_files=False)
    return model.fit(X, Y), lambda m: m.predict_proba(X)[:, 1]


def of_torch():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)).double()
    return model, lambda m: expit(m(torch.from_numpy(X)).detach().numpy()[:, 0])


def of_onnx():
    skl2onnx, runtime = pytest.importorskip("skl2onnx"), pytest.importorskip("onnxruntime")
    from sklearn.linear_model import LogisticRegression

    options = {LogisticRegression: {"zipmap": False}}
    model = skl2onnx.to_onnx(LogisticRegression().fit(X, Y), X[:1].astype(np.float32), options=options)

    def predict(m):
        session = runtime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        return session.run(["probabilities"], {session.get_inputs()[0].name: X.astype(np.float32)})[0][:, 1]

    return model, predict


#: Models and the relative error of their arithmetic: some compute in float32.
FAMILIES = [
    (of_sklearn, 1e-9),
    (of_lightgbm, 1e-9),
    (of_xgboost, 1e-5),
    (of_catboost, 1e-9),
    (of_torch, 1e-9),
    (of_onnx, 1e-5),
]


@pytest.mark.parametrize(("family", "rtol"), FAMILIES)
def test_a_folded_model_is_the_map_after_the_model(family, rtol):
    model, predict = family()
    score_map = Affine(0.8, -0.3)
    before = predict(model)
    after = predict(fold(score_map, model))
    np.testing.assert_allclose(after, score_map(logit(before.astype(np.float64))), rtol=rtol)
    np.testing.assert_array_equal(predict(model), before)
