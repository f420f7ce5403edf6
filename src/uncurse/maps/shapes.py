"""Score maps, and those of a single shape: a straight line, a piecewise linear curve, and steps."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from .. import documents
from .._types import Array, Float
from ..errors import UncurseError
from ..links import check_space, get_link, inside, to_link
from ..threads import chunks, in_threads, shares
from ..validation import check_finite, check_flag, check_number, check_numbers, check_scores

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
    _arrays: tuple[Array, Array]  # knots and values, for maps that have some

    def __repr__(self) -> str:
        values = ((part.name, getattr(self, part.name)) for part in fields(self))  # type: ignore[arg-type]
        content = ", ".join(f"{name}={_REPR.repr(value)}" for name, value in values if value is not None)
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

    def _predict(self, values: Float, scale: str) -> Array:
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
        return self._predict(check_scores(logits, "logit", largest=np.inf).astype(np.float64, copy=False), "logit")

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain data.

        Returns
        -------
        dict
            The kind and the fields.
        """
        values = {part.name: getattr(self, part.name) for part in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind, **{name: value for name, value in values.items() if value is not None}}


def to_prediction(link_scores: Float, link: str, scale: str) -> Array:
    """Return φ of transformed scores, inside the bounds of predictions for scores on a scale."""
    phi = get_link(link)
    bounds = (phi.lower, phi.upper) if scale == "value" else (0.0, 1.0)
    return np.asarray(inside(phi.phi(link_scores), *bounds), np.float64)


def check_knots(values: ArrayLike, name: str) -> Array:
    """Return an array of finite floats within ±1e290."""
    numbers = check_numbers(values, name)
    if numbers.ndim != 1:
        raise UncurseError(f"{name} has shape {numbers.shape}; pass a list of numbers")
    check_finite(numbers, name, _LARGEST_KNOT)
    return numbers.astype(np.float64)


def set_fields(score_map: ScoreMap, **fields: Any) -> None:
    """Replace fields of a frozen map under construction by validated values."""
    for name, value in fields.items():
        object.__setattr__(score_map, name, value)


@dataclass(frozen=True, repr=False)
class Affine(ScoreMap):
    """A straight line: φ(slope · l + intercept).

    Parameters
    ----------
    slope : float
        Slope, 0 or more.
    intercept : float
        Intercept.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link in whose scores the line is straight.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    max_error : float, optional
        Of a straight line that replaces a curve: its largest relative error of the mean of selected predictions.

    Examples
    --------
    >>> Affine(0.5, -1.0)([0.0, 2.0])
    array([0.26894142, 0.5       ])
    """

    kind: ClassVar[str] = "affine"
    slope: float
    intercept: float
    link: str = "logistic"
    scale: str = "logit"
    max_error: float | None = None

    def __post_init__(self) -> None:
        check_space(self.link, self.scale)
        set_fields(self, slope=_rising(self.slope, "slope"), intercept=check_number(self.intercept, "intercept"))

    def _fill(self, values: Float, out: Array) -> None:
        if self.link != "logistic" or self.scale != "logit":
            super()._fill(values, out)
            return
        # The common case without a temporary array: 1 / (1 + exp(−slope · l − intercept)).
        out[...] = values
        with np.errstate(over="ignore"):
            out *= -self.slope
            out -= self.intercept
            np.exp(out, out=out)
        out += 1.0
        np.reciprocal(out, out=out)
        inside(out, 0.0, 1.0, out=out)

    def _transform(self, l: Float) -> Float:
        result: Float = self.slope * l
        result += self.intercept
        return result


