"""``python -m benchmarks.serving [MODEL]... [--seconds 20]``: a folded model against the model itself.

For one row and for 10,000: the model, the folded model, the same model loaded once more (whatever it differs by is
noise), and the model served twice, as double learning does. Calls are interleaved in a new order every round, on one
thread, four copies of each take turns, and the least time counts. An ONNX model also with a curve of 128 knots in it,
which is not free.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from uncurse import Affine, Curve, fold

MAP = Affine(0.83, -0.21)
FEATURES, ROWS = 20, 20_000
SIZES = (1, 10_000)
WITHIN = 0.02
COPIES = 4

Call = Callable[[np.ndarray], Any]
Made = tuple[Any, Callable[[Any], Call]]  # a model; and how one is saved, loaded and called


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, FEATURES)).astype(np.float32)
    return X, (rng.random(ROWS) < 1 / (1 + np.exp(2 - X[:, 0] - X[:, 1] * X[:, 2]))).astype(int)


def curve() -> Curve:
    x = np.linspace(-6, 6, 128)
    return Curve(x.tolist(), (0.83 * x - 0.21 + 0.1 * np.sin(x)).tolist(), 0.83, 0.83)


# Each makes a model, and says how one is served: saved, loaded and called, so that all come about in one way.


def lightgbm_model() -> Made:
    import lightgbm

    parameters = {"objective": "binary", "verbosity": -1, "num_threads": 1, "num_leaves": 63}

    def serve(model: Any) -> Call:
        loaded = lightgbm.Booster(parameters, model_str=model.model_to_string())
        return lambda x: loaded.predict(x, num_threads=1)

    return lightgbm.train(parameters, lightgbm.Dataset(*data()), 100), serve


def xgboost_model() -> Made:
    import xgboost

    parameters = {"objective": "binary:logistic", "nthread": 1, "max_depth": 6}

    def serve(model: Any) -> Call:
        return xgboost.Booster({"nthread": 1}, model_file=bytearray(model.save_raw("ubj"))).inplace_predict

    return xgboost.train(parameters, xgboost.DMatrix(*data()), 100), serve


def catboost_model() -> Made:
    import catboost

    def serve(model: Any) -> Call:
        loaded = catboost.CatBoostClassifier()
        loaded.load_model(blob=model._serialize_model())
        return lambda x: loaded.predict_proba(x, thread_count=1)

    options = {"iterations": 100, "verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return catboost.CatBoostClassifier(**options).fit(*data()), serve


def sklearn_model() -> Made:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(*data())
    return model, lambda m: copy.deepcopy(m).predict_proba


def torch_model() -> Made:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 1), nn.Sigmoid()

    def serve(m: Any) -> Call:
        loaded = copy.deepcopy(m)

        def run(x: np.ndarray) -> Any:
            with torch.inference_mode():
                return loaded(torch.from_numpy(x))

        return run

    return nn.Sequential(*layers).eval(), serve


def onnx_model() -> Made:
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


def contest(name: str, seconds: float) -> None:
    model, serve = MODELS[name]()

    def both(first: Call, second: Call) -> Call:
        return lambda x: (first(x), second(x))

    # Several copies of each: where in memory one of them lies is worth some percent.
    calls: dict[str, list[Call]] = {"model": [], "folded": [], "again": [], "two served": []}
    for _ in range(COPIES):
        calls["model"].append(serve(model))
        calls["folded"].append(serve(fold(MAP, model)))
        calls["again"].append(serve(model))
        calls["two served"].append(both(serve(model), serve(model)))
        if name == "ONNX Runtime":
            calls.setdefault("with a curve", []).append(serve(fold(curve(), model)))
    X = data()[0]
    rng = np.random.default_rng(0)
    for rows in SIZES:
        x = np.ascontiguousarray(X[:rows])
        least = dict.fromkeys(calls, np.inf)
        end, rounds = time.perf_counter() + seconds, 0
        while rounds < 40 * COPIES or time.perf_counter() < end:
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=f"any of {', '.join(MODELS)}; all by default")
    parser.add_argument("--seconds", type=float, default=20.0, help="for each model and size")
    arguments = parser.parse_args()
    for name in arguments.names:
        if name not in MODELS:
            parser.error(f"{name!r} is unknown; choose from {', '.join(MODELS)}")
    import torch

    torch.set_num_threads(1)
    bar = f"folded within {1 - WITHIN:g} to {1 + WITHIN:g} of the model on a quiet machine"
    print(f"load {os.getloadavg()[0]:.1f}; bar: {bar}")
    for name in arguments.names or MODELS:
        contest(name, arguments.seconds)
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
