"""``python -m benchmarks.refresh [--draws 30]``: maps that are refreshed daily, under simulated drifts.

Scores are log odds, N(−2, 1): about one label in six is positive. Each day the map is refreshed with new labels of rows
drawn at random, or of the top 10%, and judged on the next day against the true probabilities. The figure is the root
mean square over ten days and all draws of the relative error of the mean prediction on the top 1, 2, 5 and 10%, and its
mean over shares.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse import Affine, UncurseError, calibrate, refresh
from uncurse.evidence import from_arrays
from uncurse.links import logistic
from uncurse.maps import ScoreMap
from uncurse.text import aligned

Array = NDArray[np.float64]
Rng = np.random.Generator
Drift = Callable[[Array], Array]

MEAN, DAYS, SHARES = -2.0, 10, (0.01, 0.02, 0.05, 0.1)
LABELS = (500, 5_000)
POOL = np.sort(np.random.default_rng(0).normal(MEAN, 1.0, 50_000))[::-1]


def constant(level: float = 0.0, slope: float = 0.0, bend: float = 0.0) -> Callable[[Rng], list[Drift]]:
    """A drift before the first day that stays; the bend is above the top 20%."""
    return lambda rng: [lambda x: level + slope * (x - MEAN) + bend * np.maximum(x - MEAN - 0.84, 0.0)] * (DAYS + 1)


def walk(size: float) -> Callable[[Rng], list[Drift]]:
    """Level and slope take a normal step every day; the slope one of half the size."""

    def draw(rng: Rng) -> list[Drift]:
        levels, slopes = (np.cumsum(rng.normal(0, sd, DAYS + 1)).tolist() for sd in (size, size / 2))
        pairs = zip(levels, slopes, strict=True)
        return [lambda x, a=a, b=b: a + b * (x - MEAN) for a, b in pairs]  # type: ignore[misc]

    return draw


DRIFTS: dict[str, Callable[[Rng], list[Drift]]] = {
    "none": constant(),
    "level +0.1": constant(0.1),
    "level +0.3": constant(0.3),
    "slope -0.15": constant(slope=-0.15),
    "top bent by -0.3": constant(bend=-0.3),
    "walk of 0.05 a day": walk(0.05),
    "walk of 0.15 a day": walk(0.15),
}


def errors(score_map: Any, drift: Drift) -> list[float]:
    """Relative errors of the mean prediction on the top shares."""
    sizes = [int(alpha * len(POOL)) for alpha in SHARES]
    x = POOL[: sizes[-1]]
    predicted, true = score_map(x), logistic(x + drift(x))
    return [float(predicted[:size].sum() / true[:size].sum() - 1) for size in sizes]


def yesterday(x: Array, y: NDArray[np.bool_]) -> ScoreMap:
    """Platt scaling by the labels of one day."""
    try:
        return calibrate("platt", x, y)
    except UncurseError:  # labels that fall as scores rise
        return Affine(1.0, 0.0)


def judge(name: str, labels: int, draws: Iterable[int]) -> dict[str, Array]:
    """Return the errors of each policy, shape (draws · days, shares)."""
    found: dict[str, list[list[float]]] = {}
    for draw in draws:
        rng = np.random.default_rng([draw, labels])
        drifts = DRIFTS[name](rng)
        maps: dict[str, Any] = dict.fromkeys(("fitted once", "Platt, last day", "refresh", "refresh, top 10%"))
        for day, drift in enumerate(drifts):
            for policy, score_map in maps.items():
                if day > 0:
                    predict = Affine(1.0, 0.0) if score_map is None else getattr(score_map, "map", score_map)
                    found.setdefault(policy, []).append(errors(predict, drift))
            x = rng.normal(MEAN, 1.0, labels)
            top = np.sort(rng.normal(MEAN, 1.0, 10 * labels))[-labels:]
            y, y_top = (rng.random(labels) < logistic(rows + drift(rows)) for rows in (x, top))
            maps["Platt, last day"] = yesterday(x, y)
            for policy, rows, outcome in (("refresh", x, y), ("refresh, top 10%", top, y_top)):
                maps[policy] = refresh(maps[policy] or Affine(1.0, 0.0), from_arrays(rows[:, None], outcome))
    return {policy: np.array(each) for policy, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.refresh", description=__doc__)
    parser.add_argument("--draws", type=int, default=30)
    draws = range(parser.parse_args().draws)
    for labels in LABELS:
        rows: list[tuple[str, ...]] = []
        for name in DRIFTS:
            found = judge(name, labels, draws)
            rows = rows or [(f"{labels:,} labels a day", *found)]
            rows.append((name, *(_text(each, len(draws)) for each in found.values())))
        print("\n".join([*aligned(rows), ""]), flush=True)


def _text(found: Array, draws: int) -> str:
    """The rms in percent, and its standard error by a jackknife over draws."""
    squares = np.square(found).reshape(draws, -1, len(SHARES)).mean(axis=1)

    def rms(kept: Array) -> float:
        return float(100 * np.sqrt(kept.mean(axis=0)).mean())

    without = np.array([rms(np.delete(squares, i, axis=0)) for i in range(draws)])
    error = np.sqrt((draws - 1) / draws * np.square(without - without.mean()).sum())
    return f"{rms(squares):.2f} ({error:.2f})"


if __name__ == "__main__":
    main()
