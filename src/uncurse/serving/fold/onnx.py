"""ONNX: scale what feeds the last sigmoid; where that is no plain layer, insert a Mul and an Add, or the map."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..._types import Array
from ...errors import UncurseError
from ...maps import Affine, ScoreMap, Segmented
from ...maps.program import SERVE_SEGMENTS, compile_map
from ...optional import needing
from ..export.onnx import map_nodes
from .common import RAW, Scorer, calling_library, draw_rows, line_of

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
_SEPARATE = "export the map with `uncurse export map.json -o map.onnx` and run it on the model's score"
_WHOLE = "this is no whole ONNX model"
_CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
# What may follow a layer: it moves numbers and changes none.
_MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout", "Gather", "Slice")
_PASSED = (*_MOVES, "ZipMap", "Normalizer", "Cast")
_LAYERS = ("Gemm", "MatMul", "Add", "Sub", "Sum", "ReduceSum", "BatchNormalization")
_SUMS = (*_LAYERS, "LinearRegressor", "TreeEnsembleRegressor")
_NUMBERS = (*_FLOATS, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
_ROWS = 50


def fold_model(score_map: ScoreMap, model: ModelProto, *, output: str | None = None) -> ModelProto:
    """Fold a map into a model; `output` names the score if there are several outputs."""
    if isinstance(score_map, Segmented):
        raise UncurseError(f"this map has a map for each segment, and a graph has one score; {SERVE_SEGMENTS}")
    with calling_library(_WHOLE):
        onnx.checker.check_model(model)
    made = copy.deepcopy(model)
    name = _score_name(made.graph, output)
    node = _end_of(made.graph, name)
    if node.op_type in _CLASSIFIERS:
        _fold_classifier(score_map, node)
    else:
        _fold_sum(score_map, made, node, name)
    with calling_library(_WHOLE):
        onnx.checker.check_model(made)
    return made


def _fold_sum(score_map: ScoreMap, model: ModelProto, node: NodeProto, name: str) -> None:
    """Fold into the layer that makes the sum; else insert the map before the sigmoid, or right after `node`."""
    graph, sigmoid = model.graph, node.op_type == "Sigmoid"
    before = sigmoid and score_map.link == "logistic"  # the map works on logits
    straight = isinstance(score_map, Affine) and (before or not sigmoid)
    tensor = node.input[0] if before else node.output[0]
    line = line_of(score_map, "logistic" if sigmoid else RAW, "this ONNX model") if straight else (1.0, 0.0)
    if straight and _fold_layer(graph, tensor, *line):
        return
    if not sigmoid and score_map.scale == "probability" and score_map.link == "logistic":
        what = f"this map takes probabilities and no sigmoid is seen before the output {name!r}"
        raise UncurseError(f"{what}; {_SEPARATE}")
    kind = _element_type(model, (tensor, name))
    if kind not in _FLOATS:
        found = TensorProto.DataType.Name(kind)
        raise UncurseError(f"the score of this ONNX model is {found}, too coarse to keep the order; use float32")
    text = graph.SerializeToString()
    prefix = next(prefix for i in count(1) if (prefix := f"uncurse_{i}_").encode() not in text)
    source, target = (tensor, f"{prefix}mapped") if before else (f"{prefix}score", tensor)
    if before:
        node.input[0] = target
    else:
        node.output[0] = source  # whoever reads the score now reads the mapped one
    if straight:
        dtype, names = helper.tensor_dtype_to_np_dtype(kind), (f"{prefix}slope", f"{prefix}intercept")
        tensors = [numpy_helper.from_array(np.array(v, dtype), one) for v, one in zip(line, names, strict=True)]
        nodes = [helper.make_node("Mul", [source, names[0]], [f"{prefix}scaled"])]
        nodes += [helper.make_node("Add", [f"{prefix}scaled", names[1]], [target])]
    else:
        opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
        options: dict[str, Any] = {
            "elem_type": kind,
            "opset": opset,
            "prefix": prefix,
            "transform": before or not sigmoid,
        }
        nodes, tensors = map_nodes(compile_map(score_map), source, target, **options)
    # Right after what makes the source; tensors as Constant nodes, which every version of ONNX has.
    place = next((i for i, one in enumerate(graph.node) if source in one.output), -1) + 1
    constants = [helper.make_node("Constant", [], [one.name], value=one) for one in tensors]
    for one in reversed([*constants, *nodes]):
        graph.node.insert(place, one)


def _element_type(model: ModelProto, names: Iterable[str]) -> int:
    """Return the type of the first tensor whose type ONNX infers, or the output has."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # a type that the model itself states will do
        graph = model.graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*graph.output, *graph.value_info)}
    return int(next((types[name] for name in names if types.get(name)), TensorProto.UNDEFINED))


