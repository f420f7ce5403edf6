"""The contests of ``python -m benchmarks``: arrays in memory against a floor and peers.

Peers get their inputs in the form they like best (probabilities, float64, small labels).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.special import expit

import uncurse

from .harness import Contest, Inputs

ALPHAS = [a / 100 for a in range(2, 11)]
BINS = 50
NAMES = (
    "fit", "predict-float32", "predict-float64", "evaluate", "platt", "isotonic", "beta", "scaling-binning",
    "histogram", "histogram-uniform", "synthetic",
)  # fmt: skip


def contest(name: str) -> Contest:
    """Return the contest of that name."""
    if name in CALIBRATORS:
        return calibrate(name)
    return (
        predict(name)
        if name.startswith("predict")
        else {"fit": fit, "evaluate": evaluate, "synthetic": synthetic}[name]()
    )


# ---------------------------------------------------------------------------- fit and predict


def _pool(rows: int) -> Inputs:
    rng = np.random.default_rng(1)
    truth = rng.normal(-3, 1, (rows, 1))
    return {"pool": (truth + rng.normal(0, 0.3, (rows, 2))).astype(np.float32)}


def _vad() -> uncurse.VAD:
    return uncurse.VAD(scale="logit", replicas="seeds")


def _multi_pass(x: Inputs) -> float:
    """Algorithm 1 of the paper as one writes it in numpy; centering by a float64 mean makes float64 arrays."""
    pool = x["pool"]
    centered = pool - pool.mean(axis=0, dtype=np.float64)
    noise = centered.var(axis=1, ddof=1).mean()
    return float(1 - noise / pool[:, 0].var(dtype=np.float64))


def _difference(x: Inputs) -> float:
    """For two replicas V is half the variance of their difference: the best that plain numpy can do."""
    pool = x["pool"]
    noise = (pool[:, 0] - pool[:, 1]).var(dtype=np.float64) / 2
    return float(1 - noise / pool[:, 0].var(dtype=np.float64))


def fit() -> Contest:
    """One pass over a pool of two replicas."""
    return Contest(
        "VAD.fit, (n, 2) float32 logits",
        _pool,
        {
            "np.sum of the pool": lambda x: np.sum(x["pool"]),
            "VAD.fit(pool)": lambda x: _vad().fit(x["pool"]).lambda_,
            "the paper's formula, numpy": _multi_pass,
            "by hand: half the variance of the difference": _difference,
        },
        most_of_floor=4,
        least_speedup=20,
        most_megabytes=64,
        compare=lambda x, ours, other: {"|Δλ|": abs(ours - other)},
    )


@cache
def _fitted() -> uncurse.VAD:
    return _vad().fit(_pool(100_000)["pool"])


def predict(name: str) -> Contest:
    """Serving: a sigmoid, and little more."""
    dtype = name.partition("-")[2]
    return Contest(
        f"VAD.predict_proba, n {dtype} logits",
        lambda rows: {"l": np.random.default_rng(4).normal(-3, 1.2, rows).astype(dtype), "vad": _fitted()},
        {
            "scipy.special.expit(l)": lambda x: expit(x["l"]),
            "VAD.predict_proba(l)": lambda x: x["vad"].predict_proba(x["l"]),
        },
        most_of_floor=1.3,
    )


# ---------------------------------------------------------------------------- calibrators


def _labeled(rows: int) -> Inputs:
    rng = np.random.default_rng(2)
    scores = rng.normal(-3, 1.2, rows)
    labels = (rng.random(rows) < _truth(scores)).astype(np.int8)
    return {"scores": scores, "labels": labels, "probabilities": expit(scores)}


def _truth(scores: np.ndarray) -> np.ndarray:
    return expit(0.8 * scores - 0.3)


# A calibrator's result is its prediction, a function of logits; None where the peer has none to give.
Predict = Callable[[np.ndarray], np.ndarray] | None


def _sklearn_logistic(x: Inputs) -> Predict:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=np.inf, solver="newton-cholesky").fit(x["scores"][:, None], x["labels"])
    return lambda l: model.predict_proba(l[:, None])[:, 1]


def _sklearn_isotonic(x: Inputs) -> Predict:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip").fit(x["scores"], x["labels"]).predict


def _sklearn_curve(strategy: str) -> Callable[[Inputs], Predict]:
    def call(x: Inputs) -> Predict:
        from sklearn.calibration import calibration_curve

        calibration_curve(x["labels"], x["probabilities"], n_bins=BINS, strategy=strategy)
        return None  # it gives the means of bins, not their edges

    return call


def _uncertainty_calibration(name: str) -> Callable[[Inputs], Predict]:
    def call(x: Inputs) -> Predict:
        import calibration

        model = getattr(calibration, name)(len(x["labels"]), BINS)
        model.train_calibration(x["probabilities"], x["labels"])
        return lambda l: model.calibrate(expit(l))

    return call


def _betacal(x: Inputs) -> Predict:
    import betacal

    model = betacal.BetaCalibration("abm").fit(x["probabilities"], x["labels"])
    return lambda l: model.predict(expit(l))


#: Peers by calibrator.
CALIBRATORS: dict[str, dict[str, Callable[[Inputs], Predict]]] = {
    "platt": {
        "scikit-learn, newton-cholesky": _sklearn_logistic,
        "uncertainty-calibration, Platt": _uncertainty_calibration("PlattCalibrator"),
    },
    "isotonic": {"scikit-learn IsotonicRegression": _sklearn_isotonic},
    "beta": {"betacal": _betacal},
    "scaling-binning": {"uncertainty-calibration, Platt + bins": _uncertainty_calibration("PlattBinnerCalibrator")},
    "histogram": {"scikit-learn calibration_curve, quantile": _sklearn_curve("quantile")},
    "histogram-uniform": {"scikit-learn calibration_curve, uniform": _sklearn_curve("uniform")},
}


def _far(x: Inputs, ours: Predict, other: Predict) -> dict[str, float]:
    """Return the differences from ours over the top 1% of 100,000 scores, and the error of a peer there."""
    if ours is None or other is None:
        return {}
    high = np.sort(x["scores"][:100_000])[-len(x["scores"][:100_000]) // 100 :]
    far = np.abs(ours(high) - other(high))
    error = np.sqrt(np.mean(np.square(other(high) - _truth(high))))
    return {"|Δ| top, max": far.max(), "median": np.median(far), "rms to truth": error}


def calibrate(name: str) -> Contest:
    """A calibrator by name; ours summarizes this many rows by a histogram."""
    method = name.removesuffix("-uniform")
    options: dict[str, Any] = {"n_bins": BINS} if method in ("histogram", "scaling-binning") else {}
    if method != name:
        options["strategy"] = "uniform"
    return Contest(
        f"{name}, n float64 logits",
        _labeled,
        {
            "np.sum of scores and of labels": lambda x: (x["scores"].sum(), x["labels"].sum()),
            f"calibrate({method!r})": lambda x: uncurse.calibrate(method, x["scores"], x["labels"], **options),
            **CALIBRATORS[name],
        },
        least_speedup=3 if method == "histogram" else 5,
        most_of_memory=1 / 3,
        compare=_far,
    )


# ---------------------------------------------------------------------------- evaluate


Metrics = np.ndarray  # (alphas, 5): ratio, ECE, MCE, log loss, Brier


def _predictions(rows: int) -> Inputs:
    x = _labeled(rows)
    return {"p": x["probabilities"].astype(np.float32), "y": x["labels"]}


def _evaluate(x: Inputs) -> Metrics:
    result = uncurse.evaluate(x["y"], x["p"], ALPHAS)
    return np.stack([result.column(name) for name in ("ratio", "ece", "mce", "log_loss", "brier")], axis=1)


def _top(x: Inputs, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest predictions in order, and their labels."""
    p, y = x["p"], x["y"]
    count = int(alpha * len(p) + 0.5)
    keep = np.flatnonzero(p >= np.partition(p, len(p) - count)[len(p) - count])
    order = keep[np.argsort(-p[keep])]
    return p[order].astype(np.float64), y[order]


