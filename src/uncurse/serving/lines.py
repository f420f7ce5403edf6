"""What a map must be to be folded: two numbers, in the space in which the model adds up."""

from __future__ import annotations

from ..links import UncurseError
from ..maps import Affine, Chain, Grouped, ScoreMap, compose

#: The link of a model that returns its sum as it is: a logit, a probability or a value, as the map says.
RAW = "raw"
ELSEWHERE = (
    "serve the map behind the model instead: `uncurse fold` appends it to an ONNX model, "
    "`uncurse export` writes it as ONNX, C or Python, `uncurse sql` as SQL, and uncurse.serving.MapModule is a torch "
    "module"
)


def line_of(score_map: ScoreMap, link: str, model: str) -> tuple[float, float]:
    """Slope and intercept on the sum of a model with this link.

    >>> line_of(Affine(0.8, -0.1), "logistic", "a LogisticRegression")
    (0.8, -0.1)
    """
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has one line for each group and {model} has one sum; {ELSEWHERE}")
    if isinstance(score_map, Chain):
        score_map = compose(*score_map.maps, scores=score_map.scores)
    if not isinstance(score_map, Affine):
        kind = type(score_map).__name__
        raise UncurseError(f"a {kind} is no straight line, so the numbers of {model} cannot hold it; {ELSEWHERE}")
    wanted = link if link != RAW else ("logistic" if score_map.scores == "logit" else "identity")
    if score_map.link != wanted:
        raise UncurseError(
            f"this map is straight in the {score_map.link} link and {model} in the {wanted} link; fit it with "
            f"link={wanted!r}, or {ELSEWHERE}"
        )
    if score_map.slope == 0:
        raise UncurseError("the slope of this map is 0, so the folded model would have no order; fit it again")
    return score_map.slope, score_map.intercept


__all__ = ["ELSEWHERE", "RAW", "line_of"]
