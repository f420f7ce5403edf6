"""The formulas of a program for one score `l`, in the syntax that Python and C share."""

from __future__ import annotations

from ...maps.program import BELOW_ONE, MOST_EXP, TINY, Program

_LOGISTIC = "1.0 / (1.0 + exp(min(-l, 709.0)))"  # exp of 709 is still finite


def link_scores(program: Program) -> list[str]:
    """Return expressions that take a score to a score of the link; each is the next `l`."""
    found = []
    if program.scale == "logit" and program.link != "logistic":
        found += [_LOGISTIC]
    if program.scale == "probability" and program.link == "logistic":
        found += [f"min(max(l, {TINY!r}), {BELOW_ONE!r})", "log(l) - log1p(-l)"]
    if program.link == "log":
        found += [f"log(max(l, {TINY!r}))"]
    return found


def predictions(program: Program) -> list[str]:
    """Return expressions that take a score of the link to the prediction; each is the next `l`."""
    found = {"logistic": [_LOGISTIC], "log": [f"exp(min(l, {MOST_EXP!r}))"]}.get(program.link, [])
    return found if program.bounds is None else [*found, f"min(max(l, {program.bounds[0]!r}), {program.bounds[1]!r})"]