def _select_and_sort(x: Inputs) -> Metrics:
    """For every α anew: find the cut, take what is above, sort it, and measure."""
    rows = []
    for alpha in ALPHAS:
        f, t = _top(x, alpha)
        bins = zip(np.array_split(f, 10), np.array_split(t, 10), strict=True)
        gaps = np.array([abs(part.mean() - labels.mean()) for part, labels in bins])
        log_loss = -np.where(t, np.log(f), np.log1p(-f)).mean()
        rows.append((f.sum() / t.sum(), gaps.mean(), gaps.max(), log_loss, np.square(t - f).mean()))
    return np.array(rows)


def _sort_once(x: Inputs) -> Metrics:
    """One cut, one sort, running sums for all nine; no errors, no floors."""
    f, t = _top(x, max(ALPHAS))
    terms = (f, t, -np.where(t, np.log(f), np.log1p(-f)), np.square(t - f))
    sums = [np.append(0.0, np.cumsum(term)) for term in terms]
    rows = []
    for alpha in ALPHAS:
        n = int(alpha * len(x["p"]) + 0.5)
        ends = np.round(np.linspace(0, n, 11)).astype(int)
        gaps = np.abs(np.diff(sums[0][ends] - sums[1][ends]) / np.diff(ends))
        rows.append((sums[0][n] / sums[1][n], gaps.mean(), gaps.max(), sums[2][n] / n, sums[3][n] / n))
    return np.array(rows)


def _away(x: Inputs, ours: Metrics, other: Metrics) -> dict[str, float]:
    away = np.abs(ours / other - 1).max(axis=0)
    return {f"Δ {name}, rel.": float(away[i]) for i, name in ((0, "ratio"), (1, "ECE"), (3, "log loss"))}


def evaluate() -> Contest:
    """Nine selections from one array."""
    return Contest(
        "evaluate, α = 2% … 10%, n float32 predictions",
        _predictions,
        {
            "one np.sort of the predictions": lambda x: np.sort(x["p"]),
            "evaluate(y, p, nine alphas)": _evaluate,
            "select and sort, numpy": _select_and_sort,
            "by hand: one cut, one sort, running sums": _sort_once,
        },
        most_of_floor=5,
        least_speedup=10,
        compare=_away,
    )


# ---------------------------------------------------------------------------- the synthetic experiment


def _draws(x: Inputs) -> None:
    """The random numbers of the experiment: features of train, test and pool rows, and their labels."""
    rng = np.random.default_rng(1)
    for _ in range(x["replications"]):
        for rows in (3_000, 30_000, 30_000):
            rng.standard_normal((rows, 20))
            rng.random(rows) < 0.5  # noqa: B015


def _experiment(x: Inputs) -> Any:
    from uncurse_lab.paper.synthetic import run

    return run(replications=x["replications"], seed=1)


def synthetic() -> Contest:
    """The whole experiment against drawing its random numbers."""
    return Contest(
        "the synthetic experiment of the paper, 100 replications (fewer for fewer than 1e7 rows)",
        lambda rows: {"replications": max(2, round(100 * min(1.0, rows / 1e7)))},
        {"drawing its random numbers": _draws, "reproduce synthetic": _experiment},
        most_of_floor=3,
    )
