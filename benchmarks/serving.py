"""``python -m benchmarks.serving [MODEL]... [--seconds 4] [--json FILE]``: a folded model against the model itself.

For one row and for 10,000: the model, the folded model, the same model loaded once more (whatever it differs by is
noise), and the model served twice, as double learning does. Calls are interleaved in a new order every round, on one
thread, four copies of each take turns, and the least time counts. An ONNX model also with a curve of 128 knots in it,
which is not free.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from uncurse import Affine, Curve, fold

MAP = Affine(0.83, -0.21)
FEATURES, ROWS = 20, 20_000
SIZES = (1, 10_000)
WITHIN = 0.02
COPIES = 4

Call = Callable[[np.ndarray], Any]
Served = dict[str, Any]


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return X, (rng.random(ROWS) < 1 / (1 + np.exp(2 - X[:, 0] - X[:, 1] * X[:, 2]))).astype(int)


def curve() -> Curve:
    x = np.linspace(-6, 6, 128)
    return Curve(x.tolist(), (0.83 * x - 0.21 + 0.1 * np.sin(x)).tolist(), 0.83, 0.83)


# Each makes the model, and says how a model is called.


def lightgbm_model() -> tuple[Any, Callable[[Any], Call]]:
    import lightgbm

    parameters = {"objective": "binary", "verbosity": -1, "num_threads": 1, "num_leaves": 63}
    model = lightgbm.train(parameters, lightgbm.Dataset(*data()), 100)
    return lightgbm.Booster(
        parameters, model_str=model.model_to_string()
    ), lambda m: lambda x: m.predict(x, num_threads=1)


def xgboost_model() -> tuple[Any, Callable[[Any], Call]]:
    import xgboost

    parameters = {"objective": "binary:logistic", "nthread": 1, "max_depth": 6}
    model = xgboost.train(parameters, xgboost.DMatrix(*data()), 100)
    again = xgboost.Booster(model_file=bytearray(model.save_raw("ubj")))

    def call(m: Any) -> Call:
        m.set_param({"nthread": 1})
        return m.inplace_predict

    return again, call


def catboost_model() -> tuple[Any, Callable[[Any], Call]]:
    import catboost

    model = catboost.CatBoostClassifier(iterations=100, verbose=0, thread_count=1, allow_writing_files=False).fit(
        *data()
    )
    again = catboost.CatBoostClassifier()
    again.load_model(blob=model._serialize_model())
    return again, lambda m: lambda x: m.predict_proba(x, thread_count=1)


def sklearn_model() -> tuple[Any, Callable[[Any], Call]]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), LogisticRegression()).fit(*data()), lambda m: m.predict_proba


def torch_model() -> tuple[Any, Callable[[Any], Call]]:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid()

    def call(m: Any) -> Call:
        def run(x: np.ndarray) -> Any:
            with torch.inference_mode():
                return m(torch.from_numpy(x))

        return run

    return nn.Sequential(*layers).eval(), call


def onnx_model() -> tuple[Any, Callable[[Any], Call]]:
    from skl2onnx import to_onnx
    from sklearn.neural_network import MLPClassifier

    X, y = data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MLPClassifier((256, 128), max_iter=2, random_state=0).fit(X, y)
    return to_onnx(model, X[:1], options={"zipmap": False}), session


def session(model: Any) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    made = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: made.run(None, {"X": x})


MODELS = {
    "LightGBM": lightgbm_model,
    "XGBoost": xgboost_model,
    "CatBoost": catboost_model,
    "scikit-learn": sklearn_model,
    "torch": torch_model,
    "ONNX Runtime": onnx_model,
}


def contest(name: str, seconds: float) -> list[dict[str, Any]]:
    model, call = MODELS[name]()

    def both(first: Call, second: Call) -> Call:
        return lambda x: (first(x), second(x))

    # Several copies of each: where in memory one of them lies is worth some percent.
    calls: dict[str, list[Call]] = {"model": [], "folded": [], "again": [], "two served": []}
    for _ in range(COPIES):
        for one in ("model", "again"):
            calls[one].append(call(copy.deepcopy(model)))
        calls["folded"].append(call(fold(MAP, model)))
        calls["two served"].append(both(call(copy.deepcopy(model)), call(copy.deepcopy(model))))
        if name == "ONNX Runtime":
            calls.setdefault("with a curve", []).append(call(fold(curve(), model)))
    X = data()[0]
    found = []
    rng = np.random.default_rng(0)
    for rows in SIZES:
        x = np.ascontiguousarray(X[:rows])
        least = dict.fromkeys(calls, np.inf)
        end, rounds = time.perf_counter() + seconds, 0
        while rounds < 10 * COPIES or time.perf_counter() < end:
            for one in rng.permutation(list(calls)).tolist():
                run = calls[one][rounds % COPIES]
                start = time.perf_counter()
                run(x)
                least[one] = min(least[one], time.perf_counter() - start)
            rounds += 1
        ratio = {one: t / least["model"] for one, t in least.items()}
        met = abs(ratio["folded"] - 1) <= WITHIN
        line = f"{name:<13} {rows:>6,} rows {1e6 * least['model']:>10,.1f} µs   folded {ratio['folded']:.3f}"
        line += f"   again {ratio['again']:.3f}   two served {ratio['two served']:.2f}"
        line += f"   with a curve {ratio['with a curve']:.2f}" if "with a curve" in ratio else ""
        print(f"{line}   {rounds:,} rounds{'' if met else '   MISSED'}", flush=True)
        found.append({"model": name, "rows": rows, "seconds": least, "ratios": ratio, "rounds": rounds})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"any of {', '.join(MODELS)}; all by default")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each model and size")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MODELS:
            parser.error(f"{name!r} is unknown; choose from {', '.join(MODELS)}")
    import torch

    torch.set_num_threads(1)
    bar = f"folded within {1 - WITHIN:g} to {1 + WITHIN:g} of the model on a quiet machine"
    print(f"load {os.getloadavg()[0]:.1f}; bar: {bar}")
    found = [one for name in arguments.names or MODELS for one in contest(name, arguments.seconds)]
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
