"""ONNX: scale what feeds the last sigmoid; where that is no plain layer, insert a Mul and an Add, or the map."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from ..._types import Array
from ...errors import UncurseError
from ...maps import Affine, Grouped, ScoreMap
from ...maps.compile import compile_map, compile_transform
from ...optional import needing
from ..export.onnx import map_nodes
from . import onnx_graph as graphs
from .files import Scorer
from .line import RAW, line_of, simplified


def fold_model(score_map: ScoreMap, model: ModelProto, *, output: str | None = None) -> ModelProto:
    """Fold a map into a model; `output` names the score if there are several outputs."""
    if isinstance(score_map, Grouped):
        raise UncurseError(f"this map has one line for each group and a graph has one score; {graphs.SEPARATE}")
    _whole(onnx.checker.check_model, model)
    made = copy.deepcopy(model)
    graph, score_map = made.graph, simplified(score_map)
    name = graphs.score_name(graph, output)
    node = graphs.end_of(made, name)
    score = node.output[-1] if node.op_type in graphs.CLASSIFIERS else node.output[0]
    others = graphs.others_behind(graph, score, name)
    if others:
        raise UncurseError(
            f"the output {others[0]!r} is made of the score too, and would change with it; {graphs.SEPARATE}"
        )
    if node.op_type in graphs.CLASSIFIERS:
        _fold_classifier(score_map, node)
    else:
        _fold_sum(score_map, made, node, name)
    _whole(onnx.checker.check_model, made)
    return made


def _fold_sum(score_map: ScoreMap, model: ModelProto, node: NodeProto, name: str) -> None:
    """Fold into the layer that makes the sum; else insert the map before the sigmoid, or right after `node`."""
    graph, sigmoid = model.graph, node.op_type == "Sigmoid"
    before = sigmoid and score_map.link == "logistic"  # the map works on logits
    straight = isinstance(score_map, Affine) and (before or not sigmoid)
    source = tensor = node.input[0] if before else node.output[0]
    line = 1.0, 0.0
    if straight:
        line = line_of(score_map, "logistic" if sigmoid else RAW, "this ONNX model")
        if _fold_layer(graph, tensor, *line):
            return
    if not sigmoid and score_map.scale == "probability" and score_map.link == "logistic":
        raise UncurseError(
            f"this map takes probabilities and no sigmoid is seen before the output {name!r}; {graphs.SEPARATE}"
        )
    kind, prefix = _type(model, tensor, name), graphs.unused_prefix(graph)
    if before:
        tensor = node.input[0] = f"{prefix}mapped"
    else:
        source = node.output[0] = f"{prefix}score"  # whoever reads the score now reads the mapped one
    if straight:
        slope, shift, scaled = (f"{prefix}{name}" for name in ("slope", "intercept", "scaled"))
        dtype = helper.tensor_dtype_to_np_dtype(kind)
        pairs = zip((slope, shift), line, strict=True)
        tensors = [numpy_helper.from_array(np.array(value, dtype), name) for name, value in pairs]
        nodes = [helper.make_node("Mul", [source, slope], [scaled])]
        nodes += [helper.make_node("Add", [scaled, shift], [tensor])]
    else:
        steps = compile_map(score_map) if sigmoid and not before else compile_transform(score_map)
        opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 0)
        nodes, tensors = map_nodes(steps, source, tensor, elem_type=kind, opset=opset, prefix=prefix)
    # Right after what makes the source; tensors as Constant nodes, which every version of ONNX has.
    place = next((i for i, one in enumerate(graph.node) if source in one.output), -1) + 1
    constants = [helper.make_node("Constant", [], [one.name], value=one) for one in tensors]
    rest = list(graph.node)[place:]
    del graph.node[place:]
    graph.node.extend([*constants, *nodes, *rest])


def _whole(read: Callable[[Any], Any], model: Any) -> Any:
    """Read or check a model by a function of ONNX, which raises errors of many kinds."""
    try:
        return read(model)
    except Exception as error:
        reason = " ".join(str(error).split())[:120]
        raise UncurseError(f"this is no whole ONNX model ({reason}); save it again") from None


# ---------------------------------------------------------------------------- files


def fold_file(score_map: ScoreMap, source: Path, target: Path, kind: str, *, output: str | None = None) -> None:
    """Fold a map into a saved model."""
    target.write_bytes(fold_model(score_map, _read(source), output=output).SerializeToString())


def load_scorer(path: Path, score_map: ScoreMap, *, output: str | None = None, space: str | None = None) -> Scorer:
    """Load a saved model as a function to its score, with all columns, and one to its other outputs."""
    with needing("onnx"):
        import onnxruntime
    model = _read(path)
    name = graphs.score_name(model.graph, output)
    if space is None:
        end = graphs.end_of(model, name).op_type
        space = "probability" if end in ("Sigmoid", *graphs.CLASSIFIERS) else score_map.scale
    stored = {tensor.name for tensor in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in stored]
    if len(inputs) != 1:
        raise UncurseError(f"{path} takes {len(inputs)} inputs; verify takes models of one, so use Python for this one")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime has many kinds
        raise UncurseError(f"ONNX Runtime does not load {path}: {' '.join(str(error).split())[:160]}") from None
    dtype = helper.tensor_dtype_to_np_dtype(inputs[0].type.tensor_type.elem_type)
    others = [one for one in model.graph.output if one.name != name]

    def run(x: Array, *names: str) -> list[Any]:
        outputs: list[Any] = session.run(names, {inputs[0].name: x.astype(dtype)})
        return outputs

    def score(x: Array) -> Array:
        out = run(x, name)[0]
        if isinstance(out, list):  # a ZipMap's dictionaries
            out = [list(row.values()) for row in out]
        values = np.asarray(out, np.float64)
        return values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values

    def other(x: Array) -> dict[str, Any]:
        p = score(x).reshape(len(x), -1)[:, -1]
        found = {}
        for one in others:
            found[one.name] = values = np.asarray(run(x, one.name)[0])
            # A label follows the score: compare whether it is that of the second class above a half.
            if graphs.is_label(one):
                found[one.name] = (values.ravel() == values.ravel()[p.argmax()]) == (p > 0.5)
        return found

    return Scorer(score, space, others=other)


def _read(path: Path) -> ModelProto:
    """Read a model from its bytes alone, not from other files that it names."""
    model: ModelProto = _whole(onnx.load_model_from_string, path.read_bytes())
    external = [t.name for t in graphs.tensors_of(model.graph) if t.data_location == TensorProto.EXTERNAL]
    if external:
        raise UncurseError(
            f"{len(external)} tensors of this ONNX model ({external[0]!r}, …) lie in other files, which are not "
            "read; save it as one file"
        )
    return model


# ---------------------------------------------------------------------------- layers


def _fold_layer(graph: GraphProto, name: str, slope: float, intercept: float) -> bool:
    """Into the numbers of the Gemm, or MatMul and Add, that makes this tensor; False where that is not to be done."""
    node = graphs.maker(graph, name)
    seen = [name]
    while node is not None and node.op_type in graphs.MOVES:
        seen.append(node.input[0])
        node = graphs.maker(graph, node.input[0])
    if node is None:
        return False
    stored = {one.name: one for one in graph.initializer if one.data_type in graphs.FLOATS}
    scale, outputs = 1.0, 1  # what multiplies the bias, and which axis of the weight has the outputs
    if node.op_type == "Gemm" and len(node.input) == 3:
        weight, bias, given = node.input[1], node.input[2], graphs.attributes(node)
        scale = given["beta"].f if "beta" in given else 1.0
        outputs = 0 if "transB" in given and given["transB"].i else 1
    elif node.op_type == "Add":
        product, bias = node.input
        if bias not in stored:
            product, bias = bias, product
        multiply = graphs.maker(graph, product)
        if multiply is None or multiply.op_type != "MatMul":
            return False
        weight = multiply.input[1]
        seen.append(product)
    else:
        return False
    alone = all(graphs.uses(graph, one) == 1 for one in (*seen, weight, bias))
    if not alone or not scale or weight not in stored or bias not in stored:
        return False
    if len(stored[weight].dims) != 2 or stored[weight].dims[outputs] != 1:
        return False
    for tensor, shift in ((stored[weight], 0.0), (stored[bias], intercept / scale)):
        values = numpy_helper.to_array(tensor)
        folded = np.asarray(slope * values.astype(np.float64) + shift, values.dtype)
        tensor.CopyFrom(numpy_helper.from_array(folded, tensor.name))
    return True


def _type(model: ModelProto, *names: str) -> int:
    """Of the score: what inference finds, or what the output says."""
    types = graphs.value_types(model)
    found = next((types[name].elem_type for name in names if name in types and types[name].elem_type), 0)
    if found not in graphs.FLOATS:
        kind = TensorProto.DataType.Name(found)
        raise UncurseError(f"the score of this ONNX model is {kind}, too coarse to keep the order; use float32")
    return int(found)


# ---------------------------------------------------------------------------- classifiers


def _fold_classifier(score_map: ScoreMap, node: NodeProto) -> None:
    """Into a linear classifier or a tree ensemble of two classes."""
    if not isinstance(score_map, Affine):
        raise UncurseError(f"this map is not a straight line, so this {node.op_type} cannot hold it; {graphs.SEPARATE}")
    slope, intercept = line_of(score_map, "logistic", f"this {node.op_type}")
    given = graphs.attributes(node)
    labels = given.get("classlabels_ints") or given.get("classlabels_int64s") or given.get("classlabels_strings")
    count = max(len(labels.ints), len(labels.strings)) if labels is not None else 0
    after = given["post_transform"].s.decode() if "post_transform" in given else "NONE"
    if count != 2 or after not in ("LOGISTIC", "SOFTMAX"):
        raise UncurseError(
            f"this {node.op_type} of {count} classes ({after}) is no sum under a sigmoid; {graphs.SEPARATE}"
        )
    fold = _fold_linear if node.op_type == "LinearClassifier" else _fold_trees
    if not fold(given, after, slope, intercept):
        raise UncurseError(f"the two classes of this {node.op_type} are no mirror images; {graphs.SEPARATE}")


def _fold_linear(given: dict[str, Any], after: str, slope: float, intercept: float) -> bool:
    weights = list(given["coefficients"].floats)
    starts = list(given["intercepts"].floats) if "intercepts" in given else []
    half = len(weights) // 2
    if len(starts) != 2 or not np.allclose(weights[:half], -np.array(weights[half:])) or starts[0] != -starts[1]:
        return False
    shift = intercept / 2 if after == "SOFTMAX" else intercept
    given["coefficients"].floats[:] = [slope * value for value in weights]
    given["intercepts"].floats[:] = [slope * starts[0] - shift, slope * starts[1] + shift]
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
