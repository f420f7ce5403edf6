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

from ...maps import ScoreMap
from ...maps.program import BELOW_ONE, TINY, Program, compile_map
from ...methods.fitted import Fitted, fitted_of
from ...version import __version__

_FAR = 709.0  # exp of it is still finite, and the logistic of −it below all that a map returns


def to_onnx(score_map: ScoreMap | Fitted) -> ModelProto:
    """Export a map as an ONNX model from "score", a vector of doubles, to "prediction"; NaN for what is no score.

    Parameters
    ----------
    score_map : ScoreMap or Fitted
        An `Affine`, `Curve` or `Steps`.

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
    score_map = fitted_of(score_map).map
    program, graph = compile_map(score_map), Graph("uncurse_")
    low, high = program.valid
    # Not Less(score, low) holds for NaN too, but then Less(score, the next above high) does not.
    above = graph.add("Not", graph.add("Less", "score", graph.constant(low)))
    below = graph.add("Less", "score", graph.constant(math.nextafter(high, math.inf)))
    is_score = graph.add("And", above, below)
    graph.add("Where", is_score, graph.predict(program, "score"), graph.constant(np.nan), made="prediction")
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


class Graph:
    """Nodes and constants as they come; methods return the name of what they made.

    NaN stays NaN, and infinity is no score: check for it where it can be one.
    """

    def __init__(self, prefix: str) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: list[TensorProto] = []
        self._prefix = prefix

    def add(self, kind: str, *inputs: str, made: str = "", **attributes: Any) -> str:
        """Add a node, whose output is `made` or has a name of its own."""
        name = f"{self._prefix}{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [made or name], name=name, **attributes))
        return made or name

    def constant(self, value: ArrayLike, dtype: type[np.generic] = np.float64) -> str:
        """Add numbers."""
        name = f"{self._prefix}constant_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.asarray(value, dtype=dtype), name))
        return name

    def predict(self, program: Program, score: str) -> str:
        """Take scores to predictions."""
        l, (before, after) = score, program.steps
        for step in before:
            l = getattr(self, f"_{step}")(l)
        l = self.transform(program, l, score)
        for step in after:
            l = getattr(self, f"_{step}")(l)
        if program.bounds is None:
            return l
        return self.add("Min", self._at_least(l, program.bounds[0]), self.constant(program.bounds[1]))

    def transform(self, program: Program, l: str, score: str) -> str:
        """Take scores of the link to scores of the link; pieces are found by `score`."""
        columns = np.array(program.pieces).T
        if program.edges:
            piece = self._search(program.link_edges if score == l else program.edges, score)
            rest = _room(len(program.edges)) - len(program.edges)  # the last piece again, where infinity ends up
            padded = np.pad(columns, ((0, 0), (0, rest)), mode="edge")
            x, y, slope = (self.add("Gather", self.constant(column), piece, axis=0) for column in padded)
        else:
            x, y, slope = (self.constant(value) for value in columns[:, 0])
        return self.add("Add", y, self.add("Mul", slope, self.add("Sub", l, x)))

    def _at_least(self, l: str, low: float) -> str:
        return self.add("Max", l, self.constant(low))

    def _exp(self, l: str) -> str:
        return self.add("Exp", l)

    def _log(self, l: str) -> str:
        return self.add("Log", self._at_least(l, TINY))

    def _logistic(self, l: str) -> str:
        # Not Sigmoid: ONNX Runtime's is a 1 less something, which has no lower tail.
        far = self.add("Exp", self.add("Min", self.add("Neg", l), self.constant(_FAR)))
        return self.add("Reciprocal", self.add("Add", far, self.constant(1.0)))

    def _logit(self, p: str) -> str:
        rest = self._at_least(self.add("Sub", self.constant(1.0), p), 1.0 - BELOW_ONE)
        return self.add("Sub", self.add("Log", self._at_least(p, TINY)), self.add("Log", rest))

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


def _room(count: int) -> int:
    """The least 2^k − 1 that is no less."""
    return (1 << count.bit_length()) - 1
