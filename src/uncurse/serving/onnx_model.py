"""ONNX: scale what feeds the last sigmoid; where that is no plain layer, put a Mul and an Add before it, or the map."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..links import UncurseError
from ..maps import Affine, Grouped, ScoreMap
from .formulas import between, operations
from .lines import RAW, line_of
from .onnx_map import map_nodes

# What may lie between a layer and the output: it moves numbers about and changes none.
_MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout")
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
_AVERAGES = ("Mean", "ReduceMean", "Div", "Sum", "Add", "Mul", "ReduceSum", "Concat", "Sub")
_ML = "ai.onnx.ml"
_SEPARATE = "export the map with `uncurse export map.json -o map.onnx` and run it on the model's score"


def fold_model(score_map: ScoreMap, model: ModelProto, *, output: str | None = None) -> ModelProto:
    """A copy of the model with the map folded in; `output` names the score where there are several outputs."""
    made = copy.deepcopy(model)
    graph = made.graph
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has one line for each group and a graph has one score; {_SEPARATE}")
    name = _score(graph, output)
    node = _producer(graph, name)
    if node is not None and node.domain == _ML:
        _fold_classifier(score_map, node)
        return made
    sigmoid = node if node is not None and node.op_type == "Sigmoid" else None
    _check_end(graph, node)
    opset = next((one.version for one in made.opset_import if one.domain in ("", "ai.onnx")), 0)
    straight = isinstance(score_map, Affine) and (score_map.link == "logistic" or sigmoid is None)
    slope, intercept = 1.0, 0.0
    if straight:
        slope, intercept = line_of(score_map, "logistic" if sigmoid is not None else RAW, "this ONNX model")
        start = sigmoid.input[0] if sigmoid is not None else name
        if _fold_layer(graph, start, slope, intercept):
            return made
    # Before the sigmoid where the map works on logits, else on the output.
    if sigmoid is not None and score_map.link == "logistic":
        source, target, steps = sigmoid.input[0], f"{sigmoid.input[0]}_uncurse", between(score_map)
        sigmoid.input[0] = target
    elif sigmoid is None and score_map.scores == "probability" and score_map.link == "logistic":
        raise UncurseError(
            f"this map takes probabilities and no sigmoid is seen before the output {name!r}; {_SEPARATE}"
        )
    else:
        source, target = f"{name}_uncurse", name
        steps = between(score_map) if sigmoid is None else operations(score_map)
        _rename(graph, name, source)
    kind = _type(made, source, name)
    nodes, tensors = (
        _line(slope, intercept, source, target, kind)
        if straight
        else map_nodes(steps, source, target, elem_type=kind, opset=opset)
    )
    _insert(graph, nodes, tensors, source)
    return made


def score_of(model: ModelProto, output: str | None = None) -> tuple[str, bool]:
    """The name of the score among the outputs, and whether it is seen to be a probability."""
    name = _score(model.graph, output)
    node = _producer(model.graph, name)
    return name, node is not None and (node.op_type == "Sigmoid" or node.domain == _ML)


def read(data: bytes) -> ModelProto:
    """A model from its bytes, checked; nothing outside them is read."""
    try:
        model = onnx.load_model_from_string(data)
        external = [t.name for t in _all_tensors(model.graph) if t.data_location == TensorProto.EXTERNAL]
        if external:
            raise UncurseError(
                f"{len(external)} tensors of this ONNX model ({external[0]!r}, …) lie in other files, which are not "
                "read; save it as one file"
            )
        onnx.checker.check_model(model)
    except UncurseError:
        raise
    except Exception as error:  # protobuf and the checker each raise their own
        raise UncurseError(
            f"this is no whole ONNX model ({' '.join(str(error).split())[:120]}); save it again"
        ) from None
    return model


def fold_bytes(score_map: ScoreMap, data: bytes, *, output: str | None = None) -> bytes:
    """A saved model with the map folded in."""
    made = fold_model(score_map, read(data), output=output)
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


# ---------------------------------------------------------------------------- where the score is


def _all_tensors(graph: GraphProto) -> list[TensorProto]:
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t] if attribute.HasField("t") else []
            tensors += attribute.tensors
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                tensors += _all_tensors(inner)
    return tensors


def _score(graph: GraphProto, output: str | None) -> str:
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
    return kind not in (*_FLOATS, TensorProto.FLOAT16, TensorProto.UNDEFINED)


def _by_output(graph: GraphProto, name: str) -> NodeProto | None:
    return next((node for node in graph.node if name in node.output), None)


def _producer(graph: GraphProto, name: str) -> NodeProto | None:
    """What makes this tensor, past what only moves it."""
    node = _by_output(graph, name)
    while node is not None:
        if node.op_type in _MOVES or node.op_type in ("ZipMap", "Normalizer", "Cast"):
            node = _by_output(graph, node.input[0])
        elif _is_pair(graph, node):
            node = _by_output(graph, node.input[1])
        else:
            break
    return node


def _is_pair(graph: GraphProto, node: NodeProto) -> bool:
    """1 − p and p side by side, as classifiers give them."""
    if node.op_type != "Concat" or len(node.input) != 2:
        return False
    other = _by_output(graph, node.input[0])
    return other is not None and other.op_type == "Sub" and other.input[1] == node.input[1]


def _is_probability(graph: GraphProto, node: NodeProto, depth: int = 0) -> bool:
    """Made of sigmoids by sums, products and means alone."""
    if node.op_type in ("Sigmoid", "Softmax"):
        return True
    before = [one for one in (_producer(graph, name) for name in node.input) if one and one.op_type != "Constant"]
    return (
        node.op_type in _AVERAGES
        and depth < 16
        and bool(before)
        and all(_is_probability(graph, one, depth + 1) for one in before)
    )


def _check_end(graph: GraphProto, node: NodeProto | None) -> None:
    if node is None:
        raise UncurseError("no node of this ONNX model makes its score; it has no layer to fold into")
    reason = ""
    if node.op_type in ("Softmax", "LogSoftmax"):
        reason = "ends in a softmax of many classes"
    elif node.op_type != "Sigmoid" and _is_probability(graph, node):
        reason = "goes on after the sigmoid, say to average"
    if reason:
        raise UncurseError(f"this ONNX model {reason}, so no one sum is its score; {_SEPARATE}")


# ---------------------------------------------------------------------------- layers


def _uses(graph: GraphProto, name: str) -> int:
    inside = sum(list(node.input).count(name) for node in graph.node)
    return int(inside + sum(one.name == name for one in graph.output))


def _fold_layer(graph: GraphProto, name: str, slope: float, intercept: float) -> bool:
    """Into the numbers of the Gemm, or MatMul and Add, that makes this tensor; False where that is not to be done."""
    node = _by_output(graph, name)
    seen = [name]
    while node is not None and node.op_type in _MOVES:
        seen.append(node.input[0])
        node = _by_output(graph, node.input[0])
    if node is None or any(_uses(graph, one) > 1 for one in seen):
        return False
    stored = {tensor.name: tensor for tensor in graph.initializer}

    def own(place: int) -> TensorProto | None:
        found = stored.get(node.input[place]) if len(node.input) > place else None
        return found if found is not None and _uses(graph, found.name) == 1 and found.data_type in _FLOATS else None

    if node.op_type == "Gemm":
        weight, bias = own(1), own(2)
        scale = next((a.f for a in node.attribute if a.name == "beta"), 1.0)
        if weight is None or bias is None or not scale:
            return False
        _replace(weight, slope * numpy_helper.to_array(weight).astype(np.float64))
        _replace(bias, slope * numpy_helper.to_array(bias).astype(np.float64) + intercept / scale)
        return True
    if node.op_type != "Add":
        return False
    for place in (0, 1):
        bias, product = own(place), _by_output(graph, node.input[1 - place])
        if bias is None or product is None or product.op_type != "MatMul" or _uses(graph, product.output[0]) > 1:
            continue
        found = stored.get(product.input[1])
        if found is not None and _uses(graph, found.name) == 1 and found.data_type in _FLOATS:
            _replace(found, slope * numpy_helper.to_array(found).astype(np.float64))
            _replace(bias, slope * numpy_helper.to_array(bias).astype(np.float64) + intercept)
            return True
    return False


def _replace(tensor: TensorProto, values: Any) -> None:
    dtype = numpy_helper.to_array(tensor).dtype
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(values.astype(dtype)), tensor.name))


def _line(
    slope: float, intercept: float, source: str, target: str, kind: int
) -> tuple[list[NodeProto], list[TensorProto]]:
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    tensors = [
        numpy_helper.from_array(np.array(value, dtype), f"{target}_{name}")
        for name, value in (("uncurse_slope", slope), ("uncurse_intercept", intercept))
    ]
    scaled = f"{target}_uncurse_scaled"
    nodes = [
        helper.make_node("Mul", [source, tensors[0].name], [scaled]),
        helper.make_node("Add", [scaled, tensors[1].name], [target]),
    ]
    return nodes, tensors


def _rename(graph: GraphProto, name: str, new: str) -> None:
    """The tensor inside; the output of the graph keeps its name."""
    for node in graph.node:
        node.output[:] = [new if one == name else one for one in node.output]
        node.input[:] = [new if one == name else one for one in node.input]


def _insert(graph: GraphProto, nodes: list[NodeProto], tensors: list[TensorProto], source: str) -> None:
    """Right after what makes the source; tensors as Constant nodes, which every version of ONNX has."""
    place = next(i for i, node in enumerate(graph.node) if source in node.output) + 1
    constants = [helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in tensors]
    rest = list(graph.node)[place:]
    del graph.node[place:]
    graph.node.extend([*constants, *nodes, *rest])


def _type(model: ModelProto, *names: str) -> int:
    """Of the score: what the output says, or what shape inference finds."""
    found = TensorProto.UNDEFINED
    for graph in (model.graph, onnx.shape_inference.infer_shapes(model).graph):
        known = {one.name: one.type.tensor_type.elem_type for one in (*graph.output, *graph.value_info)}
        found = found or next((known[name] for name in names if known.get(name)), TensorProto.UNDEFINED)
    if found not in _FLOATS:
        name = TensorProto.DataType.Name(found)
        raise UncurseError(f"the score of this ONNX model is {name}, too coarse to keep the order; use float32")
    return int(found)


def _fold_classifier(score_map: ScoreMap, node: NodeProto) -> None:
    """Into a linear classifier or a tree ensemble of two classes."""
    if not isinstance(score_map, Affine):
        kind = type(score_map).__name__
        raise UncurseError(f"a {kind} is no straight line, so this {node.op_type} cannot hold it; {_SEPARATE}")
    slope, intercept = line_of(score_map, "logistic", f"this {node.op_type}")
    given = {attribute.name: attribute for attribute in node.attribute}
    labels = given.get("classlabels_ints") or given.get("classlabels_int64s") or given.get("classlabels_strings")
    count = max(len(labels.ints), len(labels.strings)) if labels is not None else 0
    after = given["post_transform"].s.decode() if "post_transform" in given else "NONE"
    scaled = {"LinearClassifier": "coefficients", "TreeEnsembleClassifier": "class_weights"}.get(node.op_type)
    if scaled is None or count != 2 or after not in ("LOGISTIC", "SOFTMAX"):
        raise UncurseError(f"this {node.op_type} of {count} classes ({after}) is no sum under a sigmoid; {_SEPARATE}")
    weights = given[scaled]
    weights.floats[:] = [slope * value for value in weights.floats]
    if node.op_type == "LinearClassifier":
        shift = intercept / 2 if after == "SOFTMAX" else intercept
        first, second = given["intercepts"].floats
        given["intercepts"].floats[:] = [slope * first - shift, slope * second + shift]
        return
    if after != "LOGISTIC" or len(set(given["class_ids"].ints)) != 1:
        raise UncurseError(f"the trees of this {node.op_type} vote for several classes; {_SEPARATE}")
    base = list(given["base_values"].floats) if "base_values" in given else [0.0]
    if len(base) != 1:
        raise UncurseError(f"this {node.op_type} has {len(base)} base values; {_SEPARATE}")
    if "base_values" in given:
        node.attribute.remove(given["base_values"])
    node.attribute.append(helper.make_attribute("base_values", [slope * base[0] + intercept]))


__all__ = ["fold_bytes", "fold_model", "read", "score_of"]
