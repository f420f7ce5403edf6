"""ONNX: scale what feeds the last sigmoid; where that is no plain layer, insert the map."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.external_data_helper import uses_external_data

from ..._types import Array
from ...errors import UncurseError
from ...maps import Affine, ScoreMap
from ...maps.program import compile_map
from ..export.onnx import Graph
from .common import STAMP, Scorer, calling_library, columns_of, draw_rows, line_of, stamp_after

_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE)
_SEPARATE = "export the map with `uncurse export map.json --to onnx -o map.onnx` and run it on the model's score"
_CLASSIFIERS = ("LinearClassifier", "TreeEnsembleClassifier")
# What may follow a layer: it moves numbers and changes none.
_MOVES = ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Dropout", "Gather", "Slice")
_PASSED = (*_MOVES, "ZipMap", "Normalizer", "Cast")
_LAYERS = ("Gemm", "MatMul", "Add", "Sub", "Sum", "ReduceSum", "BatchNormalization")
_SUMS = (*_LAYERS, "LinearRegressor", "TreeEnsembleRegressor")
_NUMBERS = (*_FLOATS, TensorProto.FLOAT16, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL)
_USUAL_OPSET = 13
_ROWS = 50


def fold_model(score_map: ScoreMap, model: ModelProto, *, output: str | None = None) -> Iterator[ModelProto]:
    """Fold a map into the layer that makes the score, or insert it; `output` names the score if there are several."""
    made = copy.deepcopy(model)
    kept = {one.key: one.value for one in model.metadata_props}
    helper.set_model_props(made, {**kept, STAMP: stamp_after(score_map, stamp(model))})
    unchanged = copy.deepcopy(made)
    name = _score_name(made.graph, output)
    node = _end_of(made.graph, name)
    if node.op_type in _CLASSIFIERS:
        _fold_classifier(node, *line_of(score_map, "logistic"))
        yield made
        return
    sigmoid = node.op_type == "Sigmoid"
    if not sigmoid and score_map.link != ("logistic" if score_map.scale == "logit" else "identity"):
        what = f"this map takes scale={score_map.scale!r} in the {score_map.link} link"
        raise UncurseError(f"{what}, and this ONNX model returns its sum: no sigmoid is seen; {_SEPARATE}")
    on_link_scores = not sigmoid or score_map.link == "logistic"
    if isinstance(score_map, Affine) and on_link_scores:
        tensor = node.input[0] if sigmoid else node.output[0]
        if _fold_layer(made.graph, tensor, *line_of(score_map)):
            yield made
            made = unchanged
    _insert(score_map, made, _end_of(made.graph, name), name, on_link_scores)
    yield made


def stamp(model: ModelProto) -> str | None:
    """Return what was folded into a model before."""
    return next((one.value for one in model.metadata_props if one.key == STAMP), None)


def _insert(score_map: ScoreMap, model: ModelProto, node: NodeProto, name: str, on_link_scores: bool) -> None:
    """Insert the map before the sigmoid if it works on logits, else right after `node`."""
    graph, before = model.graph, on_link_scores and node.op_type == "Sigmoid"
    tensor = node.input[0] if before else node.output[0]
    infos = onnx.shape_inference.infer_shapes(model).graph
    types = {one.name: one.type.tensor_type.elem_type for one in (*infos.output, *infos.value_info)}
    kind = types.get(tensor) or types.get(name) or TensorProto.UNDEFINED
    if kind not in _FLOATS:
        found = TensorProto.DataType.Name(kind)
        raise UncurseError(f"the score of this ONNX model is {found}, too coarse to keep the order; use float32")
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), None)
    if opset is None:  # all operators are of ai.onnx.ml
        opset = _USUAL_OPSET
        model.opset_import.append(helper.make_opsetid("", opset))
    prefix = f"uncurse_{len(graph.node)}_"  # a fold adds nodes, so another has another prefix
    source, target = (tensor, f"{prefix}mapped") if before else (f"{prefix}score", tensor)
    if before:
        node.input[0] = target
    else:
        node.output[0] = source  # whoever reads the score now reads the mapped one
    made, program = Graph(prefix), compile_map(score_map)
    served = source if kind == TensorProto.DOUBLE else made.add("Cast", source, to=TensorProto.DOUBLE)
    mapped = made.transform(program, served, served) if on_link_scores else made.predict(program, served)
    made.add("Cast", mapped, made=target, to=kind)
    place = max((i for i, one in enumerate(graph.node) if source in one.output), default=-1) + 1
    constants = [helper.make_node("Constant", [], [one.name], value=one) for one in made.tensors]
    for one in reversed([*constants, *made.nodes]):
        graph.node.insert(place, one)


def _fold_layer(graph: GraphProto, name: str, slope: float, intercept: float) -> bool:
    """Into the numbers of the Gemm, or MatMul and Add, that makes this tensor; False if there is none."""
    node = _maker(graph, name)
    while node is not None and node.op_type in _MOVES:
        node = _maker(graph, node.input[0])
    stored = {one.name: one for one in graph.initializer if one.data_type in _FLOATS}
    scale = 1.0  # what multiplies the bias
    if node is not None and node.op_type == "Gemm" and len(node.input) == 3:
        weight, bias = node.input[1:]
        scale = next((one.f for one in node.attribute if one.name == "beta"), 1.0)
    elif node is not None and node.op_type == "Add":
        product, bias = sorted(node.input, key=stored.__contains__)
        multiply = _maker(graph, product)
        weight = multiply.input[1] if multiply is not None and multiply.op_type == "MatMul" else ""
    else:
        return False
    if not scale or not {weight, bias} <= stored.keys():
        return False
    for tensor, shift in ((stored[weight], 0.0), (stored[bias], intercept / scale)):
        values = numpy_helper.to_array(tensor)
        folded = np.asarray(slope * values.astype(np.float64) + shift, values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(folded, tensor.name))
    return True


def _fold_classifier(node: NodeProto, slope: float, intercept: float) -> None:
    """Into a linear classifier or a tree ensemble of two classes.

    The shift of trees goes to the leaves of the first one: runtimes read base values in different ways.
    """
    given = _attributes(node)
    labels = [one for name, one in given.items() if name.startswith("classlabels_")]
    after = given["post_transform"].s.decode() if "post_transform" in given else "NONE"
    if sum(len(one.ints) + len(one.strings) for one in labels) != 2 or after not in ("LOGISTIC", "SOFTMAX"):
        raise UncurseError(f"this {node.op_type} ({after}) is no sum of two classes under a sigmoid; {_SEPARATE}")
    if node.op_type == "LinearClassifier":
        shifts = intercept * (np.array([-0.5, 0.5]) if after == "SOFTMAX" else np.array([-1.0, 1.0]))
        scaled, shifted = "coefficients", "intercepts"
    else:
        ids, trees = (np.array(given[name].ints) for name in ("class_ids", "class_treeids"))
        side = np.where(ids == ids.max(), 1.0, -1.0)  # both classes may have leaves, one the other turned round
        shifts = intercept * side * (trees == trees[0])
        scaled, shifted = "base_values", "class_weights"
    if scaled in given:
        given[scaled].floats[:] = [slope * value for value in given[scaled].floats]
    given[shifted].floats[:] = (slope * np.array(given[shifted].floats) + shifts).tolist()


# ---------------------------------------------------------------------------- running


def scorer(model: ModelProto, *, output: str | None = None) -> Scorer:
    """Return the model as a function to its score, with all columns, and one to its other outputs."""
    name = _score_name(model.graph, output)
    dtypes = {one.name: helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type) for one in _inputs(model)}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    with calling_library("ONNX Runtime does not load this model"):
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def run(x: Any, output: str) -> Any:
        feeds = x if isinstance(x, dict) else {next(iter(dtypes)): x}
        return session.run([output], {one: np.asarray(value).astype(dtypes[one]) for one, value in feeds.items()})[0]

    def score(x: Any) -> Array:
        out = run(x, name)
        if isinstance(out, list):  # a ZipMap's dictionaries
            out = [list(row.values()) for row in out]
        return np.asarray(out, np.float64)

    def others(x: Any) -> dict[str, Any]:
        p = columns_of(score(x))[0]
        found = {one.name: np.asarray(run(x, one.name)) for one in model.graph.output if one.name != name}
        for one in model.graph.output:
            if one.name in found and _is_label(one):  # it follows the score: does it still tell rows on either side?
                label = found[one.name].ravel()
                found[one.name] = np.array(not set(label[p > 0.501].tolist()) & set(label[p < 0.499].tolist()))
        return found

    return Scorer(score, others=others)


def rows_for(model: ModelProto) -> list[Any]:
    """Draw numbers for every input, near the thresholds of trees; codes are 0, which every table has."""
    blocks = [dict[str, Any]() for _ in draw_rows(1)]
    trees = [given for node in model.graph.node if "nodes_featureids" in (given := _attributes(node))]
    features = [i for tree in trees for i in tree["nodes_featureids"].ints]
    leaves = [mode == b"LEAF" for tree in trees for mode in tree["nodes_modes"].strings]
    thresholds = [value for tree in trees for value in tree["nodes_values"].floats]
    for one in _inputs(model):
        kind, dims = one.type.tensor_type.elem_type, [dim.dim_value for dim in one.type.tensor_type.shape.dim]
        if not dims or 0 in dims[1:] or kind not in _NUMBERS:
            raise UncurseError(f"rows for the input {one.name!r} of this ONNX model cannot be drawn; pass X=")
        shape, drawn = (dims[0] or _ROWS, *dims[1:]), kind in (*_FLOATS, TensorProto.FLOAT16)
        rows = draw_rows(int(np.prod(shape[1:])), np.where(leaves, -1, features), thresholds)
        for feeds, block in zip(blocks, rows, strict=True):
            feeds[one.name] = np.resize(block, shape) if drawn else np.zeros(shape)
    return list(blocks)


def _inputs(model: ModelProto) -> list[Any]:
    stored = {tensor.name for tensor in model.graph.initializer}
    return [one for one in model.graph.input if one.name not in stored]


def read(path: Path) -> ModelProto:
    """Read a model from its bytes alone, not from other files that it names."""
    with calling_library(f"{path} is no whole ONNX model"):
        model = onnx.load_model_from_string(path.read_bytes())
        if any(uses_external_data(tensor) for tensor in model.graph.initializer):
            raise UncurseError(f"numbers of {path} lie in other files, which are not read; save it as one file")
    return model


def write(model: ModelProto, source: Path, target: Path) -> None:
    """Save a model as one file."""
    target.write_bytes(model.SerializeToString())


# ---------------------------------------------------------------------------- where the score comes from


def _maker(graph: GraphProto, name: str) -> NodeProto | None:
    return next((node for node in graph.node if name in node.output), None)


def _attributes(node: NodeProto) -> dict[str, Any]:
    return {attribute.name: attribute for attribute in node.attribute}


def _path(graph: GraphProto, name: str) -> list[NodeProto]:
    """Return the nodes from a tensor back to the one that computes it, past those that only move or pair it."""
    path = []
    node = _maker(graph, name)
    while node is not None:
        path.append(node)
        # A pair puts ? − p and p side by side, as classifiers do with 1 − p.
        other = _maker(graph, node.input[0]) if node.op_type == "Concat" and len(node.input) == 2 else None
        paired = other is not None and other.op_type == "Sub" and other.input[1] == node.input[1]
        if not node.input or not (paired or node.op_type in _PASSED):
            return path
        node = _maker(graph, node.input[1 if paired else 0])
    return []


def _score_name(graph: GraphProto, output: str | None) -> str:
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
