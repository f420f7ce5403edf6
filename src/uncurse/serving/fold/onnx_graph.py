"""Where the score of an ONNX graph comes from, and what else depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, count
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from ...errors import UncurseError
from ...validation import warn_user

FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
SEPARATE = "export the map with `uncurse export map.json -o map.onnx` and run it on the model's score"
#: What may follow a layer: it moves numbers and changes none.
MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout", "Gather", "Slice")
CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
_PASSED = (*MOVES, "ZipMap", "Normalizer", "Cast")
_AVERAGES = ("Mean", "ReduceMean", "Div", "Sum", "Add", "Mul", "ReduceSum", "Concat", "Sub")
_SUMS = (
    *("Gemm", "MatMul", "Add", "Sub", "Sum", "ReduceSum", "BatchNormalization"),
    *("LinearRegressor", "TreeEnsembleRegressor"),
)


def nodes_of(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield every node, also of the graphs inside nodes that branch or loop."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from nodes_of(graph.node)


def tensors_of(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield every stored tensor, and an empty one for an attribute that has none."""
    yield from graph.initializer
    for attribute in (attribute for node in nodes_of(graph.node) for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors, *attribute.g.initializer)
        yield from (tensor for inner in attribute.graphs for tensor in inner.initializer)


def uses(graph: GraphProto, name: str) -> int:
    """Count how often a tensor is read, also as an output."""
    inside = sum(list(node.input).count(name) for node in nodes_of(graph.node))
    return int(inside + sum(one.name == name for one in graph.output))


def maker(graph: GraphProto, name: str) -> NodeProto | None:
    """Return the node that makes this tensor."""
    return next((node for node in graph.node if name in node.output), None)


def attributes(node: NodeProto) -> dict[str, Any]:
    """Return the attributes of a node by name."""
    return {attribute.name: attribute for attribute in node.attribute}


def _constant(graph: GraphProto, name: str) -> Any:
    """Return the only number of a stored tensor, else None."""
    found = [tensor for tensor in graph.initializer if tensor.name == name]
    node = maker(graph, name)
    if node is not None and node.op_type == "Constant":
        found = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
    values = numpy_helper.to_array(found[0]) if found else np.zeros(0)
    return values.item() if values.size == 1 else None


