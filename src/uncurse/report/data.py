"""From methods to the plain rows that figures draw and tables print: every number of the page is made here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from ..errors import UncurseError
from ..metrics import Evaluation, SelectionMetrics
from .given import clean, finite

Rows = list[dict[str, Any]]

#: Half the width of a 95% interval, in standard errors.
Z95 = NormalDist().inv_cdf(0.975)
#: The most groups a figure shows; the table beneath it says how many there are.
MOST_GROUPS = 40
# Series of the drift figure: colours that the first methods do not have, so that none is taken for a method.
_DRIFT = (6, 4, 5, 3, 2, 1, 0)


@dataclass(frozen=True)
class Method:
    """One way to predict, and how it did: the scores as served, or a map of them.

    Parameters
    ----------
    name
        Shown as text, whatever is in it.
    evaluation
        From `uncurse.evaluate` or `uncurse.metrics.evaluate_cells`; all methods of a report on the same shares.
    about
        What a fit says of itself (λ, its error, groups, summaries of pool and labelled scores); every key optional,
        and one of another shape than `about_fit` gives it is not shown.
    """

    name: str
    evaluation: Evaluation
    about: Mapping[str, Any] | None = None


def check(methods: Sequence[Method]) -> tuple[Method, ...]:
    """At least one method, all evaluated on the same shares."""
    if not methods:
        raise UncurseError("a report needs at least one method; pass Method(name, evaluation)")
    shares = [row.alpha for row in methods[0].evaluation.rows]
    for method in methods[1:]:
        if [row.alpha for row in method.evaluation.rows] != shares:
            raise UncurseError(
                f"{method.name!r} was evaluated on other shares than {methods[0].name!r}; use the same alphas for all"
            )
    return tuple(methods)


def order(methods: Sequence[Method]) -> list[int]:
    """Places of the evaluation's rows, from the smallest share up."""
    rows = methods[0].evaluation.rows
    return sorted(range(len(rows)), key=lambda i: rows[i].alpha)


def share_names(methods: Sequence[Method]) -> list[str]:
    """A name for each row of the evaluation, of its share in percent; no two alike."""
    shares = [100 * row.alpha for row in methods[0].evaluation.rows]
    made: list[str] = []
    for share in shares:
        digits = next((d for d in range(4, 18) if sum(f"{one:.{d}g}" == f"{share:.{d}g}" for one in shares) == 1), 17)
        name = f"{share:.{digits}g}".replace(".", "_")
        again = sum(one == share for one in shares[: len(made)])
        made.append(f"{name}-{again + 1}" if again else name)
    return made


def interval(value: float, standard_error: float) -> tuple[float, float]:
    """The 95% interval."""
    return value - Z95 * standard_error, value + Z95 * standard_error


def _each(methods: Sequence[Method]) -> list[tuple[int, Method, int, SelectionMetrics]]:
    return [(s, m, i, m.evaluation.rows[i]) for s, m in enumerate(methods) for i in order(methods)]


def errors(methods: Sequence[Method]) -> Rows:
    """Calibration error with its interval, a row per method and share."""
    made = []
    for series, method, place, row in _each(methods):
        value = row.calibration_error
        low, high = interval(value, value.standard_error)
        made.append(
            {
                "series": series, "name": method.name, "place": place, "alpha": row.alpha, "selected": row.selected,
                "predicted": row.predicted, "observed": row.observed, "value": float(value), "low": low, "high": high,
            }
        )  # fmt: skip
    return made


def defined(rows: Rows) -> Rows:
    """Rows of a selection with a positive label; without one the calibration error is NaN."""
    return [row for row in rows if row["value"] == row["value"]]


def binned(methods: Sequence[Method], metric: str) -> Rows:
    """ECE or MCE with its interval and its floor, a row per method and share."""
    made = []
    for series, method, place, row in _each(methods):
        value = getattr(row, metric)
        low, high = interval(value, value.standard_error)
        made.append(
            {
                "series": series, "name": method.name, "place": place, "alpha": row.alpha, "value": float(value),
                "low": max(low, 0.0), "high": high, "floor": float(value.floor or 0.0),
            }
        )  # fmt: skip
    return made


def reliability(methods: Sequence[Method], place: int) -> Rows:
    """Mean prediction and observed rate of each bin of one selection."""
    made = []
    for series, method in enumerate(methods):
        for bin_ in method.evaluation.rows[place].bins:
            low, high = interval(bin_.observed, bin_.standard_error)
            made.append(
                {
                    "series": series, "name": method.name, "weight": bin_.weight, "predicted": bin_.predicted,
                    "observed": bin_.observed, "low": max(low, 0.0), "high": min(high, 1.0),
                }
            )  # fmt: skip
    return made


