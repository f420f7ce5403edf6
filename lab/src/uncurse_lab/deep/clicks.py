"""Rows of a click log as a network takes them: numbers, codes of categories, labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from uncurse.errors import UncurseError


@dataclass(frozen=True)
class Clicks:
    """Encoded rows of a click log. Arrays are numpy's or tensors of PyTorch on any device, all of one kind.

    A network learns a vector for each code, and no code is special to it; `encode` uses 0 for missing values and 1 for
    values that no training row has. `Encoded.clicks` takes log(1 + max(x, 0)) of Criteo's counts, 0 for missing ones.

    Examples
    --------
    >>> dense, codes = np.zeros((4, 2), np.float32), np.array([[0], [1], [2], [1]], np.int32)
    >>> clicks = Clicks(dense, codes, np.array([0, 1, 0, 0], np.uint8), sizes=(3,))
    >>> len(clicks), clicks.take(slice(1, 3)).label.tolist()
    (4, [1, 0])
    """

    dense: Any  # (n, D) float32: numbers as the network takes them, without missing values; None: there are none
    codes: Any  # (n, F) int32: column f holds 0 to sizes[f] − 1
    label: Any = None  # (n,) 0 or 1; a pool has none
    sizes: tuple[int, ...] = ()  # number of codes of each category
    truth: Any = None  # (n,) true probability, known in a simulated world only; training does not use it

    def __post_init__(self) -> None:
        for name in ("dense", "codes", "label", "truth"):
            part = getattr(self, name)
            if part is not None and not hasattr(part, "ndim"):  # a frame of an engine, a list
                object.__setattr__(self, name, np.asarray(part))
        if self.codes.ndim != 2 or self.codes.shape[1] != len(self.sizes):
            raise UncurseError(
                f"codes of shape {tuple(self.codes.shape)} and {len(self.sizes)} sizes; pass one column for each "
                "category, and in sizes how many codes it has, such as sizes=(1000, 50)"
            )
        if self.dense is None:
            object.__setattr__(self, "dense", np.zeros((len(self.codes), 0), np.float32))
        if self.dense.ndim != 2:
            raise UncurseError(f"dense has shape {tuple(self.dense.shape)}; pass (rows, numbers), numbers may be 0")
        for name in ("dense", "label", "truth"):
            part = getattr(self, name)
            if part is not None and len(part) != len(self.codes):
                raise UncurseError(
                    f"{name} has {len(part)} rows, the codes have {len(self.codes)}; pass one of each for a row"
                )

    @property
    def tensors(self) -> tuple[Any, ...]:
        """The numbers, the codes and, if there are any, the labels."""
        return (self.dense, self.codes) if self.label is None else (self.dense, self.codes, self.label)

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Any) -> Clicks:
        """Some rows: a slice, a mask or indices."""
        label, truth = (None if part is None else part[rows] for part in (self.label, self.truth))
        return Clicks(self.dense[rows], self.codes[rows], label, self.sizes, truth)

    def to(self, device: Any) -> Clicks:
        """The same as tensors on a device."""
        from uncurse.deep.inputs import tensor

        parts = self.dense, self.codes, self.label, self.truth
        dense, codes, label, truth = (None if part is None else tensor(part).to(device) for part in parts)
        return Clicks(dense, codes, label, self.sizes, truth)