def _is_pair(graph: GraphProto, node: NodeProto) -> bool:
    """Tell whether a node gives 1 − p and p side by side, as classifiers do."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return False
    other = maker(graph, node.input[0])
    return (
        other is not None
        and other.op_type == "Sub"
        and other.input[1] == node.input[1]
        and _constant(graph, other.input[0]) == 1
    )


def _path(graph: GraphProto, name: str) -> list[NodeProto]:
    """Return the nodes from a tensor back to the one that computes it, past those that only move or pair it."""
    path = []
    node = maker(graph, name)
    while node is not None:
        path.append(node)
        paired = _is_pair(graph, node)
        if not node.input or not (paired or node.op_type in _PASSED):
            break
        node = maker(graph, node.input[1 if paired else 0])
    return path if node is not None else []


def score_name(graph: GraphProto, output: str | None) -> str:
    """Return the name of the output that is the score."""
    names = [one.name for one in graph.output]
    if output is not None:
        if output not in names:
            raise UncurseError(f"output={output!r} is no output of this model; there are: {', '.join(names)}")
        return output
    scores = [one.name for one in graph.output if not is_label(one)]  # of a classifier the label comes first
    if len(scores) != 1:
        raise UncurseError(f"this ONNX model has the outputs {', '.join(names)}; say which is the score (--output)")
    return str(scores[0])


def is_label(value: Any) -> bool:
    """Tell an output of labels from one of numbers."""
    kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else TensorProto.FLOAT
    return kind not in (*FLOATS, TensorProto.FLOAT16, TensorProto.UNDEFINED)


def end_of(model: ModelProto, name: str) -> NodeProto:
    """Return the node whose sum, sigmoid or classes the score is; refuse a model that ends otherwise."""
    graph = model.graph
    path = _path(graph, name)
    if not path:
        raise UncurseError("no node of this ONNX model makes its score; it has no layer to fold into")
    node, reason = path[-1], ""
    classifier = node.op_type in CLASSIFIERS and node.domain == "ai.onnx.ml"
    if (classifier or any(_is_pair(graph, one) for one in path)) and not _keeps_last_column(graph, path):
        reason = "picks a column of both classes, which may not be that of the second"
    elif classifier:
        return node
    elif node.op_type in ("Softmax", "LogSoftmax"):
        reason = "ends in a softmax of many classes"
    elif node.op_type != "Sigmoid" and _is_probability(graph, node):
        reason = "goes on after the sigmoid, say to average"
    elif node.op_type not in ("Sigmoid", *_SUMS) or node.domain not in ("", "ai.onnx", "ai.onnx.ml"):
        reason = f"ends in {node.op_type!r}, which is not known to be a sum or a sigmoid"
    elif (width := _width(model, node)) not in (None, 1):
        reason = f"ends in {width} numbers a row"
    elif any(one.op_type == "Normalizer" for one in path):
        reason = "divides what it gives by its sum"
    if reason:
        raise UncurseError(f"this ONNX model {reason}, so no one sum is its score; {SEPARATE}")
    return node


def _keeps_last_column(graph: GraphProto, path: list[NodeProto]) -> bool:
    """Tell whether nothing after the columns of both classes picks another one than the last."""
    for node in path:
        if _is_pair(graph, node):
            break
        across = "axis" in attributes(node) and attributes(node)["axis"].i in (1, -1)
        last = node.op_type == "Gather" and across and _constant(graph, node.input[1]) in (1, -1)
        if node.op_type in ("Gather", "Slice", "Transpose") and not last:
            return False
    return True


def _is_probability(graph: GraphProto, node: NodeProto, depth: int = 0) -> bool:
    """Tell whether a node makes sums, products and means of sigmoids alone."""
    if node.op_type in ("Sigmoid", "Softmax"):
        return True
    paths = [_path(graph, name) for name in node.input]
    before = [path[-1] for path in paths if path and path[-1].op_type != "Constant"]
    return (
        node.op_type in _AVERAGES
        and depth < 16
        and bool(before)
        and all(_is_probability(graph, one, depth + 1) for one in before)
    )


def _width(model: ModelProto, node: NodeProto) -> int | None:
    """Return how many numbers a row a node gives; None if that is not known. A single axis is that of rows."""
    known = value_types(model, warn=True).get(node.output[0])
    if known is None or not known.HasField("shape"):
        return None
    dims = known.shape.dim
    if len(dims) < 2:
        return 1
    return dims[-1].dim_value if dims[-1].HasField("dim_value") else None


def value_types(model: ModelProto, *, warn: bool = False) -> dict[str, Any]:
    """Return the types of tensors by name, as far as ONNX infers them; `warn` if that fails."""
    graph = model.graph
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
        onnx.shape_inference.infer_shapes(model, strict_mode=True)  # without, ONNX passes over most errors
    except Exception as error:  # of a foreign model: many kinds
        if warn:
            warn_user(
                f"ONNX cannot infer all shapes of this model ({' '.join(str(error).split())[:160]}), so how many "
                "scores a row has may be unknown; compare the folded model with `uncurse verify`"
            )
    return {one.name: one.type.tensor_type for one in (*graph.output, *graph.value_info)}


def others_behind(graph: GraphProto, name: str, score: str) -> list[str]:
    """Return the outputs that depend on a tensor, other than the score and labels."""
    reached = {name}
    for node in graph.node:  # sorted: inputs come first
        if any(name in reached for part in nodes_of([node]) for name in part.input):
            reached |= set(node.output)
    return [one.name for one in graph.output if one.name in reached and one.name != score and not is_label(one)]


def unused_prefix(graph: GraphProto) -> str:
    """Return a prefix that no name in the graph has: "uncurse_", or with a number."""
    taken = {one for node in nodes_of(graph.node) for one in (*node.output, *node.input)}
    taken |= {one.name for one in (*graph.input, *graph.output, *graph.initializer)}
    prefixes = chain(["uncurse_"], (f"uncurse_{i}_" for i in count(2)))
    return next(prefix for prefix in prefixes if not any(name.startswith(prefix) for name in taken))
