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
from ...maps import Affine, Grouped, ScoreMap
from ...maps.compile import SERVE_GROUPS, compile_map, compile_transform
from ...optional import needing
from ...validation import warn_user
from ..export.onnx import map_nodes
from .files import Scorer
from .line import RAW, calling_library, line_of, simplified

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
_SEPARATE = "export the map with `uncurse export map.json -o map.onnx` and run it on the model's score"
_WHOLE = "this is no whole ONNX model"
_CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
# What may follow a layer: it moves numbers and changes none.
_MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout", "Gather", "Slice")
_PASSED = (*_MOVES, "ZipMap", "Normalizer", "Cast")
_AVERAGES = ("Mean", "ReduceMean", "Div", "Sum", "Add", "Mul", "ReduceSum", "Concat", "Sub")
_LAYERS = ("Gemm", "MatMul", "Add", "Sub", "Sum", "ReduceSum", "BatchNormalization")
_SUMS = (*_LAYERS, "LinearRegressor", "TreeEnsembleRegressor")


def fold_model(score_map: ScoreMap, model: ModelProto, *, output: str | None = None) -> ModelProto:
    """Fold a map into a model; `output` names the score if there are several outputs."""
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has a map for each group, and a graph has one score; {SERVE_GROUPS}")
    with calling_library(_WHOLE):
        onnx.checker.check_model(model)
    made = copy.deepcopy(model)
    graph, score_map = made.graph, simplified(score_map)
    name = _score_name(graph, output)
    node = _end_of(graph, name)
    classifier = node.op_type in _CLASSIFIERS
    others = _others_behind(graph, node.output[-1 if classifier else 0], name)
    if others:
        raise UncurseError(f"the output {others[0]!r} is made of the score too, and would change with it; {_SEPARATE}")
    if classifier:
        _fold_classifier(score_map, node)
    else:
        _fold_sum(score_map, made, node, name)
    with calling_library(_WHOLE):
        onnx.checker.check_model(made)
    return made


def _fold_sum(score_map: ScoreMap, model: ModelProto, node: NodeProto, name: str) -> None:
    """Fold into the layer that makes the sum; else insert the map before the sigmoid, or right after `node`."""
    graph, sigmoid, types = model.graph, node.op_type == "Sigmoid", _value_types(model)
    dims: Any = types[node.output[0]].shape.dim if node.output[0] in types else ()
    if len(dims) > 1 and dims[-1].HasField("dim_value") and dims[-1].dim_value != 1:
        what = f"this ONNX model ends in {dims[-1].dim_value} numbers a row, so no one sum is its score"
        raise UncurseError(f"{what}; {_SEPARATE}")
    before = sigmoid and score_map.link == "logistic"  # the map works on logits
    straight = isinstance(score_map, Affine) and (before or not sigmoid)
    tensor = node.input[0] if before else node.output[0]
    line = line_of(score_map, "logistic" if sigmoid else RAW, "this ONNX model") if straight else (1.0, 0.0)
    if straight and _fold_layer(graph, tensor, *line):
        return
    if not sigmoid and score_map.scale == "probability" and score_map.link == "logistic":
        what = f"this map takes probabilities and no sigmoid is seen before the output {name!r}"
        raise UncurseError(f"{what}; {_SEPARATE}")
    # The type of the score: what inference finds, or what the output says.
    kind = next((types[one].elem_type for one in (tensor, name) if one in types and types[one].elem_type), 0)
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
        steps = compile_map(score_map) if sigmoid and not before else compile_transform(score_map)
        opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
        nodes, tensors = map_nodes(steps, source, target, elem_type=kind, opset=opset, prefix=prefix)
    # Right after what makes the source; tensors as Constant nodes, which every version of ONNX has.
    place = next((i for i, one in enumerate(graph.node) if source in one.output), -1) + 1
    constants = [helper.make_node("Constant", [], [one.name], value=one) for one in tensors]
    for one in reversed([*constants, *nodes]):
        graph.node.insert(place, one)


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


# ---------------------------------------------------------------------------- files


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str, *, output: str | None = None) -> None:
    """Fold a map into a saved model."""
    target.write_bytes(fold_model(score_map, _read(source), output=output).SerializeToString())


