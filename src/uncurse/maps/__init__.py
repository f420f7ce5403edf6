"""Score maps: monotone functions of one served score, the only thing that serving sees."""

from .score_maps import (
    Affine,
    Chain,
    Curve,
    Grouped,
    ScoreMap,
    Steps,
    compose,
    from_dict,
    group_rows,
    load,
    load_about,
    logit_knots,
)

__all__ = [
    "Affine",
    "Chain",
    "Curve",
    "Grouped",
    "ScoreMap",
    "Steps",
    "compose",
    "from_dict",
    "group_rows",
    "load",
    "load_about",
    "logit_knots",
]
