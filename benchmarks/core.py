"""The contests: what is asked of `uncurse`, the floor under it, and peers at their best.

Peers get their inputs ready made in the form they like best (probabilities, float64, small labels).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from scipy.special import expit

import uncurse

from .harness import Contest, Contestant, Inputs

ALPHAS = [a / 100 for a in range(2, 11)]
BINS = 50


# ---------------------------------------------------------------------------- 1. fit


def _pool(rows: int) -> Inputs:
    rng = np.random.default_rng(1)
    truth = rng.normal(-3, 1, (rows, 1))
    return {"pool": (truth + rng.normal(0, 0.3, (rows, 2))).astype(np.float32)}


def _multi_pass(x: Inputs) -> float:
    """Algorithm 1 of the paper as one writes it in numpy; centring by a float64 mean makes float64 arrays."""
    pool = x["pool"]
    centred = pool - pool.mean(axis=0, dtype=np.float64)
    noise = centred.var(axis=1, ddof=1).mean()
    return float(1 - noise / pool[:, 0].var(dtype=np.float64))


def _difference(x: Inputs) -> float:
    """For two replicas V is half the variance of their difference: the best that plain numpy can do."""
    pool = x["pool"]
    noise = (pool[:, 0] - pool[:, 1]).var(dtype=np.float64) / 2
    return float(1 - noise / pool[:, 0].var(dtype=np.float64))


def fit() -> list[Contest]:
    """One pass over a pool of two replicas."""
    contestants = (
        Contestant("np.sum of the pool", "floor", lambda x: np.sum(x["pool"])),
        Contestant("VAD().fit(pool)", "ours", lambda x: uncurse.VAD().fit(x["pool"]).lambda_),
        Contestant("the paper's formula, numpy", "peer", _multi_pass),
        Contestant("half the variance of the difference, numpy", "also", _difference),
    )
    return [
        Contest(
            "fit",
            "VAD.fit, (n, 2) float32 logits",
            _pool,
            contestants,
            most_of_floor=4,
            least_speedup=20,
            most_megabytes=64,
            compare=lambda x, ours, other: {"|Δλ|": abs(ours - other)},
        )
    ]


# ---------------------------------------------------------------------------- 2. calibrators


def _labelled(rows: int) -> Inputs:
    rng = np.random.default_rng(2)
    scores = rng.normal(-3, 1.2, rows)
    labels = (rng.random(rows) < _truth(scores)).astype(np.int8)
    return {"scores": scores, "labels": labels, "probabilities": expit(scores)}


def _truth(scores: np.ndarray) -> np.ndarray:
    return expit(0.8 * scores - 0.3)


# A calibrator's result is its prediction, a function of logits; None where the peer has none to give.
Predict = Callable[[np.ndarray], np.ndarray] | None


def _ours(method: str, **options: Any) -> Callable[[Inputs], Predict]:
    return lambda x: uncurse.calibrate(method, x["scores"], x["labels"], **options)


def _sklearn_logistic(solver: str) -> Callable[[Inputs], Predict]:
    def call(x: Inputs) -> Predict:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=np.inf, solver=solver).fit(x["scores"][:, None], x["labels"])
        return lambda l: model.predict_proba(l[:, None])[:, 1]

    return call


def _sklearn_isotonic(x: Inputs) -> Predict:
    from sklearn.isotonic import IsotonicRegression

    return IsotonicRegression(out_of_bounds="clip").fit(x["scores"], x["labels"]).predict


def _sklearn_curve(strategy: str) -> Callable[[Inputs], Predict]:
    def call(x: Inputs) -> Predict:
        from sklearn.calibration import calibration_curve

        calibration_curve(x["labels"], x["probabilities"], n_bins=BINS, strategy=strategy)
        return None  # it gives the means of bins, not their edges

    return call


def _netcal(name: str, **options: Any) -> Callable[[Inputs], Predict]:
    def call(x: Inputs) -> Predict:
        from netcal import binning, scaling

        kind = getattr(scaling, name, None) or getattr(binning, name)
        quiet = {"tensorboard": False} if hasattr(scaling, name) else {}
        model = kind(**options).fit(x["probabilities"], x["labels"], **quiet)
        # netcal fits bins of equal count but cannot predict from them.
        return (lambda l: model.transform(expit(l))) if options.get("equal_intervals", True) else None

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


def _far(x: Inputs, ours: Predict, other: Predict) -> dict[str, float]:
    """|difference| from ours over the top 1% of 100,000 scores and over the 1% in the middle; the error at the top.

    An edge between steps that lies a cell further on shows in the largest difference, not in the median.
    """
    if ours is None or other is None:
        return {}
    l = np.sort(x["scores"][:100_000])
    one = max(1, len(l) // 100)
    high, half = l[-one:], l[(len(l) - one) // 2 :][:one]
    top, middle = (np.abs(ours(part) - other(part)) for part in (high, half))
    error = np.sqrt(np.mean(np.square(other(high) - _truth(high))))
    return {
        "|Δ| top, max": top.max(),
        "|Δ| top, median": np.median(top),
        "|Δ| middle, max": middle.max(),
        "rms to truth, top": error,
    }


def calibrate() -> list[Contest]:
    """Calibrators by name; ours takes the grid of cells at these sizes, and exact=True is printed beside it."""
    peers: dict[str, dict[str, Callable[[Inputs], Predict]]] = {
        "platt": {
            "scikit-learn LogisticRegression, newton-cg": _sklearn_logistic("newton-cg"),
            "scikit-learn LogisticRegression, newton-cholesky": _sklearn_logistic("newton-cholesky"),
            "scikit-learn LogisticRegression, lbfgs": _sklearn_logistic("lbfgs"),
            "netcal LogisticCalibration": _netcal("LogisticCalibration"),
            "uncertainty-calibration PlattCalibrator": _uncertainty_calibration("PlattCalibrator"),
        },
        "isotonic": {
            "scikit-learn IsotonicRegression": _sklearn_isotonic,
            "netcal IsotonicRegression": _netcal("IsotonicRegression"),
        },
        "beta": {"netcal BetaCalibration": _netcal("BetaCalibration"), "betacal BetaCalibration": _betacal},
        "scaling-binning": {
            "uncertainty-calibration PlattBinnerCalibrator": _uncertainty_calibration("PlattBinnerCalibrator")
        },
        "histogram": {
            "scikit-learn calibration_curve, quantile": _sklearn_curve("quantile"),
            "netcal HistogramBinning, equal count": _netcal("HistogramBinning", bins=BINS, equal_intervals=False),
            "uncertainty-calibration HistogramCalibrator": _uncertainty_calibration("HistogramCalibrator"),
        },
        "histogram-uniform": {
            "scikit-learn calibration_curve, uniform": _sklearn_curve("uniform"),
            "netcal HistogramBinning, equal width": _netcal("HistogramBinning", bins=BINS, equal_intervals=True),
        },
    }
    contests = []
    for name, calls in peers.items():
        method = name.removesuffix("-uniform")
        options: dict[str, Any] = {"n_bins": BINS} if method in ("histogram", "scaling-binning") else {}
        if method != name:
            options["strategy"] = "uniform"
        contestants = [
            Contestant("np.sum of scores and of labels", "floor", lambda x: (x["scores"].sum(), x["labels"].sum())),
            Contestant(f"uncurse.calibrate({method!r})", "ours", _ours(method, **options)),
            Contestant(f"uncurse.calibrate({method!r}, exact=True)", "also", _ours(method, exact=True, **options)),
            *(Contestant(peer, "peer", call) for peer, call in calls.items()),
        ]
        contests.append(
            Contest(
                name,
                f"{name}, n float64 logits",
                _labelled,
                tuple(contestants),
                least_speedup=3 if method == "histogram" else 5,
                most_of_memory=1 / 3,
                compare=_far,
            )
        )
    return contests


# ---------------------------------------------------------------------------- 3. evaluate


def _predictions(rows: int) -> Inputs:
    x = _labelled(rows)
    return {"p": x["probabilities"].astype(np.float32), "y": x["labels"]}


Metrics = np.ndarray  # (alphas, 5): ratio, ECE, MCE, log loss, Brier


def _evaluate(x: Inputs) -> Metrics:
    result = uncurse.evaluate(x["y"], x["p"], ALPHAS)
    return np.stack([result.column(name) for name in ("ratio", "ece", "mce", "log_loss", "brier")], axis=1)


def _plain_scores(t: np.ndarray, f: np.ndarray) -> tuple[float, float]:
    return float(-np.where(t, np.log(f), np.log1p(-f)).mean()), float(np.square(t - f).mean())


def _sklearn_scores(t: np.ndarray, f: np.ndarray) -> tuple[float, float]:
    from sklearn.metrics import brier_score_loss, log_loss

    return log_loss(t, f), brier_score_loss(t, f)


def _select_and_sort(scores: Callable[..., tuple[float, float]]) -> Callable[[Inputs], Metrics]:
    """For every α anew: find the cut, take what is above, sort it, and measure."""

    def call(x: Inputs) -> Metrics:
        rows = []
        for alpha in ALPHAS:
            p, y = x["p"], x["y"]
            count = int(alpha * len(p) + 0.5)
            keep = np.flatnonzero(p >= np.partition(p, len(p) - count)[len(p) - count])
            f, t = p[keep].astype(np.float64), y[keep]
            order = np.argsort(f)
            f, t = f[order], t[order]
            bins = zip(np.array_split(f, 10), np.array_split(t, 10), strict=True)
            gaps = np.array([abs(part.mean() - labels.mean()) for part, labels in bins])
            rows.append((f.sum() / t.sum(), gaps.mean(), gaps.max(), *scores(t, f)))
        return np.array(rows)

    return call


def _sort_once(x: Inputs) -> Metrics:
    """What a careful hand writes instead: one cut, one sort, running sums for all nine; no errors, no floors."""
    p, y = x["p"], x["y"]
    count = int(max(ALPHAS) * len(p) + 0.5)
    keep = np.flatnonzero(p >= np.partition(p, len(p) - count)[len(p) - count])
    f, t = p[keep].astype(np.float64), y[keep]
    order = np.argsort(-f)
    f, t = f[order], t[order]
    terms = (f, t, -np.where(t, np.log(f), np.log1p(-f)), np.square(t - f))
    sums = [np.append(0.0, np.cumsum(term)) for term in terms]
    rows = []
    for alpha in ALPHAS:
        n = int(alpha * len(p) + 0.5)
        ends = np.round(np.linspace(0, n, 11)).astype(int)
        gaps = np.abs(np.diff(sums[0][ends] - sums[1][ends]) / np.diff(ends))
        rows.append((sums[0][n] / sums[1][n], gaps.mean(), gaps.max(), sums[2][n] / n, sums[3][n] / n))
    return np.array(rows)


def evaluation() -> list[Contest]:
    """Nine selections from one array."""
    contestants = (
        Contestant("one np.sort of the predictions", "floor", lambda x: np.sort(x["p"])),
        Contestant("evaluate(y, p, nine alphas)", "ours", _evaluate),
        Contestant("select and sort, numpy", "peer", _select_and_sort(_plain_scores)),
        Contestant("select and sort, scikit-learn metrics", "peer", _select_and_sort(_sklearn_scores)),
        Contestant("one cut, one sort, running sums, numpy", "also", _sort_once),
    )

    def compare(x: Inputs, ours: Metrics, other: Metrics) -> dict[str, float]:
        away = np.abs(ours / other - 1).max(axis=0)
        return {f"Δ {name}, rel.": float(away[i]) for i, name in ((0, "ratio"), (1, "ECE"), (3, "log loss"))}

    return [
        Contest(
            "evaluate",
            "evaluate, α = 2% … 10%, n float32 predictions",
            _predictions,
            contestants,
            most_of_floor=5,
            least_speedup=10,
            compare=compare,
        )
    ]


# ---------------------------------------------------------------------------- 4. predict


@cache
def _fitted() -> uncurse.VAD:
    return uncurse.VAD().fit(_pool(100_000)["pool"])


def predict() -> list[Contest]:
    """Serving: a sigmoid, and little more."""

    def contest(dtype: type) -> Contest:
        def served(rows: int) -> Inputs:
            return {"l": np.random.default_rng(4).normal(-3, 1.2, rows).astype(dtype), "vad": _fitted()}

        name = np.dtype(dtype).name
        contestants = (
            Contestant("scipy.special.expit(l)", "floor", lambda x: expit(x["l"])),
            Contestant("VAD.predict_proba(l)", "ours", lambda x: x["vad"].predict_proba(x["l"])),
        )
        return Contest(f"predict-{name}", f"VAD.predict_proba, n {name} logits", served, contestants, most_of_floor=1.3)

    return [contest(np.float32), contest(np.float64)]


# ---------------------------------------------------------------------------- 5. the synthetic experiment


def _replications(rows: int) -> Inputs:
    return {"replications": max(2, round(100 * min(1.0, rows / 1e7)))}


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


def synthetic() -> list[Contest]:
    """The whole experiment against drawing its random numbers."""
    contestants = (
        Contestant("drawing its random numbers", "floor", _draws),
        Contestant("experiments.paper.synthetic.run", "ours", _experiment),
    )
    title = "the synthetic experiment, 100 replications (fewer where there are fewer than 1e7 rows)"
    return [Contest("synthetic", title, _replications, contestants, most_of_floor=3)]


#: Sections of the command line.
SECTIONS: dict[str, Callable[[], list[Contest]]] = {
    "fit": fit,
    "calibrate": calibrate,
    "evaluate": evaluation,
    "predict": predict,
    "synthetic": synthetic,
}


def find(name: str) -> Contest:
    """The contest of that name."""
    return next(contest for section in SECTIONS.values() for contest in section() if contest.name == name)
