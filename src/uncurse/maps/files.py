"""Read maps from plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UncurseError
from ..validation import check_choice
from .base import ScoreMap
from .combined import Segmented
from .shapes import Affine, Curve, Steps

MAP_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Affine, Curve, Steps, Segmented)}


def from_dict(content: Mapping[str, Any], *, source: str = "map") -> ScoreMap:
    """Build a map from plain data, as from `ScoreMap.to_dict`; `source` names the data in error messages.

    >>> from_dict({"kind": "affine", "slope": 0.5, "intercept": 0})
    Affine(slope=0.5, intercept=0.0, link='logistic', scale='logit')
    """
    if not isinstance(content, Mapping):
        raise UncurseError(f"{source} holds {content!r:.80} where a map should be; write it again")
    kind = check_choice("kind", content.get("kind"), tuple(MAP_KINDS))
    fields = {key: value for key, value in content.items() if key not in ("kind", "schema_version", "record")}
    try:
        if kind == "segmented":
            maps = {name: from_dict(part, source=source) for name, part in fields.pop("maps").items()}
            fields = {**fields, "default": from_dict(fields["default"], source=source), "maps": maps}
        score_map: ScoreMap = MAP_KINDS[kind](**fields)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UncurseError(f"{source} is not a complete {kind} map ({error}); write it again") from None
    return score_map
