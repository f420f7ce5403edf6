"""The option --half-life: of `fit` in files, of `collect` as a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UncurseError
from .output import working
from .reading import input_file, is_evidence

if TYPE_CHECKING:
    from ..calibration import HalfLifeChoice


def check_files(text: str | None, pool: Sequence[str], labelled: Sequence[str]) -> None:
    """Check that the half-life of `fit` is a number of files, or auto, and that there are files that can decay."""
    if text is None:
        return
    if text != "auto":
        _number(text)
    for option, sources in (("", pool), ("--labelled ", labelled)):
        if len(sources) > 1 and not all(map(is_evidence, sources)):
            raise UncurseError(
                f"--half-life {text} weights evidence files by their order, and {option}{sources[0]} is a log; collect "
                "each period first: uncurse collect LOG -o day.json"
            )
    if text == "auto":
        if not labelled:
            raise UncurseError("--half-life auto needs --labelled: labels show how fast the scores drift")
        if len(labelled) < 3:
            raise UncurseError(
                f"--half-life auto needs three or more files with --labelled, not {len(labelled)}; pass a number"
            )
    elif max(len(pool), len(labelled)) < 2:
        raise UncurseError(
            f"--half-life {text} weights files by their order, and there is one; name an evidence file for each period"
        )


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        counted = "fit counts files: " if text[-1:].isalpha() and text[:1].isdigit() else ""
        raise UncurseError(f"--half-life is {text!r}; {counted}pass a positive number of files such as 3, or auto")
    return value


def choose(
    text: str | None, labelled: Sequence[str], calibrator: str | None
) -> tuple[float | None, HalfLifeChoice | None]:
    """Return the half-life in files, None if nothing decays, and how auto chose it."""
    if text is None or text != "auto":
        return None if text is None else _number(text), None
    from ..calibration import choose_half_life
    from ..calibration.half_life import candidates_for
    from ..evidence import Evidence

    with working("reading", lambda: len(labelled)) as advance:
        parts = []
        for source in labelled:
            parts.append(Evidence.load(input_file(source)))
            advance(1)
    fits = (len(parts) - 2) * len(candidates_for(len(parts)))
    try:
        with working("choosing a half-life", lambda: fits) as advance:
            choice = choose_half_life(parts, calibrator=calibrator or "spline", progress=advance)
    except UncurseError as error:
        raise UncurseError(f"--half-life auto on {', '.join(labelled)}: {error}") from None
    return (choice.half_life if math.isfinite(choice.half_life) else None), choice


def choice_text(choice: HalfLifeChoice) -> str:
    """Describe how auto chose, in one line."""
    others = [
        f"{_files(one.half_life)} {_thousandths(one.difference)} ± {_thousandths(one.standard_error)}"
        for one in choice.candidates
        if one.half_life != choice.half_life
    ]
    chosen = _files(choice.half_life) if math.isinf(choice.half_life) else f"a half-life of {_files(choice.half_life)}"
    judged = f"{choice.rows:,} labelled rows of {choice.periods} {'file' if choice.periods == 1 else 'files'}"
    if any(one.difference < 0 for one in choice.candidates):
        start = f"auto chose {chosen}: no other log loss on the next file ({judged}) is lower by more than the noise of"
        return f"{start} the labels; others differ by, in thousandths: {', '.join(others)}"
    least = f"auto chose {chosen}, which has the smallest log loss on the next file ({judged})"
    return f"{least}; others are higher by, in thousandths: {', '.join(others)}"


def _thousandths(value: float) -> str:
    """Format a difference of log losses: two decimals, or two digits if it is small, as it is if clicks are rare."""
    return f"{1000 * value:.2f}" if abs(value) >= 1e-4 or not value else f"{1000 * value:.2g}"


def _files(half_life: float) -> str:
    return "no decay" if math.isinf(half_life) else f"{half_life:g} {'file' if half_life == 1 else 'files'}"


__all__ = ["check_files", "choice_text", "choose"]
