"""Data sets as the trainer takes them, checked: a wrong column must not be trained on or scored in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UncurseError

#: Arrays or tensors (inputs, …, labels), or an object whose `tensors` are these.
Dataset = Any


def tensor(values: Any) -> Any:
    """Return an array or a tensor as a tensor."""
    if isinstance(values, torch.Tensor):
        return values
    values = np.asarray(values)
    if values.dtype.kind not in "biuf":
        raise UncurseError(
            f"values of type {values.dtype} ({str(values.flat[0])[:20]!r}, …) are not numbers; pass codes"
        )
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # a file mapped read-only is copied


def _parts(dataset: Dataset) -> list[Any]:
    if isinstance(dataset, np.ndarray | Tensor):
        return [dataset]
    parts = getattr(dataset, "tensors", dataset)  # of a TensorDataset
    if not isinstance(parts, tuple | list):
        raise UncurseError(f"a data set is (inputs, …, labels), not {type(dataset).__name__}")
    return [x if hasattr(x, "shape") else np.asarray(x) for x in parts]


def tensors_of(dataset: Dataset, device: torch.device) -> tuple[list[Tensor], Tensor]:
    """Return inputs and labels to train on, on the device."""
    parts = [tensor(part).to(device) for part in _parts(dataset)]
    if len(parts) < 2:
        raise UncurseError("the data set has no labels; pass (inputs, …, labels)")
    inputs, label = parts[:-1], parts[-1].reshape(-1)
    if not len(label):
        raise UncurseError("the data set has no rows; pass some to train on")
    for i, x in enumerate(inputs):
        _check_length(i, len(x), len(label), "the labels")
        check_finite(x, i)
    bad = label[(label != 0) & (label != 1)]
    if len(bad):
        raise UncurseError(f"labels must be 0 or 1; found {float(bad[0]):g}")
    return inputs, label


def inputs_of(dataset: Dataset, widths: list[tuple[int, ...]]) -> list[Any]:
    """Return the inputs of a data set to score; their rows must have the shapes that were trained on."""
    count, parts = len(widths), _parts(dataset)
    if not count <= len(parts) <= count + 1:
        raise UncurseError(f"the network takes {count} inputs and the data set has {len(parts)}; labels may follow")
    for i, (x, width) in enumerate(zip(parts, widths, strict=False)):
        shape = tuple(x.shape[1:])
        if shape != width:
            raise UncurseError(f"input {i} has rows of shape {shape}, in training they were {width}; pass the same")
        _check_length(i, len(x), len(parts[0]), "input 0")
    return parts[:count]


def _check_length(place: int, rows: int, wanted: int, other: str) -> None:
    if rows != wanted:
        raise UncurseError(f"input {place} has {rows} rows, {other} {wanted}; pass one of each for a row")


def check_finite(x: Tensor, place: int) -> None:
    """Raise UncurseError if an input holds NaN or infinity."""
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        bad = torch.nonzero(~torch.isfinite(x))
        column = "" if x.ndim < 2 else f" column {int(bad[0][1])}"
        raise UncurseError(
            f"input {place}{column} holds {float(x[tuple(bad[0])])} in row {int(bad[0][0])} ({len(bad):,} such in "
            "all); fill missing values first, with 0 for example"
        )


def pick_device(device: Any) -> torch.device:
    """Return the requested device; by default the GPU if there is one."""
    try:
        found = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError) as error:
        raise UncurseError(f"device={device!r} is unknown or absent: {error}; leave it out, or pass cpu") from None
    return found
