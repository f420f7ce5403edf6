"""Export a map to run without uncurse: one program (`maps.compile`), one file per target; here what they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import UncurseError
from ...maps.compile import BELOW_ONE, TINY, Inverse, Operation, Phi, Pieces

#: What a score is, by scale.
SCALES = {"logit": "a logit", "probability": "a probability", "value": "a value"}
# Numbers that a formula may name: bounds of predictions, and the largest number whose exp is finite.
_NUMBERS = {"one": 1.0, "low": TINY, "high": BELOW_ONE, "rest": 1.0 - BELOW_ONE, "most_exp": 709.782712893383}


@dataclass(frozen=True)
class Language:
    """How a language writes operations: a formula for each type of operation, or for its type and link."""

    name: str
    formulas: Mapping[Any, str]
    number: Callable[[float], str] = repr

    def write(self, step: Operation, **names: object) -> str:
        """Fill in the formula of an operation: with its own numbers, with `_NUMBERS`, and with `names`."""
        key: Any = (type(step), step.link) if isinstance(step, Phi | Inverse) else type(step)
        if key not in self.formulas:
            what = f"the {key[1]} link is not in {self.name}"
            raise UncurseError(f"{what}; fit a map of the logistic link, or export it to Python")
        values = _NUMBERS | vars(step) | names
        return self.formulas[key].format(
            **{name: self.number(value) if isinstance(value, float) else value for name, value in values.items()}
        )

    def statements(self, steps: Iterable[Operation]) -> Iterator[str]:
        """Write a program line by line, indented; formulas know the number of their step as `i`."""
        for i, step in enumerate(steps, 1):
            yield from (f"    {line}" for line in self.write(step, i=i).split("\n"))


def edges_of(steps: Iterable[Operation]) -> tuple[float, ...]:
    """Return the edges of a program, which all of its tables share; none if it has no table."""
    return next((step.edges for step in steps if isinstance(step, Pieces)), ())


def tables_of(steps: Sequence[Operation]) -> dict[int, list[tuple[float, float, float]]]:
    """Return the tables of a program by the number of their step: a point (x, y) and a slope for each piece."""
    tables = {i: step for i, step in enumerate(steps, 1) if isinstance(step, Pieces)}
    return {i: list(zip(step.x, step.y, step.slope, strict=True)) for i, step in tables.items()}


def wrapped(parts: Iterable[str], indent: str) -> Iterator[str]:
    """Join parts by commas, in lines of at most 120 characters if possible."""
    line = ""
    for part in parts:
        if line and len(indent) + len(line) + len(part) > 117:
            yield indent + line
            line = ""
        line += f" {part}," if line else f"{part},"
    yield indent + line