def _fold_layer(graph: GraphProto, name: str, slope: float, intercept: float) -> bool:
    """Into the numbers of the Gemm, or MatMul and Add, that makes this tensor; False where that is not to be done."""
    node, seen = _maker(graph, name), [name]
    while node is not None and node.op_type in _MOVES:
        seen.append(node.input[0])
        node = _maker(graph, node.input[0])
    if node is None:
        return False
    stored = {one.name: one for one in graph.initializer if one.data_type in _FLOATS}
    scale, outputs = 1.0, 1  # what multiplies the bias, and which axis of the weight has the outputs
    if node.op_type == "Gemm" and len(node.input) == 3:
        weight, bias, given = node.input[1], node.input[2], _attributes(node)
        scale = given["beta"].f if "beta" in given else 1.0
        outputs = 0 if "transB" in given and given["transB"].i else 1
    elif node.op_type == "Add":
        product, bias = sorted(node.input, key=stored.__contains__)
        multiply = _maker(graph, product)
        if multiply is None or multiply.op_type != "MatMul":
            return False
        weight, seen = multiply.input[1], [*seen, product]
    else:
        return False
    if not scale or not {weight, bias} <= stored.keys() or any(_uses(graph, one) != 1 for one in (*seen, weight, bias)):
        return False
    if len(stored[weight].dims) != 2 or stored[weight].dims[outputs] != 1:
        return False
    for tensor, shift in ((stored[weight], 0.0), (stored[bias], intercept / scale)):
        values = numpy_helper.to_array(tensor)
        folded = np.asarray(slope * values.astype(np.float64) + shift, values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(folded, tensor.name))
    return True


def _fold_classifier(score_map: ScoreMap, node: NodeProto) -> None:
    """Into a linear classifier or a tree ensemble of two classes."""
    kind, given = node.op_type, _attributes(node)
    if not isinstance(score_map, Affine):
        raise UncurseError(f"this map is not a straight line, so this {kind} cannot hold it; {_SEPARATE}")
    slope, intercept = line_of(score_map, "logistic", f"this {kind}")
    labels = next((one for name, one in given.items() if name.startswith("classlabels_")), None)
    classes = max(len(labels.ints), len(labels.strings)) if labels is not None else 0
    after = given["post_transform"].s.decode() if "post_transform" in given else "NONE"
    if classes != 2 or after not in ("LOGISTIC", "SOFTMAX"):
        raise UncurseError(f"this {kind} of {classes} classes ({after}) is no sum under a sigmoid; {_SEPARATE}")
    fold = _fold_linear if kind == "LinearClassifier" else _fold_trees
    if not fold(given, after, slope, intercept):
        raise UncurseError(f"the two classes of this {kind} are no mirror images; {_SEPARATE}")


def _fold_linear(given: dict[str, Any], after: str, slope: float, intercept: float) -> bool:
    weights = np.array(given["coefficients"].floats).reshape(2, -1)
    starts = np.array(given["intercepts"].floats if "intercepts" in given else ())
    if len(starts) != 2 or not np.allclose(weights[0], -weights[1]) or starts[0] != -starts[1]:
        return False
    shift = intercept / 2 if after == "SOFTMAX" else intercept
    given["coefficients"].floats[:] = (slope * weights).ravel().tolist()
    given["intercepts"].floats[:] = (slope * starts + [-shift, shift]).tolist()
    return True


def _fold_trees(given: dict[str, Any], after: str, slope: float, intercept: float) -> bool:
    """The shift goes to the leaves of the first tree: of base values runtimes make what they will."""
    if after != "LOGISTIC" or "class_weights" not in given:
        return False
    weights = np.array(given["class_weights"].floats, np.float64)
    ids, trees = (np.array(given[name].ints) for name in ("class_ids", "class_treeids"))
    side = np.ones(len(weights))
    if set(ids.tolist()) == {0, 1}:  # both classes, and one is the other turned round
        leaves = list(zip(trees.tolist(), given["class_nodeids"].ints, strict=True))
        first, second = ({leaves[j]: weights[j] for j in np.flatnonzero(ids == i)} for i in (0, 1))
        if first.keys() != second.keys() or any(not np.isclose(first[leaf], -second[leaf]) for leaf in first):
            return False
        side = np.where(ids == 1, 1.0, -1.0)
    elif len(set(ids.tolist())) != 1:
        return False
    given["class_weights"].floats[:] = (slope * weights + intercept * side * (trees == trees[0])).tolist()
    if "base_values" in given:
        given["base_values"].floats[:] = [slope * value for value in given["base_values"].floats]
    return True