@dataclass(frozen=True, repr=False)
class Curve(ScoreMap):
    """A piecewise linear function of l through knots, extended by straight lines.

    Parameters
    ----------
    x : sequence of float
        Knots, strictly increasing, at least one.
    y : sequence of float
        Values at the knots, not decreasing.
    left, right : float
        Slopes before the first knot and after the last, 0 or more.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link in whose scores the knots are.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.

    Examples
    --------
    >>> Curve((0.0, 1.0), (0.0, 0.5), 1.0, 1.0).transform([-1.0, 0.5, 2.0])
    array([-1.  ,  0.25,  1.5 ])
    """

    kind: ClassVar[str] = "curve"
    x: Sequence[float]
    y: Sequence[float]
    left: float
    right: float
    link: str = "logistic"
    scale: str = "logit"

    def __post_init__(self) -> None:
        check_space(self.link, self.scale)
        x, y = check_knots(self.x, "x"), check_knots(self.y, "y")
        if len(x) != len(y) or not len(x):
            raise UncurseError(f"a curve needs as many x as y and at least one; got {len(x)} and {len(y)}")
        set_fields(self, x=tuple(x.tolist()), y=tuple(y.tolist()), _arrays=(x, y))
        set_fields(self, left=_rising(self.left, "left"), right=_rising(self.right, "right"))
        if (np.diff(x) <= 0).any():
            raise UncurseError("the x of a curve must increase strictly; merge knots that coincide")
        if (np.diff(y) < 0).any():
            raise UncurseError("the y of this curve decrease somewhere; a map must not reverse the order of scores")
        with np.errstate(over="ignore"):
            steep = np.flatnonzero(~np.isfinite(np.diff(y) / np.diff(x)))
        if steep.size:
            raise UncurseError(f"the slope after x[{steep[0]}] of this curve is too large; merge the two knots")

    def _transform(self, l: Float) -> Float:
        x, y = self._arrays
        result: Float = np.interp(l, x, y)
        result += self.left * np.minimum(l - x[0], 0.0)
        result += self.right * np.maximum(l - x[-1], 0.0)
        return result


@dataclass(frozen=True, repr=False)
class Steps(ScoreMap):
    """A step function of l, with an optional tie-break: value of the step + slope · (l − center).

    Parameters
    ----------
    edges : sequence of float
        Edges between the steps, strictly increasing. A score on an edge belongs to the step above it.
    values : sequence of float
        One value per step, one more than edges.
    slope : float, default=0.0
        A tiny slope orders the scores inside a step.
    center : float, default=0.0
        Score at which the tie-break is 0.
    link : {"logistic", "identity", "log"}, default="logistic"
        Link in whose scores the steps are.
    scale : {"logit", "probability", "value"}, default="logit"
        Scale of the scores.
    monotone : bool, default=True
        Require that `values` do not decrease. Only a textbook histogram, which may reverse the order of scores,
        needs False; `slope` must then be 0.

    Examples
    --------
    >>> Steps((0.0,), (-1.0, 1.0)).transform([-5.0, 0.0, 5.0])
    array([-1.,  1.,  1.])
    """

    kind: ClassVar[str] = "steps"
    edges: Sequence[float]
    values: Sequence[float]
    slope: float = 0.0
    center: float = 0.0
    link: str = "logistic"
    scale: str = "logit"
    monotone: bool = True

    def __post_init__(self) -> None:
        check_space(self.link, self.scale)
        edges, values = check_knots(self.edges, "edges"), check_knots(self.values, "values")
        if len(values) != len(edges) + 1:
            raise UncurseError(f"{len(edges)} edges need {len(edges) + 1} values; got {len(values)}")
        set_fields(self, edges=tuple(edges.tolist()), values=tuple(values.tolist()), _arrays=(edges, values))
        set_fields(self, slope=_rising(self.slope, "slope"), center=float(check_knots((self.center,), "center")[0]))
        set_fields(self, monotone=check_flag(self.monotone, "monotone"))
        if (np.diff(edges) <= 0).any():
            raise UncurseError("the edges of steps must increase strictly; merge edges that coincide")
        if self.monotone and (np.diff(values) < 0).any():
            raise UncurseError(
                "the values of these steps decrease somewhere; a map must not reverse the order of scores: pool the "
                "steps, or pass monotone=False"
            )
        if self.slope > 0 and not self.monotone:
            raise UncurseError(f"slope is {self.slope:g} and monotone=False; a tie-break needs monotone=True")

    def _transform(self, l: Float) -> Float:
        edges, values = self._arrays
        result: Float = values[np.searchsorted(edges, l, side="right")]
        return result + self.slope * (l - self.center) if self.slope else result


def logit_knots(count: int = 256) -> Array:
    """Return logits at equal steps of arcsin √p.

    Interpolating a curve of the logit that bends as p(1 − p) then has the same error in every piece.

    >>> logit_knots(2).round(3)
    array([-1.763,  1.763])
    """
    angle = (np.arange(count) + 0.5) / count * (np.pi / 2)
    return 2 * np.log(np.tan(angle))


def _rising(slope: float, name: str) -> float:
    number = check_number(slope, name)
    if number < 0:
        raise UncurseError(f"{name} is {number:g}; a map must not reverse the order of scores, so pass 0 or more")
    return number
