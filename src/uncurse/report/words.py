"""Numbers and findings in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .data import Method, Rows, errors, order


def percent(value: float, decimals: int = 1, *, sign: bool = True) -> str:
    """A share as a percentage, with a true minus; NaN is "n/a".

    >>> percent(0.1234), percent(-0.004), percent(0.02, sign=False)
    ('+12.3%', '−0.4%', '2.0%')
    """
    if value != value:
        return "n/a"
    text = f"{100 * value:{'+' if sign else ''}.{decimals}f}%"
    return text.replace("-", "−")


def number(value: float) -> str:
    """Three figures, with a true minus.

    >>> number(-0.012345), number(1234567.0)
    ('−0.0123', '1,234,567')
    """
    text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return text.replace("-", "−") if "e" not in text else text


def share(alpha: float) -> str:
    """A share as it is said.

    >>> share(0.02), share(0.125)
    ('2%', '12.5%')
    """
    return f"{100 * alpha:.4g}%"


def short(name: str, most: int = 22) -> str:
    """A name that fits a figure: one line, its middle left out where it is long.

    >>> short("a-very-long-name-of-a-map.json", 15)
    'a-very-…ap.json'
    """
    name = " ".join(name.split())
    return name if len(name) <= most else f"{name[: (most - 1) // 2]}…{name[-(most - 1 - (most - 1) // 2) :]}"


def selected(alpha: float, selection: str | None, *, several: bool = True) -> str:
    """What was selected.

    >>> selected(0.02, None), selected(1.0, None), selected(0.1, "top 1 of each request", several=False)
    ('the top 2%', 'all rows', 'the top 1 of each request')
    """
    if selection is not None and not several:
        return selection if selection.startswith("the ") else f"the {selection}"
    where = "" if selection is None else f" ({selection})"
    return ("all rows" if alpha >= 1 else f"the top {share(alpha)}") + where


def headline(methods: Sequence[Method], selection: str | None) -> dict[str, Any]:
    """Before and after on the smallest selection: the sentence, and the numbers beside it."""
    rows = methods[0].evaluation.rows
    every = errors(methods)
    undefined = {row["place"] for row in every if row["value"] != row["value"]}  # no positive label
    first = next((place for place in order(methods) if place not in undefined), order(methods)[0])
    table = [row for row in every if row["place"] == first]
    before = table[0]
    if first in undefined:
        sentence = [("text", "No selection has a positive label, so its calibration error is undefined.")]
        return {"sentence": sentence, "before": before, "after": None, "where": ""}
    after = min(table[1:], key=lambda row: abs(row["value"])) if len(table) > 1 else None
    where = selected(before["alpha"], selection, several=len(rows) > 1)
    sentence = [("text", f"On {where} the scores "), *_says(before, first=True)]
    if after is not None:
        sentence += [("text", "; after "), ("name", after["name"]), ("text", " they "), *_says(after, first=False)]
    return {"sentence": [*sentence, ("text", ".")], "before": before, "after": after, "where": where}


def _says(row: Mapping[str, Any], *, first: bool) -> list[tuple[str, str]]:
    d = decimals(row["high"] - row["low"])
    between = f" ({'95% interval ' if first else ''}{percent(row['low'], d)} to {percent(row['high'], d)})"
    if row["low"] <= 0 <= row["high"]:
        return [("text", f"are within noise of true: {percent(row['value'], d)}"), ("aside", between)]
    way = "over-predict" if row["value"] > 0 else "under-predict"
    return [("text", f"{way} by {percent(abs(row['value']), d, sign=False)}"), ("aside", between)]


def decimals(width: float) -> int:
    """As many decimals of a percentage as an interval of this width deserves."""
    return 2 if width < 0.004 else 1 if width < 0.4 else 0


def plain(sentence: Sequence[tuple[str, str]]) -> str:
    """The sentence as plain text."""
    return "".join(text for _, text in sentence)


def found_errors(rows: Rows) -> str:
    """What the figure of calibration errors shows."""
    said = []
    for series in sorted({row["series"] for row in rows}):
        own = [row for row in rows if row["series"] == series]
        low, high = (f(row["value"] for row in own) for f in (min, max))
        span = percent(low) if percent(low) == percent(high) else f"from {percent(low)} to {percent(high)}"
        said.append(f"{own[0]['name']}: {span}")
    return "Calibration error over the shares kept. " + "; ".join(said) + "."


def found_floors(ece: Rows) -> str:
    """How far each method stands above its floor on the smallest selection."""
    smallest = min(row["alpha"] for row in ece)
    said = []
    for row in ece:
        if row["alpha"] == smallest:
            said.append(f"{row['name']} {number(row['value'])}, {_above_floor(row['value'], row['floor'])}")
    return "ECE on the smallest selection: " + "; ".join(said) + "."


def _above_floor(value: float, floor: float) -> str:
    if floor <= 0:  # predictions of exactly 0 or 1 leave no room for noise: any gap is an error
        return "at its floor (0)" if value <= 0 else "all of it above its floor (0)"
    times = value / floor
    # Over ten even bins the ECE of true predictions is 1 ± 0.24 floors: 1.5 is two deviations up.
    if times < 1.5:
        return f"within noise of its floor ({number(floor)})"
    many = "over 1,000" if times > 1000 else f"{times:.{0 if times >= 9.5 else 1}f}"
    return f"{many} times its noise floor"


def found_gaussian(summary: Mapping[str, Any], smallest: float | None) -> str:
    """What the distance to the Gaussian means for the smallest share, where shares are selected."""
    judged = summary.get("gaussianity")
    if judged is None:
        return "Too few distinct scores to judge their distribution."
    distance = judged["distance"]
    p = judged.get("p_value")
    test = "" if p is None else f"; Lilliefors p {'< 0.001' if p < 0.001 else f'= {p:.3f}'}"
    numbers = (
        f"Distance to the Gaussian {distance:.4f} (Kolmogorov–Smirnov{test}), skewness {judged['skewness']:.2f}, "
        f"excess kurtosis {judged['excess_kurtosis']:.2f}.".replace("-", "−")
    )
    if smallest is None:
        return numbers
    ratio = distance / smallest
    if ratio < 0.25:
        verdict = f"That is small against the smallest share kept, {share(smallest)}: one λ for all scores is fair."
    elif ratio < 1:
        verdict = (
            f"That is not small against the smallest share kept, {share(smallest)}: trust the errors measured above "
            "more than the theory."
        )
    else:
        verdict = (
            f"That exceeds the smallest share kept, {share(smallest)}: the scores are not about Gaussian where it "
            "matters, and a map made of one λ may over-correct there. Judge it by the errors measured above."
        )
    return f"{numbers} {verdict}"


_DRIFT_MEANS = {
    "labelled": (
        "The labels come from rows like the pool's, so a calibrator fitted on them carries over.",
        "The labels come from rows that score differently from the pool: a calibrator fitted on them alone is used "
        "outside of where it was fitted. Trust the errors measured above over its fit.",
    ),
    "evaluated": (
        "What was measured on the pool applies to the scores evaluated here.",
        "The scores evaluated here are not those of the pool that the map was fitted to: fit on a pool like this log.",
    ),
    "pool": ("The pools are alike.", "The maps were fitted on different pools: prefer the one that is like this log."),
}


def found_drift(rows: Rows) -> list[str]:
    """What each difference from the first distribution says, and what to conclude."""
    said = []
    for row in rows[1:]:
        size, spread = abs(row["shift"]), max(row["spread"], 1 / max(row["spread"], 1e-9))
        moved = size >= 0.3 or spread >= 1.25
        how = "no drift to speak of" if size < 0.1 and spread < 1.1 else "a large drift" if moved else "a small drift"
        way = "above" if row["shift"] > 0 else "below"
        where = f"{size:.2f} sd {way} the {rows[0]['name']}" if size >= 0.005 else f"with the {rows[0]['name']}"
        means = _DRIFT_MEANS[row["role"]][moved]
        said.append(f"The {row['name']} lie {where}, their sd {row['spread']:.2f} times as large: {how}. {means}")
    return said


__all__ = [
    "decimals", "found_drift", "found_errors", "found_floors", "found_gaussian", "headline", "number", "percent",
    "plain", "selected", "share", "short",
]  # fmt: skip