def lambdas(methods: Sequence[Method]) -> Rows:
    """λ with its interval, of the methods that have one."""
    made = []
    for series, method in enumerate(methods):
        about = method.about or {}
        value = finite(about.get("lambda"))
        if value is not None:
            made.append({"series": series, "name": method.name, **_with_error(value, about)})
    return made


def has_straight(methods: Sequence[Method]) -> bool:
    """Whether a map is a straight line by one λ, or may be: then scores had better be about Gaussian."""
    abouts = [method.about or {} for method in methods[1:]]
    free = [about.get("shape") == "free" or "line_probability" in about for about in abouts]
    return not free or not all(free)


def groups(method: Method) -> tuple[Rows, int]:
    """λ of the largest groups, from the lowest up, and how many groups there are in all."""
    found: Rows = []
    for name, about in ((method.about or {}).get("groups") or {}).items():
        value = finite(about.get("lambda"))
        if value is not None:
            rows = int(about.get("rows") or 0)
            found.append({"name": clean(name), "rows": rows, **_with_error(value, about)})
    largest = sorted(found, key=lambda row: -row["rows"])[:MOST_GROUPS]
    return sorted(largest, key=lambda row: row["value"]), len(found)


def _with_error(value: float, about: Mapping[str, Any]) -> dict[str, float | None]:
    error = finite(about.get("standard_error"))
    low, high = (None, None) if error is None else interval(value, error)
    return {"value": value, "standard_error": error, "low": low, "high": high}


def _described(method: Method, role: str) -> Mapping[str, Any] | None:
    """The summary of a fit's scores, where it has more than a number of rows."""
    summary = (method.about or {}).get(role) or {}
    return summary if "histogram" in summary else None


def scores_judged(methods: Sequence[Method], served: Mapping[str, Any] | None) -> tuple[str, Mapping[str, Any]] | None:
    """Whose distribution the Gaussian is held against: the evaluated log's, else the first pool's."""
    if served is not None:
        return "the evaluated log", served
    for method in methods:
        pool = _described(method, "pool")
        if pool is not None:
            return f"the pool of {method.name}", pool
    return None


def histogram(summary: Mapping[str, Any]) -> Rows:
    """Density of each bin, and at its middle that of the normal with the same mean and sd."""
    edges, weights = summary["histogram"]["edges"], summary["histogram"]["weight"]
    normal = NormalDist(summary["mean"], summary["sd"]) if summary["sd"] > 0 else None
    made = []
    for left, right, weight in zip(edges[:-1], edges[1:], weights, strict=True):
        middle = (left + right) / 2
        density = weight / summary["weight"] / (right - left)
        made.append(
            {
                "left": left, "right": right, "middle": middle, "share": weight / summary["weight"],
                "density": density, "normal": 0.0 if normal is None else normal.pdf(middle),
            }
        )  # fmt: skip
    return made


def drift(methods: Sequence[Method], served: Mapping[str, Any] | None) -> Rows:
    """The score distributions a fit and its use have met, each once; differences are from the first pool."""
    found: list[tuple[str, str, Mapping[str, Any]]] = []
    for role in ("pool", "labelled"):
        for method in methods:
            summary = _described(method, role)
            if summary is not None and all(summary != known for _, _, known in found):
                taken = any(known == role for known, _, _ in found)
                found.append((role, f"{role} scores of {method.name}" if taken else f"{role} scores", summary))
    if served is not None:
        found.append(("evaluated", "evaluated scores", served))
    if len(found) < 2:
        return []
    first = found[0][2]
    made = []
    for i, (role, name, summary) in enumerate(found):
        sd = first["sd"] or 1.0
        made.append(
            {
                "series": _DRIFT[i % len(_DRIFT)], "role": role, "name": name, "rows": summary["rows"],
                "mean": summary["mean"], "sd": summary["sd"],
                "shift": (summary["mean"] - first["mean"]) / sd, "spread": summary["sd"] / sd,
                "bins": histogram(summary), "scale": summary.get("scale", "logit"),
                "sources": list(summary.get("sources") or ()), "columns": list(summary.get("columns") or ()),
            }
        )  # fmt: skip
    return made


__all__ = [
    "MOST_GROUPS", "Z95", "Method", "Rows", "binned", "check", "defined", "drift", "errors", "groups", "has_straight",
    "histogram", "interval", "lambdas", "order", "reliability", "scores_judged", "share_names",
]  # fmt: skip
