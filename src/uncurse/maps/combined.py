"""One map per segment, and maps of every kind from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .._types import Array, Float
from ..errors import UncurseError
from ..links import logistic, to_link
from ..threads import chunks
from ..validation import check_choice, check_scores, encode_names
from .shapes import Affine, Curve, ScoreMap, Steps, set_fields, to_prediction

if TYPE_CHECKING:
    from ..evidence import Evidence, Histogram


@dataclass(frozen=True, repr=False)
class Segmented(ScoreMap):
    """One map per segment, and a default map for all other segments.

    Parameters
    ----------
    default : ScoreMap
        Map for segments that are not in `maps`.
    maps : mapping of str to ScoreMap
        Map of each segment by its name, on the scale of `default`.

    Examples
    --------
    >>> segmented = Segmented(Affine(1.0, 0.0), {"news": Affine(1.0, 1.0)})
    >>> segmented([0.0, 0.0], ["news", "sport"])
    array([0.73105858, 0.5       ])
    """

    kind: ClassVar[str] = "segmented"
    default: ScoreMap
    maps: Mapping[str, ScoreMap]
    link: str = field(init=False)
    scale: str = field(init=False)

    def __post_init__(self) -> None:
        if not isinstance(self.maps, Mapping) or not all(isinstance(name, str) for name in self.maps):
            raise UncurseError(f"maps is {self.maps!r:.80}; pass a mapping from names of segments (text) to maps")
        try:
            "".join(self.maps).encode()
        except UnicodeEncodeError as error:
            raise UncurseError(f"a name of a segment is not text: {error}; rename the segment") from None
        named = {f"the map of segment {segment!r}": part for segment, part in self.maps.items()}
        for name, part in {"the default map": self.default, **named}.items():
            if not isinstance(part, ScoreMap) or isinstance(part, Segmented):
                raise UncurseError(f"{name} is of type {type(part).__name__}; pass an Affine, Curve or Steps")
            if part.scale != self.default.scale:
                what = f"{name} takes scores on the {part.scale} scale and the default on the {self.default.scale}"
                raise UncurseError(f"{what} scale; use one scale (`compose` sets it)")
        set_fields(self, maps=dict(self.maps), link=self.default.link, scale=self.default.scale)

    def __call__(self, scores: ArrayLike, segments: ArrayLike | None = None) -> Array:
        """Return predictions.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Scores on the scale of the map.
        segments : array-like of shape (n,)
            Segment of each row. Segments that are not in `maps` get the default map. For the default map of all rows,
            call `default`.

        Returns
        -------
        ndarray of float64 of shape (n,)
            Predictions.
        """
        if segments is None:
            return super().__call__(scores)
        values = check_scores(scores, self.scale, largest=np.inf)
        names, codes = encode_names(segments, len(values), "segments")
        number = {name: i for i, name in enumerate(self.maps)}
        return predict_segments(self, values, np.array([number.get(name, -1) for name in names])[codes])

    def _transform(self, l: Float) -> Float:
        return self.default.transform(l)

    def _predict(self, values: Float, scale: str) -> Array:
        raise UncurseError("this map has a map for each segment; pass segments=, or call its .default for all rows")

    def to_dict(self) -> dict[str, Any]:
        """Return the map as plain data.

        Returns
        -------
        dict
            The kind, and all maps as plain data.
        """
        maps = {name: part.to_dict() for name, part in self.maps.items()}
        return {"kind": self.kind, "default": self.default.to_dict(), "maps": maps}


def predict_segments(score_map: Segmented, scores: Float, numbers: NDArray[np.integer[Any]]) -> Array:
    """Return predictions for segments that are given by their position in `maps`; -1 means the default map."""
    maps, link, scale = [*score_map.maps.values(), score_map.default], score_map.link, score_map.scale
    scores = scores.astype(np.float64, copy=False)
    lines = [(part.slope, part.intercept) for part in maps if isinstance(part, Affine) and part.link == link]
    out = np.empty(len(scores))
    if len(lines) == len(maps):  # one pass, for thousands of segments of few rows
        slopes, intercepts = np.array(lines).T.copy()
        for rows in chunks(len(scores)):
            with np.errstate(over="ignore"):
                l = slopes[numbers[rows]] * to_link(scores[rows], scale, link) + intercepts[numbers[rows]]
            out[rows] = to_prediction(l, link, scale)
        return out
    order = np.argsort(numbers, kind="stable")
    present, starts = np.unique(numbers[order], return_index=True)
    for i, members in zip(present.tolist(), np.split(order, starts[1:]), strict=True):
        out[members] = maps[i]._predict(scores[members], scale)
    return out


def predicted_cells(score_map: ScoreMap | None, evidence: Evidence) -> dict[str, tuple[Array, Histogram]]:
    """Return predictions and histogram of each segment of the rows; without segments, of all rows, whose name is empty.

    Without a map the predictions are those of the served score.
    """
    if isinstance(score_map, Segmented) and not evidence.segments:
        raise UncurseError("this map has a map for each segment; collect the log by its segment column too")
    found = {}
    for name, part in (evidence.segments or {"": evidence}).items():
        own = score_map.maps.get(name, score_map.default) if isinstance(score_map, Segmented) else score_map
        assert part.served is not None
        # Histograms hold logits corrected for negative sampling. Maps take uncorrected logits.
        score, offset = part.served.score, evidence.spec.logit_offset
        p = logistic(score).astype(np.float64, copy=False) if own is None else own.at_logits(score - offset)
        found[name] = p, part.served
    return found


MAP_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Affine, Curve, Steps, Segmented)}


def from_dict(content: Mapping[str, Any], *, source: str = "map") -> ScoreMap:
    """Build a map from plain data, as from `ScoreMap.to_dict`; `source` names the data in error messages.

    >>> from_dict({"kind": "affine", "slope": 0.5, "intercept": 0})
    Affine(slope=0.5, intercept=0.0, link='logistic', scale='logit')
    """
    if not isinstance(content, Mapping):
        raise UncurseError(f"{source} holds {content!r:.80} where a map should be; write it again")
    kind = check_choice("kind", content.get("kind"), tuple(MAP_KINDS))
    fields = {key: value for key, value in content.items() if key != "kind"}
    try:
        if kind == "segmented":
            maps = {name: from_dict(part, source=source) for name, part in fields.pop("maps").items()}
            fields = {**fields, "default": from_dict(fields["default"], source=source), "maps": maps}
        score_map: ScoreMap = MAP_KINDS[kind](**fields)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UncurseError(f"{source} is not a complete {kind} map ({error}); write it again") from None
    return score_map
