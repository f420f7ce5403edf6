"""Data sets as the trainer takes them, checked: a wrong column must not be trained on or scored in silence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UncurseError

#: Arrays or tensors (inputs, …, labels), or an object whose `tensors` are these.
Dataset = Any


def tensor(values: Any) -> Any:
    """An array or a tensor as a tensor."""
    if isinstance(values, torch.Tensor):
        return values
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise UncurseError(
            f"values of type {values.dtype} ({str(values.flat[0])[:20]!r}, …) are no numbers; pass codes"
        )
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # a file mapped read-only is copied


def _parts(dataset: Dataset) -> list[Any]:
    """Inputs, and labels where they are there."""
    if isinstance(dataset, np.ndarray | Tensor):
        return [dataset]
    parts = getattr(dataset, "tensors", dataset)  # of a TensorDataset
    if not isinstance(parts, tuple | list):
        raise UncurseError(f"a data set is (inputs, …, labels), not {type(dataset).__name__}")
    return list(parts)


def inputs_of(dataset: Dataset, widths: list[tuple[int, ...]]) -> list[Any]:
    """The inputs of a data set to score, with rows of the shapes that were trained on."""
    count, parts = len(widths), [x if hasattr(x, "shape") else np.asarray(x) for x in _parts(dataset)]
    if not count <= len(parts) <= count + 1:
        raise UncurseError(f"the network takes {count} inputs and the data set has {len(parts)}; labels may follow")
    for i, (x, width) in enumerate(zip(parts, widths, strict=False)):
        shape = tuple(x.shape[1:])
        if shape != width or not x.ndim:
            raise UncurseError(f"input {i} has rows of shape {shape}, in training they were {width}; pass the same")
        _check_length(f"input {i}", len(x), len(parts[0]), "input 0")
    return parts[:count]


def tensors_of(dataset: Dataset, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Inputs and labels to train on, on the device."""
    if getattr(dataset, "label", ()) is None:
        raise UncurseError("the data set has no labels; pass some to train on")
    parts = [tensor(part).to(device) for part in _parts(dataset)]
    if len(parts) < 2:
        raise UncurseError(f"the data set has {len(parts)} part{'s' * (len(parts) != 1)}; pass (inputs, …, labels)")
    inputs, label = parts[:-1], parts[-1].reshape(-1)
    if not len(label):
        raise UncurseError("the data set has no rows; pass some to train on")
    for i, x in enumerate(inputs):
        if not x.ndim:
            raise UncurseError(f"input {i} is a single number; pass one row for each label")
        _check_length(f"input {i}", len(x), len(label), "the labels")
        check_finite(x, i)
    bad = label[(label != 0) & (label != 1)]
    if len(bad):
        raise UncurseError(f"labels must be 0 or 1; found {float(bad[0]):g}")
    return inputs, label


def _check_length(name: str, rows: int, wanted: int, other: str) -> None:
    if rows != wanted:
        raise UncurseError(f"{name} has {rows} rows, {other} {wanted}; pass one of each for a row")


def check_finite(x: Tensor, place: int) -> None:
    """No NaN, no infinity."""
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = torch.nonzero(~torch.isfinite(x))
        column = "" if x.ndim < 2 else f" column {int(bad[0][1])}"
        raise UncurseError(
            f"input {place}{column} holds {float(x[tuple(bad[0])])} in row {int(bad[0][0])} ({len(bad):,} such in "
            "all); fill missing values first, with 0 for example"
        )


def pick_device(device: Any) -> torch.device:
    """The one asked for, or the GPU where there is one."""
    try:
        found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    except RuntimeError:
        raise UncurseError(f"device={device!r} is unknown; pass cuda or cpu, or leave it out") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise UncurseError(f"device={device!r}, and PyTorch finds no GPU here; leave it out, or pass cpu")
    return found


def check_rows(rows: Sequence[Any], replicas: int, n: int, device: torch.device) -> Tensor:
    """Row numbers of every replica, (R, rows)."""
    rows = list(rows)  # what is the same object is read once, so objects must stay
    if len(rows) != replicas:
        raise UncurseError(f"rows for {len(rows)} replicas, and there are {replicas}; pass one array for each")
    parts: dict[int, Tensor] = {}
    for key, values in {id(values): values for values in rows}.items():
        part = tensor(values)
        if part.ndim == 1 and part.dtype == torch.bool and len(part) == n:
            part = part.nonzero()[:, 0]
        if part.ndim != 1 or (len(part) and (part.is_floating_point() or part.dtype == torch.bool)):
            raise UncurseError(
                f"rows of shape {tuple(part.shape)} and type {part.dtype}; pass row numbers, or a mask of all {n} rows"
            )
        if len(part) and (int(part.min()) < 0 or int(part.max()) >= n):
            raise UncurseError(f"rows must be 0 to {n - 1}; found {int(part.min())} to {int(part.max())}")
        parts[key] = part.to(device=device, dtype=torch.int32)
    counts = {len(part) for part in parts.values()}
    if len(counts) != 1 or 0 in counts:
        raise UncurseError(f"replicas have {sorted(counts)} rows; each needs as many as the others, and at least one")
    return torch.stack([parts[id(values)] for values in rows])


def check_weights(values: Any, n: int, device: torch.device) -> Tensor:
    """Return the weights of the rows, divided by their mean, as float32."""
    weight = tensor(values).reshape(-1).double()
    _check_length("sample_weight", len(weight), n, "the labels")
    bad = weight[~(torch.isfinite(weight) & (weight >= 0))]
    if len(bad):
        raise UncurseError(f"sample_weight holds {float(bad[0]):g}; pass finite weights of 0 or more")
    if not float(weight.max()) > 0:
        raise UncurseError("all of sample_weight is 0; pass at least one positive weight")
    weight = weight / weight.max()  # a sum of huge weights is infinite
    scaled: Tensor = weight / weight.mean()
    return scaled.float().to(device)
