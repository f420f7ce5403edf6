"""Numbers as text, names of selections, the headline, and the explanations at the end of the page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import Method

#: Half the width of a 95% interval in standard errors.
Z95 = NormalDist().inv_cdf(0.975)

# Characters that XML 1.0 does not allow: vl-convert ends the process on some of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def clean(value: object) -> str:
    r"""Return text without characters that XML does not allow.

    >>> clean("a\x00b\ud800\tλ")
    'a�b�\tλ'
    """
    return _NOT_XML.sub("�", str(value))


def percent(value: float, decimals: int = 1, *, sign: bool = True) -> str:
    """Format a share as a percentage; NaN is "n/a".

    >>> percent(0.1234), percent(-0.004), percent(0.02, sign=False), percent(1e300)
    ('+12.3%', '−0.4%', '2.0%', '+1e+302%')
    """
    if value != value:
        return "n/a"
    return fixed(100 * value, decimals, sign=sign) + "%"


def fixed(value: float, decimals: int, *, sign: bool = False) -> str:
    """Format a number with a fixed number of decimals; a very large one with three digits.

    >>> fixed(-1.5, 2), fixed(0.1, 3, sign=True)
    ('−1.50', '+0.100')
    """
    text = f"{value:{'+' if sign else ''}{'.3g' if abs(value) >= 1e9 else f'.{decimals}f'}}"
    return text.replace("-", "−")


def number(value: float) -> str:
    """Format a number with three digits, or as an integer from 1000 on.

    >>> number(-0.012345), number(1234567.0), number(1e20)
    ('−0.0123', '1,234,567', '1e+20')
    """
    text = f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.3g}"
    return text.replace("-", "−") if "e" not in text else text


def share(alpha: float) -> str:
    """Format a selected share.

    >>> share(0.02), share(0.125)
    ('2%', '12.5%')
    """
    return f"{100 * alpha:.4g}%"


def short(name: str, limit: int = 22) -> str:
    """Shorten a name for a chart: keep both ends, on one line.

    >>> short("a-very-long-name-of-a-map.json", 15)
    'a-very-…ap.json'
    """
    name = " ".join(clean(name).split())
    head = (limit - 1) // 2
    return name if len(name) <= limit else f"{name[:head]}…{name[head + 1 - limit :]}"


def decimals_for(width: float) -> int:
    """Return how many decimals a percentage with a 95% interval of this width needs."""
    return 2 if width < 0.004 else 1 if width < 0.4 else 0


def interval(value: float, standard_error: float) -> tuple[float, float]:
    """Return the 95% interval."""
    return value - Z95 * standard_error, value + Z95 * standard_error


def by_share(methods: Sequence[Method]) -> list[int]:
    """Return positions of the rows of the evaluations, by ascending share."""
    rows = methods[0].evaluation.rows
    return sorted(range(len(rows)), key=lambda i: rows[i].alpha)


def selection_name(methods: Sequence[Method], place: int, selection: str | None) -> str:
    """Name a selection: "top 2%", "all rows" or, if there is one selection only, its description."""
    rows = methods[0].evaluation.rows
    if len(rows) == 1 and selection:
        return selection
    return "all rows" if rows[place].alpha >= 1 else f"top {share(rows[place].alpha)}"


def the_selection(methods: Sequence[Method], place: int, selection: str | None) -> str:
    """Name a selection inside a sentence: "the top 2%"."""
    name = selection_name(methods, place, selection)
    article = "" if name.startswith(("all ", "the ")) else "the "
    return article + name + (f" ({selection})" if selection and name != selection else "")


@dataclass(frozen=True)
class BigNumber:
    """A number next to the headline, in the colour of its series."""

    series: int
    name: str
    value: str
    note: str


@dataclass(frozen=True)
class Headline:
    """First lines of a page: a sentence in pieces of (style, text), large numbers, and a paragraph."""

    sentence: tuple[tuple[str, str], ...]
    numbers: tuple[BigNumber, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        return clean("".join(text for _, text in self.sentence))


def headline(methods: Sequence[Method], selection: str | None) -> Headline:
    """Describe the calibration error of the first share that was given, as served and after the first map.

    The best of several maps is not reported: its error on the same rows is too optimistic.
    """
    places = range(len(methods[0].evaluation.rows))
    defined = [i for i in places if all(m.evaluation.rows[i].observed > 0 for m in methods[:2])]
    if not defined:
        return Headline((("text", "No selection has a positive label, so the calibration error is undefined."),))
    place = defined[0]
    sentence = [
        ("text", f"On {the_selection(methods, place, selection)}, "), *_error_words(methods[0], place, "the scores")
    ]  # fmt: skip
    if len(methods) == 1:
        return Headline(tuple(sentence), (_big_number(methods[0], place, 0, "Calibration error"),))
    first = methods[1].name
    several = f" (first of {len(methods) - 1} maps)" if len(methods) > 2 else ""
    sentence += [("text", " After "), ("name", first), ("text", f"{several}, "), *_error_words(methods[1], place)]
    numbers = (
        _big_number(methods[0], place, 0, "As served"),
        _big_number(methods[1], place, 1, f"After {first}{several}"),
    )
    return Headline(tuple(sentence), numbers)


def _error(method: Method, place: int) -> tuple[str, int, str]:
    """Return the calibration error, its sign (0 if it is not significant) and its 95% interval as text."""
    error = method.evaluation.rows[place].calibration_error
    low, high = interval(error, error.standard_error)
    sign = 0 if low <= 0 <= high else 1 if error > 0 else -1
    d = decimals_for(high - low)
    return percent(error, d), sign, f"{percent(low, d)} to {percent(high, d)}"


def _error_words(method: Method, place: int, subject: str = "") -> list[tuple[str, str]]:
    text, sign, bounds = _error(method, place)
    aside = ("aside", f" (95% interval {bounds})" if subject else f" ({bounds})")
    subject = subject or "they"
    if sign == 0:
        return [("text", f"{subject} have a calibration error of {text}"), aside, ("text", ", consistent with zero.")]
    verb = "over-predict" if sign > 0 else "under-predict"
    return [("text", f"{subject} {verb} by {text.lstrip('+−')}"), aside, ("text", ".")]


def _big_number(method: Method, place: int, series: int, name: str) -> BigNumber:
    text, _, bounds = _error(method, place)
    return BigNumber(series, name, text, f"95% interval {bounds}")


#: Terms of the page and what they mean.
GUIDE = (
    (
        "Calibration error",
        "Sum of predictions divided by the number of positive outcomes, minus 1, over the selected rows. +10% means "
        "that 110 outcomes were predicted for every 100 that were observed. Scores can be correct on average and "
        "still too high on the selected rows, because a high score is often due to noise.",
    ),
    (
        "95% interval",
        "If the evaluation were repeated on other rows of the same kind, about 95 of 100 such intervals would contain "
        "the true value. An error whose interval contains zero cannot be distinguished from zero.",
    ),
    (
        "ECE, MCE and the noise floor",
        "Rows are grouped into bins by prediction. ECE is the average difference between prediction and observed rate "
        "over the bins, MCE the largest. Both are above zero even for perfect predictions, because observed rates are "
        "noisy. The noise floor is the value that perfect predictions would have: compare with it, not with zero.",
    ),
    (
        "λ",
        "Share of the variance of the scores that is signal, estimated from the disagreement between replicas of the "
        "model. 1 means no noise. A map multiplies the distance of a score from the center by λ: 0.8 reduces it by a "
        "fifth. After a calibrator, λ corrects the remaining bias and may exceed 1. The interval covers the sampling "
        "of pool rows only; training the model again changes λ by more.",
    ),
    (
        "Drift",
        "A map is valid for scores like those it was fitted on. If the mean of the scores moves by 0.3 standard "
        "deviations or more, fit the map again on current data.",
    ),
    (
        "What a map does not do",
        "A map does not change the ranking (with groups: the ranking within a group), so the same rows are selected. "
        "It corrects the selected rows; the average over all rows can get worse. If scores are far from normally "
        "distributed, or some are much noisier than others, a single λ corrects too much. The measured errors on "
        "this page show whether that happened.",
    ),
    (
        "If an error remains",
        "If a map under-predicts and the scores are close to normally distributed, fit with --curvature. Check that "
        "--replicas describes how the replicas were trained. With labelled rows, fit with --method tower, or combine "
        "VAD with a calibrator. If the noise differs between groups, fit by group. --method auto chooses a method. "
        "Compare the maps on data that was not used to choose between them.",
    ),
)
