"""A map as nodes of ONNX, in a model of its own or behind another's output.

Everything is computed in double, and the piece is found by a binary search, unrolled: memory stays in proportion to the
rows. No operator is newer than opset 9 or has changed its form since, so the nodes fit a model of any opset from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ...errors import UncurseError
from ...maps import ScoreMap
from ...maps.compile import BELOW_ONE, TINY, Clip, Line, Operation, Phi, Pieces, compile_map, valid_range
from ...version import __version__
from . import edges_of

_FIRST_OPSET = 9
_FAR = 709.0  # exp of it is still finite, and the logistic of −it below all that a map returns


def map_nodes(
    operations: Sequence[Operation], source: str, target: str, *, elem_type: int, opset: int, prefix: str = "uncurse_"
) -> tuple[list[NodeProto], list[TensorProto]]:
    """Return nodes and constants that take the tensor `source` to `target`, of the same shape and type.

    NaN stays NaN, and infinity is no score: check for it where it can be one.
    """
    if opset < _FIRST_OPSET:
        raise UncurseError(f"opset {opset} is too old for a map; convert the model to {_FIRST_OPSET} or later first")
    if elem_type not in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16):
        kind = TensorProto.DataType.Name(elem_type)
        raise UncurseError(f"a map takes scores that are float16, float or double, not {kind}; cast them first")
    graph = _Graph(prefix)
    served = source if elem_type == TensorProto.DOUBLE else graph.add("Cast", source, to=TensorProto.DOUBLE)
    graph.add("Cast", graph.run(operations, served), made=target, to=elem_type)
    return graph.nodes, graph.tensors


def to_onnx(score_map: ScoreMap) -> ModelProto:
    """Export a map as an ONNX model from "score", a vector of doubles, to "prediction"; NaN for what is no score.

    Parameters
    ----------
    score_map : ScoreMap
        An `Affine`, `Curve`, `Steps` or `Chain`.

    Returns
    -------
    onnx.ModelProto
        The model.

    Examples
    --------
    >>> from uncurse import Affine
    >>> to_onnx(Affine(0.5, -1.0)).graph.output[0].name
    'prediction'
    """
    graph = _Graph("uncurse_")
    low, high = valid_range(score_map)
    # Not Less(score, low) holds for NaN too, but then Less(score, the next above high) does not.
    above = graph.add("Not", graph.add("Less", "score", graph.constant(low)))
    below = graph.add("Less", "score", graph.constant(math.nextafter(high, math.inf)))
    is_score = graph.add("And", above, below)
    prediction = graph.run(compile_map(score_map), "score")
    graph.add("Where", is_score, prediction, graph.constant(np.nan), made="prediction")
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["N"]) for name in ("score", "prediction")]
    about = f"The prediction from the served score ({score_map.scale})."
    made = helper.make_graph(graph.nodes, "uncurse", ends[:1], ends[1:], graph.tensors, doc_string=about)
    return helper.make_model(
        made,
        producer_name="uncurse",
        producer_version=__version__,
        ir_version=7,  # old enough for any runtime that is still about
        opset_imports=[helper.make_opsetid("", 13)],
    )


class _Graph:
    """Nodes and constants as they come; `add` and `constant` return the name of what they made."""

    def __init__(self, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._prefix = prefix

    def add(self, kind: str, *inputs: str, made: str = "", **attributes: Any) -> str:
        name = f"{self._prefix}{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made or name], name=name, **attributes))
        return made or name

    def constant(self, value: ArrayLike, dtype: type[np.generic] = np.float64) -> str:
        name = f"{self._prefix}constant_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def run(self, steps: Sequence[Operation], served: str) -> str:
        """All operations on the tensor `served`, a double."""
        l, edges = served, edges_of(steps)
        piece = self._search(edges, served) if edges else ""
        for step in steps:
            l = self._step(step, l, piece)
        return l

    def _search(self, edges: Sequence[float], served: str) -> str:
        """How many edges are at most the score: from the most that there can be, down by 2^i where that is too far.

        The edges are filled up with infinities to 2^k − 1, which only NaN and infinity pass.
        """
        most = _room(len(edges))
        table = self.constant([*edges, *[np.inf] * (most - len(edges))])
        piece, step = self.constant(most, np.int64), (most + 1) // 2
        while step:
            size = self.constant(step, np.int64)
            edge = self.add("Gather", table, self.add("Sub", piece, size), axis=0)
            too_far = self.add("Cast", self.add("Less", served, edge), to=TensorProto.INT64)
            piece = self.add("Sub", piece, self.add("Mul", too_far, size))
            step //= 2
        return piece

    def _step(self, step: Operation, l: str, piece: str) -> str:
        constant = self.constant
        if isinstance(step, Line):
            return self.add("Add", self.add("Mul", l, constant(step.slope)), constant(step.intercept))
        if isinstance(step, Pieces):
            rest = _room(len(step.edges)) - len(step.edges)  # the last piece again, where NaN and infinity end up
            columns = (constant([*column, *[column[-1]] * rest]) for column in (step.x, step.y, step.slope))
            x, y, slope = (self.add("Gather", column, piece, axis=0) for column in columns)
            return self.add("Add", y, self.add("Mul", slope, self.add("Sub", l, x)))
        if isinstance(step, Clip):
            return self.add("Min", self.add("Max", l, constant(step.low)), constant(step.high))
        if step.link not in ("logistic", "log"):
            raise UncurseError(
                f"the {step.link} link is not in ONNX; fit a map of the logistic link, or export it to Python"
            )
        if isinstance(step, Phi):
            if step.link == "log":
                return self.add("Exp", l)
            # Not Sigmoid: ONNX Runtime's is a 1 less something, which has no lower tail.
            far = self.add("Exp", self.add("Min", self.add("Neg", l), constant(_FAR)))
            return self.add("Reciprocal", self.add("Add", far, constant(1.0)))
        l = self.add("Max", l, constant(TINY))
        if step.link == "log":
            return self.add("Log", l)
        rest_of = self.add("Sub", constant(1.0), l)
        return self.add("Sub", self.add("Log", l), self.add("Log", self.add("Max", rest_of, constant(1.0 - BELOW_ONE))))


def _room(count: int) -> int:
    """The least 2^k − 1 that is no less."""
    return (1 << count.bit_length()) - 1
