"""Every export agrees with the map in NumPy."""

import shutil
import subprocess

import numpy as np
import pytest
from scipy.special import expit

from uncurse import VAD, ReplicaCalibrator, calibrate, serving

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
