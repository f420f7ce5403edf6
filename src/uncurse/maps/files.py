"""Read maps from plain data and from JSON files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .. import documents
from ..errors import UncurseError
from ..validation import check_choice
from .base import ScoreMap
from .combined import Chain, Grouped
from .shapes import Affine, Curve, Steps

_KINDS: dict[str, Any] = {kind.kind: kind for kind in (Affine, Curve, Steps, Chain, Grouped)}


def from_dict(content: Mapping[str, Any], *, source: str = "map") -> ScoreMap:
    """Build a map from plain data.

    Parameters
    ----------
    content : mapping
        Plain data, as from `ScoreMap.to_dict`.
    source : str, default="map"
        Name of the data in error messages, such as a path.

    Returns
    -------
    ScoreMap
        The map.

    Examples
    --------
    >>> from_dict({"kind": "affine", "slope": 0.5, "intercept": 0})
    Affine(slope=0.5, intercept=0.0, link='logistic', scale='logit')
    """
    if not isinstance(content, Mapping):
        raise UncurseError(f"{source} holds {content!r:.80} where a map should be; write it again")
    kind = check_choice("kind", content.get("kind"), tuple(_KINDS))
    fields = {key: value for key, value in content.items() if key not in ("kind", "schema_version", "record")}
    try:
        if kind == "grouped":
            maps = {name: from_dict(part, source=source) for name, part in fields.pop("maps").items()}
            fields = {**fields, "default": from_dict(fields["default"], source=source), "maps": maps}
        elif kind == "chain":
            fields = {**fields, "maps": [from_dict(part, source=source) for part in fields["maps"]]}
        score_map: ScoreMap = _KINDS[kind](**fields)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UncurseError(f"{source} is not a complete {kind} map ({error}); write it again") from None
    return score_map


def load(path: str | os.PathLike[str]) -> ScoreMap:
    """Read a map from a file written by `ScoreMap.save`.

    Parameters
    ----------
    path : str or path-like
        A JSON file.

    Returns
    -------
    ScoreMap
        The map.

    Examples
    --------
    >>> load("absent.json")
    Traceback (most recent call last):
    uncurse.errors.UncurseError: cannot read absent.json: No such file or directory
    """
    content = documents.read(path)
    if content["kind"] not in _KINDS:
        raise UncurseError(f"{path} is of kind {content['kind']!r}; pass a map written by `save` or `uncurse fit`")
    return from_dict(content, source=str(path))