# ---------------------------------------------------------------------------- running


def scorers(model: ModelProto, score_map: ScoreMap, *, output: str | None = None) -> list[Scorer]:
    """Return the model as a function to its score, with all columns, and one to its other outputs."""
    with needing("onnx"):
        import onnxruntime
    name = _score_name(model.graph, output)
    path = _path(model.graph, name)
    space = "probability" if path and path[-1].op_type in ("Sigmoid", *_CLASSIFIERS) else score_map.scale
    dtypes = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in _inputs(model)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    with calling_library("ONNX Runtime does not load this model"):
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(x: Any, output: str) -> Any:
        if not isinstance(x, dict) and len(dtypes) != 1:
            raise UncurseError(f"this ONNX model takes {len(dtypes)} inputs ({', '.join(dtypes)}); pass a dict of them")
        feeds = x if isinstance(x, dict) else {next(iter(dtypes)): x}
        return session.run([output], {one: np.asarray(value).astype(dtypes[one]) for one, value in feeds.items()})[0]

    def score(x: Any) -> Array:
        out = run(x, name)
        if isinstance(out, list):  # a ZipMap's dictionaries
            out = [list(row.values()) for row in out]
        values = np.asarray(out, np.float64)
        rows = len(next(iter(x.values())) if isinstance(x, dict) else x)
        values = values.ravel() if values.size == rows else values
        if values.ndim > 1 and (space != "probability" or values.shape[1:] != (2,)):
            raise UncurseError(f"this ONNX model ends in {values.shape[-1]} numbers a row, so no one sum is its score")
        return values

    def others(x: Any) -> dict[str, Any]:
        p = score(x)
        p = p[:, 1] if p.ndim == 2 else p
        found = {one.name: np.asarray(run(x, one.name)) for one in model.graph.output if one.name != name}
        # A label follows the score: compare whether it still tells rows above a half from rows below.
        for one in (one.name for one in model.graph.output if one.name != name and _is_label(one)):
            label = found[one].ravel()
            found[one] = np.array(not set(label[p > 0.501].tolist()) & set(label[p < 0.499].tolist()))
        return found

    return [Scorer(score, space, others=others)]


def rows_for(model: ModelProto) -> list[Any]:
    """Draw numbers for every input, near the thresholds of trees; codes are 0, which every table has."""
    width, splits, blocks = 0, _splits(model.graph), list[dict[str, Any]]()
    for magnitude in range(len(draw_rows(1, {}))):
        feeds = {}
        for one in _inputs(model):
            kind, dims = one.type.tensor_type.elem_type, one.type.tensor_type.shape.dim
            known = all(dim.HasField("dim_value") for dim in dims[1:])
            if not dims or not known or kind not in _NUMBERS:
                raise UncurseError(f"rows for the input {one.name!r} of this ONNX model cannot be drawn; pass X=")
            shape = (dims[0].dim_value or _ROWS, *(dim.dim_value for dim in dims[1:]))
            width = int(np.prod(shape[1:]))
            rows = draw_rows(width, {i: v for i, v in splits.items() if i < width})[magnitude][: shape[0]]
            feeds[one.name] = rows.reshape(shape) if kind in (*_FLOATS, TensorProto.FLOAT16) else np.zeros(shape)
        blocks.append(feeds)
    return list(blocks)


def _inputs(model: ModelProto) -> list[Any]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in stored]


def _splits(graph: GraphProto) -> dict[int, Array]:
    """Return the thresholds of all trees by feature."""
    found: dict[int, list[float]] = {}
    for node in graph.node:
        given = _attributes(node)
        if "nodes_featureids" in given:
            values, modes = given["nodes_values"].floats, given["nodes_modes"].strings
            for feature, value, mode in zip(given["nodes_featureids"].ints, values, modes, strict=True):
                if mode != b"LEAF":
                    found.setdefault(feature, []).append(value)
    return {feature: np.array(values) for feature, values in found.items()}


