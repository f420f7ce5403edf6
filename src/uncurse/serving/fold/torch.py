"""PyTorch: the last `nn.Linear`, if a trace or an example shows that its output is the model's."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, fx, nn

from ...errors import UncurseError
from ...maps import ScoreMap
from .line import ELSEWHERE, RAW, check_folded, line_of
from .torch_weights import check_not_shared, fold_layer, fold_state, parameter_names
from .torch_weights import fold_file as fold_file  # called by `files`

# What may follow the last layer: it moves numbers and changes none.
_MOVES = (
    *("squeeze", "unsqueeze", "view", "reshape", "flatten", "contiguous", "getitem", "ravel"),
    *("Flatten", "Identity", "Dropout", "float", "double"),
)
_SIGMOIDS = ("sigmoid", "sigmoid_", "expit", "Sigmoid")
_REASONS = {
    **dict.fromkeys(("softmax", "log_softmax", "Softmax", "LogSoftmax"), "ends in a softmax of many classes"),
    **dict.fromkeys(("mean", "stack", "truediv", "div"), "ends in an average"),
    **dict.fromkeys(("add", "add_", "iadd", "sum", "mul", "cat"), "ends in a sum of parts, of which no layer is all"),
}
_CLOSE = 1e-4  # between rounding in single precision, far below, and another layer, far above
_SATURATED = 8.0  # logits beyond: their probabilities have too few digits in single precision


class _NotTraced(Exception):
    """Why no linear layer is known to be the output."""


def fold_model(score_map: ScoreMap, model: Any, *, layer: str | None = None, example: Any = None) -> Any:
    """Fold a map into the last linear layer of a module, or into a state dict.

    A module whose logit is a sum of parts may have a method ``fold_line(slope, intercept)`` that changes them in place.
    With `example`, inputs of one batch, the result is compared with the mapped output of the module.
    """
    if isinstance(model, dict):
        return fold_state(score_map, model, layer=layer)
    kind = type(model).__name__
    if not isinstance(model, nn.Module):
        raise UncurseError(f"a {kind} of torch is no model; pass an nn.Module, or its state dict")
    made = _copy(model)
    if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
        made.module = fold_model(score_map, model.module, layer=layer, example=example)
        return made
    if hasattr(made, "fold_line"):  # whoever wrote it knows how
        cast(Any, made).fold_line(*line_of(score_map, RAW, f"this {kind}"))
        return made
    served = _copy(model).eval()  # as it is served; a trace may change it
    found, ends_in_sigmoid, reason = None, None, ""
    try:
        found, ends_in_sigmoid = _last_layer(served)
    except _NotTraced as error:
        reason = str(error)
    name = layer if layer is not None else found
    if found is not None and found != name:
        reason = f"ends in its layer {found!r}, not in {name!r}"
    if name is None and example is not None:
        ends = [n for n, part in model.named_modules() if isinstance(part, nn.Linear) and part.out_features == 1]
        name = ends[-1] if ends else None
    if name is None or (example is None and found != name):
        remedy = "" if example is not None else "pass layer= and example=inputs of one batch, and it is tried, or "
        raise UncurseError(f"this {kind} {reason}; {remedy}{ELSEWHERE}")
    parts = dict(made.named_modules())
    part = parts.get(name)
    if not isinstance(part, nn.Linear):
        linear = ", ".join(n for n, one in parts.items() if isinstance(one, nn.Linear)) or "none"
        raise UncurseError(f"layer={name!r} is no nn.Linear of this module; there are: {linear}")
    for one, what in ((made, "itself"), (part, f"its layer {name!r}")):
        if _has_hooks(one):
            raise UncurseError(
                f"this {kind} has hooks on {what}, which may change its output; remove them, or {ELSEWHERE}"
            )
    before = None if example is None else _call(_copy(model).eval(), example)
    if ends_in_sigmoid is None and before is not None:
        ends_in_sigmoid = bool(((before > 0) & (before < 1)).all())
    slope, intercept = line_of(score_map, "logistic" if ends_in_sigmoid else RAW, f"this {kind}")
    fold_layer(part.weight, part.bias, name, slope, intercept)
    if before is not None:
        after = _call(_copy(made).eval(), example)
        if ends_in_sigmoid:
            before, after = torch.logit(before), torch.logit(after)
            before, after = before[before.abs() < _SATURATED], after[before.abs() < _SATURATED]
        if not before.numel():
            raise UncurseError("the example has no row by which to tell, of a logit within 8; pass another batch")
        check_folded(slope * before + intercept, after, _CLOSE, f"the layer {name!r} is not all of the output")
    return made


def load_scorer(path: Path, score_map: ScoreMap) -> Any:
    """Refuse: a file of weights has no graph."""
    raise UncurseError(
        f"{path} holds weights and no graph, so it cannot score; verify the modules in Python: "
        "uncurse.serving.verify(map, before, after, X)"
    )


def _copy(module: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(module)
    except Exception as error:  # whatever a foreign module holds
        raise UncurseError(f"this {type(module).__name__} cannot be copied ({error}); remove what it caches") from None


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _call(module: nn.Module, example: Any) -> Tensor:
    with torch.no_grad():
        out = module(*example) if isinstance(example, tuple | list) else module(example)
    if not isinstance(out, Tensor):
        raise UncurseError(f"this {type(module).__name__} gives a {type(out).__name__}, not one tensor of scores")
    return out.double()


def _last_layer(module: nn.Module) -> tuple[str, bool]:
    """Return the name of the linear layer whose output is the module's, and whether a sigmoid follows it."""
    if isinstance(module, nn.Linear):
        return "", False
    try:
        graph = fx.Tracer().trace(module)
    except Exception as error:  # whatever a foreign forward raises under a trace
        lines = str(error).splitlines() or [type(error).__name__]
        raise _NotTraced(f"cannot be traced ({lines[0][:80]})") from None
    parts = dict(module.named_modules())
    node, sigmoid = next(node for node in graph.nodes if node.op == "output").args[0], False
    while isinstance(node, fx.Node):
        name, part = str(node.target), parts.get(str(node.target)) if node.op == "call_module" else None
        what = type(part).__name__ if part is not None else _operation(node)
        if isinstance(part, nn.Linear):
            what = f"its layer {name!r}"
            if sum(one.op == "call_module" and one.target == node.target for one in graph.nodes) > 1:
                raise _NotTraced(f"calls {what} more than once")
            if any(one.op == "get_attr" and one.target in parameter_names(name) for one in graph.nodes):
                raise _NotTraced(f"uses the numbers of {what} elsewhere too")
        elif what in _SIGMOIDS and not sigmoid:
            sigmoid = True
        elif what not in _MOVES:
            raise _NotTraced(_REASONS.get(what, f"ends in {what!r}, not in a linear layer"))
        if len(node.users) > 1:
            raise _NotTraced(f"uses the output of {what} more than once")
        if isinstance(part, nn.Linear):
            tensors = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers())
            check_not_shared(tensors, name)
            return name, sigmoid
        if part is not None and _has_hooks(part):
            raise _NotTraced(f"has hooks on {name!r}")
        node = node.args[0] if node.args else None
    raise _NotTraced("has several outputs" if isinstance(node, tuple | list | dict) else "ends in no layer")


def _operation(node: fx.Node) -> str:
    if node.op == "call_function":
        return str(getattr(node.target, "__name__", node.target))
    return str(node.target) if node.op == "call_method" else str(node.op)
