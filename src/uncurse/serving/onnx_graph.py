"""Where the score of an ONNX graph comes from, and what else hangs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from ..errors import UncurseError

ML = "ai.onnx.ml"
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
SEPARATE = "export the map with `uncurse export map.json -o map.onnx` and run it on the model's score"
#: What may lie between a layer and the output: it moves numbers about and changes none.
MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout", "Gather", "Slice")
CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
_PASSED = ("ZipMap", "Normalizer", "Cast")
_AVERAGES = ("Mean", "ReduceMean", "Div", "Sum", "Add", "Mul", "ReduceSum", "Concat", "Sub")
_SUMS = (
    "Gemm",
    "MatMul",
    "Add",
    "Sub",
    "Sum",
    "ReduceSum",
    "BatchNormalization",
    "LinearRegressor",
    "TreeEnsembleRegressor",
)


def _inner_graphs(node: NodeProto) -> Iterator[GraphProto]:
    """Of a node that branches or loops."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def nodes_of(graph: GraphProto) -> Iterator[NodeProto]:
    """Every node, those of graphs inside nodes too."""
    for node in graph.node:
        yield node
        for inner in _inner_graphs(node):
            yield from nodes_of(inner)


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor that is stored."""
    yield from graph.initializer
    for node in nodes_of(graph):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for inner in _inner_graphs(node):
            yield from inner.initializer


def uses(graph: GraphProto, name: str) -> int:
    """How often a tensor is read, as an output too."""
    inside = sum(list(node.input).count(name) for node in nodes_of(graph))
    return int(inside + sum(one.name == name for one in graph.output))


def maker(graph: GraphProto, name: str) -> NodeProto | None:
    """The node that makes this tensor."""
    return next((node for node in graph.node if name in node.output), None)


def origin(graph: GraphProto, name: str) -> NodeProto | None:
    """The node that makes this tensor, past what only moves it."""
    node = maker(graph, name)
    while node is not None and node.input:
        if node.op_type in MOVES or node.op_type in _PASSED:
            node = maker(graph, node.input[0])
        elif _is_pair(graph, node):
            node = maker(graph, node.input[1])
        else:
            break
    return node


def _is_pair(graph: GraphProto, node: NodeProto) -> bool:
    """1 − p and p side by side, as classifiers give them."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return False
    other = maker(graph, node.input[0])
    return other is not None and other.op_type == "Sub" and other.input[1] == node.input[1]


def score_name(graph: GraphProto, output: str | None) -> str:
    """The name of the output that is the score."""
    names = [one.name for one in graph.output]
    if output is not None:
        if output not in names:
            raise UncurseError(f"output={output!r} is no output of this model; there are: {', '.join(names)}")
        return output
    # Of a classifier the label comes first, and beside it what probabilities are.
    scores = [one.name for one in graph.output if not _is_label(one)]
    if len(scores) != 1:
        raise UncurseError(f"this ONNX model has the outputs {', '.join(names)}; say which is the score (--output)")
    return str(scores[0])


def _is_label(value: Any) -> bool:
    kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else TensorProto.FLOAT
    return kind not in (*FLOATS, TensorProto.FLOAT16, TensorProto.UNDEFINED)


def end_of(model: ModelProto, name: str) -> NodeProto:
    """The node whose sum, or sigmoid, or classes the score is; what is no such thing is refused."""
    graph = model.graph
    node = origin(graph, name)
    if node is None:
        raise UncurseError("no node of this ONNX model makes its score; it has no layer to fold into")
    if node.op_type in CLASSIFIERS and node.domain == ML:
        return node
    reason = ""
    if node.op_type in ("Softmax", "LogSoftmax"):
        reason = "ends in a softmax of many classes"
    elif node.op_type != "Sigmoid" and _is_probability(graph, node):
        reason = "goes on after the sigmoid, say to average"
    elif node.op_type not in ("Sigmoid", *_SUMS) or node.domain not in ("", "ai.onnx", ML):
        reason = f"ends in {node.op_type!r}, which is not known to be a sum or a sigmoid"
    elif (width := _width(model, node)) not in (None, 1):
        reason = f"ends in {width} numbers a row"
    elif any(one.op_type == "Normalizer" for one in _path(graph, name)):
        reason = "divides what it gives by its sum"
    if reason:
        raise UncurseError(f"this ONNX model {reason}, so no one sum is its score; {SEPARATE}")
    return node


def _path(graph: GraphProto, name: str) -> Iterator[NodeProto]:
    end, node = origin(graph, name), maker(graph, name)
    while node is not None and node is not end and node.input:
        yield node
        node = maker(graph, node.input[1] if _is_pair(graph, node) else node.input[0])


def _is_probability(graph: GraphProto, node: NodeProto, depth: int = 0) -> bool:
    """Made of sigmoids by sums, products and means alone."""
    if node.op_type in ("Sigmoid", "Softmax"):
        return True
    before = [one for one in (origin(graph, name) for name in node.input) if one and one.op_type != "Constant"]
    return (
        node.op_type in _AVERAGES
        and depth < 16
        and bool(before)
        and all(_is_probability(graph, one, depth + 1) for one in before)
    )


def _width(model: ModelProto, node: NodeProto) -> int | None:
    """Numbers a row of what a node gives; None where that is not known. Of one axis, rows are it."""
    known = value_types(model).get(node.output[0])
    if known is None or not known.HasField("shape"):
        return None
    dims = known.shape.dim
    if len(dims) < 2:
        return 1
    return dims[-1].dim_value if dims[-1].HasField("dim_value") else None


def value_types(model: ModelProto) -> dict[str, Any]:
    """Types of tensors by name, as far as inference goes."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # of a foreign model; what it says itself is left
        graph = model.graph
    return {one.name: one.type.tensor_type for one in (*graph.output, *graph.value_info)}


def others_behind(graph: GraphProto, name: str, score: str) -> list[str]:
    """Outputs other than the score, and no labels, that are made of a tensor."""
    reached = {name}
    for node in graph.node:  # in an order in which inputs come first
        inside = set(node.input)
        for inner in _inner_graphs(node):
            inside |= {name for part in nodes_of(inner) for name in part.input}
        if reached & inside:
            reached |= set(node.output)
    return [one.name for one in graph.output if one.name in reached and one.name != score and not _is_label(one)]


def fresh(graph: GraphProto, stem: str) -> str:
    """A name that nothing has yet."""
    taken = {one for node in nodes_of(graph) for one in (*node.output, *node.input)}
    taken |= {one.name for one in (*graph.input, *graph.output, *graph.initializer)}
    name, count = stem, 1
    while any(one.startswith(name) for one in taken):
        count += 1
        name = f"{stem}{count}_"
    return name


__all__ = [
    "CLASSIFIERS",
    "FLOATS",
    "MOVES",
    "SEPARATE",
    "end_of",
    "fresh",
    "maker",
    "nodes_of",
    "origin",
    "others_behind",
    "score_name",
    "tensors_of",
    "uses",
    "value_types",
]