def read(path: Path) -> ModelProto:
    """Read a model from its bytes alone, not from other files that it names."""
    with calling_library(_WHOLE):
        model = onnx.load_model_from_string(path.read_bytes())
    if b"location" in path.read_bytes():
        tensors = [*model.graph.initializer]
        for attribute in (attribute for node in _nodes(model.graph.node) for attribute in node.attribute):
            tensors += [attribute.t, *attribute.tensors]
            tensors += [tensor for inner in (attribute.g, *attribute.graphs) for tensor in inner.initializer]
        external = [tensor.name for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
        if external:
            what = f"{len(external)} tensors of this ONNX model ({external[0]!r}, …) lie in other files"
            raise UncurseError(f"{what}, which are not read; save it as one file")
    return model


def write(model: ModelProto, source: Path, target: Path) -> None:
    """Save a model as one file."""
    target.write_bytes(model.SerializeToString())


# ---------------------------------------------------------------------------- where the score comes from


def _nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield every node, also of the graphs inside nodes that branch or loop."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                yield from _nodes(graph.node)


def _uses(graph: GraphProto, name: str) -> int:
    """Count how often a tensor is read, also as an output."""
    inside = sum(list(node.input).count(name) for node in _nodes(graph.node))
    return int(inside + sum(one.name == name for one in graph.output))


def _maker(graph: GraphProto, name: str) -> NodeProto | None:
    return next((node for node in graph.node if name in node.output), None)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: attribute for attribute in node.attribute}


def _constant(graph: GraphProto, name: str) -> Any:
    """Return the only number of a stored tensor, else None."""
    found = [tensor for tensor in graph.initializer if tensor.name == name]
    node = _maker(graph, name)
    if node is not None and node.op_type == "Constant":
        found = [attribute.t for attribute in node.attribute if attribute.HasField("t")]
    values = numpy_helper.to_array(found[0]) if found else np.zeros(0)
    return values.item() if values.size == 1 else None


def _is_pair(graph: GraphProto, node: NodeProto) -> bool:
    """Tell whether a node gives 1 − p and p side by side, as classifiers do."""
    other = _maker(graph, node.input[0]) if node.op_type == "Concat" and len(node.input) == 2 else None
    if other is None or other.op_type != "Sub":
        return False
    return bool(other.input[1] == node.input[1] and _constant(graph, other.input[0]) == 1)


def _path(graph: GraphProto, name: str) -> list[NodeProto]:
    """Return the nodes from a tensor back to the one that computes it, past those that only move or pair it."""
    path = []
    node = _maker(graph, name)
    while node is not None:
        path.append(node)
        paired = _is_pair(graph, node)
        if not node.input or not (paired or node.op_type in _PASSED):
            return path
        node = _maker(graph, node.input[1 if paired else 0])
    return []


def _score_name(graph: GraphProto, output: str | None) -> str:
    """Return the name of the output that is the score."""
    names = [one.name for one in graph.output]
    if output is not None and output not in names:
        raise UncurseError(f"output={output!r} is no output of this model; there are: {', '.join(names)}")
    # Of a classifier the label comes first.
    scores = [one.name for one in graph.output if not _is_label(one)] if output is None else [output]
    if len(scores) != 1:
        raise UncurseError(f"this ONNX model has the outputs {', '.join(names)}; say which is the score (--output)")
    return str(scores[0])


def _is_label(value: Any) -> bool:
    """Tell an output of labels from one of numbers."""
    kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else TensorProto.FLOAT
    return kind not in (*_FLOATS, TensorProto.FLOAT16, TensorProto.UNDEFINED)


def _end_of(graph: GraphProto, name: str) -> NodeProto:
    """Return the node whose sum, sigmoid or classes the score is; refuse a model that ends otherwise."""
    path = _path(graph, name)
    if not path:
        raise UncurseError("no node of this ONNX model makes its score; it has no layer to fold into")
    node = path[-1]
    if node.op_type in (*_CLASSIFIERS, "Sigmoid"):
        return node
    makers = [before[-1].op_type for one in node.input if (before := _path(graph, one))]
    if node.op_type not in _SUMS or ("Sigmoid" in makers and node.op_type not in ("Gemm", "MatMul")):
        reason = f"ends in {node.op_type!r}, which is not known to be a sum or a sigmoid"
        raise UncurseError(f"this ONNX model {reason}, so no one sum is its score; {_SEPARATE}")
    return node
