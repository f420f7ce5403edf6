"""The base class of score maps."""

from __future__ import annotations

import reprlib
from dataclasses import asdict, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import get_link, inside, to_link
from ..threads import chunks, in_threads, shares
from ..validation import check_finite, check_numbers, check_scores

# Half a unit in the last place of the largest double is 1e292, so (score − knot) overflows for no finite score.
_LARGEST_KNOT = 1e290
_REPR = reprlib.Repr()  # shortens long tuples and mappings
_REPR.maxother = 200


class ScoreMap(documents.Saved):
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
        values = {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]
        content = ", ".join(f"{name}={_REPR.repr(value)}" for name, value in values.items() if value is not None)
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
        out[...] = self._predict(values.astype(np.float64, copy=False), self.scale)

    def _predict(self, values: Float, scale: str) -> Float:
        return to_prediction(self.transform(to_link(values, scale, self.link)), self.link, self.scale)

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
        return self._predict(values, "logit").astype(np.float64, copy=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain data.

        Returns
        -------
        dict
            The kind and the fields.
        """
        return {"kind": self.kind, **{name: value for name, value in self._fields().items() if value is not None}}

    def _fields(self) -> dict[str, Any]:
        return asdict(self)  # type: ignore[call-overload, no-any-return]


def to_prediction(link_scores: Float, link: str, scale: str) -> Float:
    """Return φ of transformed scores, inside the bounds of predictions for scores on a scale."""
    phi = get_link(link)
    bounds = (phi.lower, phi.upper) if scale == "value" else (0.0, 1.0)
    return inside(phi.phi(link_scores), *bounds)


def check_knots(values: ArrayLike, name: str) -> tuple[float, ...]:
    """Return a tuple of finite floats within ±1e290."""
    numbers = check_numbers(values, name)
    if numbers.ndim != 1:
        raise UncurseError(f"{name} has shape {numbers.shape}; pass a list of numbers")
    check_finite(numbers, name, _LARGEST_KNOT)
    return tuple(numbers.astype(np.float64).tolist())


def set_fields(score_map: ScoreMap, **fields: Any) -> None:
    """Replace fields of a frozen map under construction by validated values."""
    for name, value in fields.items():
        object.__setattr__(score_map, name, value)
