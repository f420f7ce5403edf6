"""Export a map to run without uncurse: one program (`maps.compile`), one file per target; here what they share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ...maps.operations import Pieces

#: What a score is, by scale.
SCALES = {"logit": "a logit", "probability": "a probability", "value": "a value"}
#: exp of anything above is no finite number.
MOST_EXP = 709.782712893383


def piece_rows(step: Pieces) -> tuple[tuple[float, float, float], ...]:
    """Return a point (x, y) and a slope for each piece."""
    return tuple(zip(step.x, step.y, step.slope, strict=True))


def wrapped(parts: Iterable[str], indent: str) -> Iterator[str]:
    """Join parts by commas, in lines of at most 120 characters if possible."""
    line = ""
    for part in parts:
        if line and len(indent) + len(line) + len(part) > 117:
            yield indent + line
            line = ""
        line += f" {part}," if line else f"{part},"
    yield indent + line
