"""Properties that every result must have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from uncurse.maps import Grouped, ScoreMap, load

from .engine import Call, Fault, Refused

#: Predictions of one fit, computed in another order, may differ by rounding only.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
_ROUNDING = 1e-13


def served_scores(call: Call, scale: str, *near: Any) -> np.ndarray:
    """Return distinct served scores in order: extreme ones, and the neighbourhood of `near`."""
    points = [
        np.linspace(-15, 15, 41),
        call.rng.normal(-2, 3, 40),
        [-1e300, -1e9, -800.0, -40.0, 40.0, 800.0, 1e9, 1e300],
    ]
    for values in near:
        plain = np.asarray(values, float).ravel()[:50]
        points += [plain, np.nextafter(plain, np.inf), np.nextafter(plain, -np.inf)]
    scores = np.unique(np.concatenate([np.asarray(p, float) for p in points]))
    if scale == "probability":
        with np.errstate(over="ignore"):
            inside = scores[(scores >= 0) & (scores <= 1)]
            scores = np.unique(np.concatenate([1 / (1 + np.exp(-scores)), inside, [0.0, 1e-300, 1.0]]))
    finite: np.ndarray = scores[np.isfinite(scores)]
    return finite


def one_map(score_map: ScoreMap) -> ScoreMap:
    """Return a map that needs no groups: of a map by group, the default."""
    return score_map.default if isinstance(score_map, Grouped) else score_map


def check_map(call: Call, score_map: ScoreMap, *near: Any, monotone: bool = True) -> None:
    """Check that predictions are finite, in range, in order, and the same after a round trip through a file."""
    scores = served_scores(call, score_map.scale, *near)
    predictions = call.call(one_map(score_map), scores)
    check_predictions(scores, predictions, probability=score_map.scale != "value", monotone=monotone)
    path = call.folder / "map.json"
    call.call(score_map.save, path)
    again = call.read_back(load, path)
    check_equal("a prediction after save and load", one_map(again)(scores), predictions)
    order = call.rng.permutation(len(scores))
    check_equal("a prediction of permuted served scores", one_map(score_map)(scores[order]), predictions[order])


def check_predictions(scores: np.ndarray, predictions: np.ndarray, *, probability: bool, monotone: bool = True) -> None:
    """Check that predictions are finite, in range and in the order of their scores."""
    check_finite("a prediction", predictions)
    predictions = np.atleast_1d(predictions)
    if probability and not ((predictions >= 0) & (predictions <= 1)).all():
        raise Fault(f"OutOfRange: predictions from {predictions.min()} to {predictions.max()}")
    # Rounding of the link, and of the normal distribution function most of all, may reverse close predictions.
    falls = predictions[:-1] / 2 - predictions[1:] / 2 > _ROUNDING * np.abs(predictions[1:])
    if monotone and falls.any():
        worst = int(np.argmax(falls))
        raise Fault(
            f"NotMonotone: scores {scores[worst]!r} < {scores[worst + 1]!r} but predictions "
            f"{predictions[worst]!r} > {predictions[worst + 1]!r}"
        )


def check_finite(what: str, values: Any) -> None:
    """Check that a number, an array, or numbers in a tuple, a list or a dictionary are finite."""
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, tuple | list):
        for value in values:
            check_finite(what, value)
    elif isinstance(values, float | int | np.ndarray | np.number) and not np.isfinite(values).all():
        raise Fault(f"NotFinite: {what} is {values if np.ndim(values) == 0 else 'not finite'}")


def check_equal(what: str, one: Any, other: Any) -> None:
    """Check that two arrays are equal, bit for bit."""
    if not np.array_equal(one, other):
        raise Fault(f"Changed: {what} changed by {np.max(np.abs(np.subtract(one, other)))}")


def check_close(what: str, one: Any, other: Any, relative: float = RELATIVE, absolute: float = ABSOLUTE) -> None:
    """Check that two arrays are equal up to rounding."""
    one, other = np.asarray(one, float), np.asarray(other, float)
    if one.shape != other.shape or not np.allclose(one, other, rtol=relative, atol=absolute):
        worst = np.max(np.abs(one - other)) if one.shape == other.shape else "its shape"
        raise Fault(f"Depends on {what}: the result changes by {worst}")


def check_invariant(
    call: Call, what: str, fit: Callable[[], Any], other: Callable[[], Any], absolute: float = ABSOLUTE
) -> None:
    """Check that two ways to fit the same rows give the same numbers, or that both are refused."""
    outcomes = []
    for function in (fit, other):
        try:
            outcomes.append(function())
        except Refused as error:
            outcomes.append(str(error))
    refused = [isinstance(outcome, str) for outcome in outcomes]
    if refused[0] != refused[1]:
        raise Fault(f"Depends on {what}: only one is refused, with {outcomes[refused.index(True)]!r}")
    if not refused[0]:
        check_close(what, outcomes[0], outcomes[1], absolute=absolute)


def check_fit(
    call: Call,
    fit: Callable[..., Any],
    rows: tuple[np.ndarray, ...],
    weights: np.ndarray | None,
    absolute: float = ABSOLUTE,
) -> None:
    """Check that a fit depends neither on the order of rows nor on the scale of weights.

    Parameters
    ----------
    call : Call
        Draws the permutation.
    fit : callable
        Takes the rows and `weights`, and returns an array of numbers.
    rows : tuple of ndarray
        Arrays with a row each: scores, and perhaps labels and groups.
    weights : ndarray or None
        One weight per row.
    absolute : float
        Difference that rounding may make.
    """
    if not call.moderate or call.broken:
        return
    order = call.rng.permutation(len(rows[0]))
    permuted = None if weights is None else weights[order]
    factor = call.one_of(2.0**-20, 2.0**20)  # powers of two: the products are exact
    scaled = np.full(len(rows[0]), factor) if weights is None else weights * factor
    others = {
        "the order of rows": lambda: fit(*(part[order] for part in rows), permuted),
        f"weights times {factor:.0e}": lambda: fit(*rows, scaled),
    }
    for what, other in others.items():
        check_invariant(call, what, lambda: fit(*rows, weights), other, absolute)


__all__ = [
    "check_close",
    "check_equal",
    "check_finite",
    "check_fit",
    "check_invariant",
    "check_map",
    "check_predictions",
    "served_scores",
]