def load_scorer(path: Path, score_map: ScoreMap, *, output: str | None = None, space: str | None = None) -> Scorer:
    """Load a saved model as a function to its score, with all columns, and one to its other outputs."""
    with needing("onnx"):
        import onnxruntime
    model = _read(path)
    name = _score_name(model.graph, output)
    if space is None:
        end = _end_of(model.graph, name).op_type
        space = "probability" if end in ("Sigmoid", *_CLASSIFIERS) else score_map.scale
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in stored]
    if len(inputs) != 1:
        raise UncurseError(f"{path} takes {len(inputs)} inputs; verify takes models of one, so use Python for this one")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with calling_library(f"ONNX Runtime does not load {path}"):
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    dtype = helper.tensor_dtype_to_np_dtype(inputs[0].type.tensor_type.elem_type)

    def run(x: Array, output: str) -> Any:
        return session.run([output], {inputs[0].name: x.astype(dtype)})[0]

    def score(x: Array) -> Array:
        out = run(x, name)
        if isinstance(out, list):  # a ZipMap's dictionaries
            out = [list(row.values()) for row in out]
        values = np.asarray(out, np.float64)
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values

    def others(x: Array) -> dict[str, Any]:
        p = score(x).reshape(len(x), -1)[:, -1]
        found = {one.name: np.asarray(run(x, one.name)) for one in model.graph.output if one.name != name}
        # A label follows the score: compare whether it is that of the second class above a half.
        for one in (one.name for one in model.graph.output if one.name != name and _is_label(one)):
            found[one] = (found[one].ravel() == found[one].ravel()[p.argmax()]) == (p > 0.5)
        return found

    return Scorer(score, space, others=others)


def _read(path: Path) -> ModelProto:
    """Read a model from its bytes alone, not from other files that it names."""
    with calling_library(_WHOLE):
        model = onnx.load_model_from_string(path.read_bytes())
    tensors = [*model.graph.initializer]
    for attribute in (attribute for node in _nodes(model.graph.node) for attribute in node.attribute):
        tensors += [attribute.t, *attribute.tensors]
        tensors += [tensor for inner in (attribute.g, *attribute.graphs) for tensor in inner.initializer]
    external = [tensor.name for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]
    if external:
        what = f"{len(external)} tensors of this ONNX model ({external[0]!r}, …) lie in other files"
        raise UncurseError(f"{what}, which are not read; save it as one file")
    return model


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
    node, reason = path[-1], ""
    classifier = node.op_type in _CLASSIFIERS and node.domain == "ai.onnx.ml"
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
    elif any(one.op_type == "Normalizer" for one in path):
        reason = "divides what it gives by its sum"
    if reason:
        raise UncurseError(f"this ONNX model {reason}, so no one sum is its score; {_SEPARATE}")
    return node


def _keeps_last_column(graph: GraphProto, path: list[NodeProto]) -> bool:
    """Tell whether nothing after the columns of both classes picks another one than the last."""
    for node in path:
        if _is_pair(graph, node):
            break
        across = "axis" in _attributes(node) and _attributes(node)["axis"].i in (1, -1)
        last = node.op_type == "Gather" and across and _constant(graph, node.input[1]) in (1, -1)
        if node.op_type in ("Gather", "Slice", "Transpose") and not last:
            return False
    return True


def _is_probability(graph: GraphProto, node: NodeProto, depth: int = 0) -> bool:
    """Tell whether a node makes sums, products and means of sigmoids alone."""
    if node.op_type in ("Sigmoid", "Softmax"):
        return True
    if node.op_type not in _AVERAGES or depth >= 16:
        return False
    paths = [_path(graph, name) for name in node.input]
    before = [path[-1] for path in paths if path and path[-1].op_type != "Constant"]
    return bool(before) and all(_is_probability(graph, one, depth + 1) for one in before)


def _value_types(model: ModelProto) -> dict[str, Any]:
    """Return the types of tensors by name, as far as ONNX infers them; warn if that fails."""
    graph = model.graph
    try:
        with calling_library("ONNX cannot infer all shapes of this model", "compare the folded model"):
            graph = onnx.shape_inference.infer_shapes(model).graph
            onnx.shape_inference.infer_shapes(model, strict_mode=True)  # without, ONNX passes over most errors
    except UncurseError as error:
        warn_user(f"{error} with `uncurse verify`, as it may have several scores a row")
    return {one.name: one.type.tensor_type for one in (*graph.output, *graph.value_info)}


def _others_behind(graph: GraphProto, name: str, score: str) -> list[str]:
    """Return the outputs that depend on a tensor, other than the score and labels."""
    reached = {name}
    for node in graph.node:  # sorted: inputs come first
        if any(name in reached for part in _nodes([node]) for name in part.input):
            reached |= set(node.output)
    return [one.name for one in graph.output if one.name in reached and one.name != score and not _is_label(one)]
