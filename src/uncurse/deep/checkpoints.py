"""Checkpoints of a training: one file of plain arrays, whole or not there, refused where the training is another."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..documents import SCHEMA_VERSION, replacing
from ..errors import UncurseError

_MINUTE = 60.0


class Checkpoint:
    """The file of a training: due every so many steps, or about every minute, for a twentieth of the time at most."""

    def __init__(self, path: str | os.PathLike[str], about: dict[str, Any], every: int | None) -> None:
        self.path, self.about, self.every = path, about, every
        self.took, self.last = 0.0, time.monotonic()

    def due(self, step: int) -> bool:
        """Return whether to write the file after a step."""
        if self.every is not None:
            return step % self.every == 0
        return time.monotonic() - self.last > max(_MINUTE, 20 * self.took)

    def save(self, step: int, state: dict[str, Tensor]) -> None:
        """Write what is trained after so many steps; a checkpoint that is there is replaced in one move."""
        start = time.monotonic()
        head = {"kind": "checkpoint", "schema_version": SCHEMA_VERSION, "step": step, "about": self.about}
        arrays = {"about": torch.tensor(list(json.dumps(head).encode()), dtype=torch.uint8), **state}
        try:
            # As numpy.savez, but an array at a time: the whole may be larger than the host's memory.
            with replacing(self.path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
                for name, value in arrays.items():
                    with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                        np.save(member, value.detach().cpu().numpy(), allow_pickle=False)
        except OSError as error:
            raise UncurseError(f"cannot write {self.path}: {error.strerror}") from None
        self.last = time.monotonic()
        self.took = self.last - start

    @torch.no_grad()
    def load(self, state: dict[str, Tensor]) -> int:
        """Fill the state from a checkpoint of this very training; returns its step, 0 where there is none."""
        if not Path(self.path).exists():
            return 0
        try:
            with open(self.path, "rb") as stream, np.load(stream, allow_pickle=False) as kept:
                head = json.loads(bytes(kept["about"]).decode())
                self._check(head)
                for name, tensor in state.items():
                    value = kept[name]
                    if value.shape != tuple(tensor.shape):
                        raise ValueError(f"{name} has shape {value.shape}, not {tuple(tensor.shape)}")
                    tensor.copy_(torch.from_numpy(value))
                return int(head["step"])
        except UncurseError as error:
            reason = str(error)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
            found = "no archive of plain arrays" if "pickle" in str(error) else error
            reason = f"is no checkpoint ({found})"
        raise UncurseError(f"{self.path} {reason}; remove it, or name another file")

    def _check(self, head: dict[str, Any]) -> None:
        kind, version = head["kind"], head["schema_version"]
        if kind != "checkpoint" or version != SCHEMA_VERSION:
            wanted = f"this release reads checkpoints of {SCHEMA_VERSION}"
            raise UncurseError(f"is a {kind} of schema_version {version!r} and {wanted}")
        for name, value in self.about.items():
            if head["about"].get(name) != value:
                was, here = (shorten(repr(one), 119, placeholder=" …") for one in (head["about"].get(name), value))
                raise UncurseError(f"is a checkpoint of another training ({name} was {was}, here {here})")
