"""The base class of score maps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, inside, to_link
from ..threads import chunks, in_threads, shares
from ..validation import check_number, check_numbers, check_scores

# Half a unit in the last place of the largest double is 1e292, so (score − knot) overflows for no finite score.
_LARGEST_KNOT = 1e290


class ScoreMap:
    """Base class of the maps `Affine`, `Curve`, `Steps` and `Segmented`.

    A map takes scores on its `scale` and returns predictions. It converts a score to the score l of its `link`,
    transforms l, and returns φ of the result.

    Attributes
    ----------
    kind : str
        Kind of the map in its JSON form.
    link : {"logistic", "identity", "log"}
        Link in whose scores the map works.
    scale : {"logit", "probability", "value"}
        Scale of the scores that the map takes.

    Examples
    --------
    >>> from uncurse import Affine
    >>> isinstance(Affine(0.5, -1.0), ScoreMap)
    True
    """

    kind: ClassVar[str]
    link: str
    scale: str

    def __repr__(self) -> str:
        if not is_dataclass(self):
            return super().__repr__()
        values = {part.name: getattr(self, part.name) for part in fields(self)}
        content = ", ".join(f"{name}={_shown(value)}" for name, value in values.items() if value is not None)
        return f"{type(self).__name__}({content})"

    def __call__(self, scores: ArrayLike) -> Array:
        """Return predictions.

        Parameters
        ----------
        scores : array-like of shape (n,), or float
            Scores on the scale of the map.

        Returns
        -------
        ndarray of float64 of shape (n,), or float
            Predictions; finite for every finite score, and inside (0, 1) unless the scale is ``"value"``.
        """
        values = check_numbers(scores, "scores")
        single = values.ndim == 0
        values = check_scores(np.atleast_1d(values), self.scale, largest=np.inf)
        out = np.empty(len(values))

        def fill(share: slice) -> None:
            for rows in chunks(share):
                self._fill(values[rows], out[rows])

        in_threads(fill, shares(len(values)))
        return out[0] if single else out

    def _fill(self, values: Float, out: Array) -> None:
        # Convert to float64 first: adjacent float32 probabilities must not become equal.
        out[...] = self._predict(to_link(values.astype(np.float64, copy=False), self.scale, self.link))

    def _predict(self, link_scores: Float) -> Float:
        link = get_link(self.link)
        bounds = (link.lower, link.upper) if self.scale == "value" else (0.0, 1.0)
        return inside(link.phi(self.transform(link_scores)), *bounds)

    def transform(self, link_scores: ArrayLike) -> Float:
        """Transform scores of the link to scores of the link.

        Parameters
        ----------
        link_scores : array-like
            Scores of the map's link, of any shape.

        Returns
        -------
        ndarray of float
            Transformed scores; finite for every finite score.
        """
        with np.errstate(over="ignore"):
            result = self._transform(check_numbers(link_scores, "link_scores"))
        return inside(result, -np.inf, np.inf)

    def _transform(self, l: Float) -> Float:
        raise NotImplementedError

    def at_logits(self, logits: ArrayLike) -> Array:
        """Return predictions for served scores that are logits, whatever the scale of the map.

        Parameters
        ----------
        logits : array-like of shape (n,)
            Log odds of the served predictions.

        Returns
        -------
        ndarray of float64 of shape (n,)
            Predictions.

        Examples
        --------
        >>> from uncurse import Affine
        >>> Affine(1.0, 0.0, scale="probability").at_logits([0.0])
        array([0.5])
        """
        if self.scale == "logit":
            return self(logits)
        values = check_scores(logits, "logit", largest=np.inf).astype(np.float64, copy=False)
        return self._predict(to_link(values, "logit", self.link)).astype(np.float64, copy=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain data.

        Returns
        -------
        dict
            The kind and the fields.
        """
        content = {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]
        return {name: value for name, value in content.items() if value is not None}

    def to_json(self) -> str:
        """Return the map as a JSON document.

        Returns
        -------
        str
            The document.
        """
        content = self.to_dict()
        return documents.dumps(content.pop("kind"), content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the map to a JSON file, atomically; `uncurse.load` reads it.

        Parameters
        ----------
        path : str or path-like
            Target.
        """
        documents.write(path, self.to_json() + "\n")


def check_knots(values: Iterable[float], name: str) -> tuple[float, ...]:
    """Return a tuple of finite floats within ±1e290; text is refused."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise UncurseError(f"{name} is of type {type(values).__name__}; pass a list of numbers")
    numbers = tuple(values.tolist() if isinstance(values, np.ndarray) else values)
    if set(map(type, numbers)) != {float}:
        numbers = tuple(v if type(v) is float else check_number(v, f"{name}[{i}]") for i, v in enumerate(numbers))
    if not all(map(_LARGEST_KNOT.__ge__, map(abs, numbers))):
        i, number = next((i, v) for i, v in enumerate(numbers) if not abs(v) <= _LARGEST_KNOT)
        check_number(number, f"{name}[{i}]")
        raise UncurseError(f"{name}[{i}] is {number:g}; numbers of a map must lie within ±1e290")
    return numbers


def set_fields(score_map: ScoreMap, **fields: Any) -> None:
    """Replace fields of a frozen map under construction by validated values."""
    for name, value in fields.items():
        object.__setattr__(score_map, name, value)


def _shown(value: Any) -> str:
    """Return the repr of a field; of more than six numbers, maps or segments only the first two and the last two."""
    if not isinstance(value, tuple | dict) or len(value) <= 6:
        return repr(value)
    if isinstance(value, dict):
        (opening, closing), entries = "{}", [f"{name!r}: {value[name]!r}" for name in (*value,)[:2] + (*value,)[-2:]]
    else:
        (opening, closing), entries = "()", [repr(entry) for entry in value[:2] + value[-2:]]
    return f"{opening}{', '.join([*entries[:2], '…', *entries[2:]])}; {len(value)} in all{closing}"
