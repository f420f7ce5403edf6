"""Checkpoints of a training: one file of plain arrays, whole or not there, refused where the training is another."""

from __future__ import annotations

import json
import os
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..documents import SCHEMA_VERSION, replacing
from ..errors import UncurseError

_HEAD = "about"
_MINUTE = 60.0


def save_checkpoint(path: str | os.PathLike[str], about: dict[str, Any], step: int, state: dict[str, Tensor]) -> None:
    """Write what is trained after so many steps; a checkpoint that is there is replaced in one move."""
    head = json.dumps({"kind": "checkpoint", "schema_version": SCHEMA_VERSION, "step": step, "about": about})
    try:
        # As numpy.savez, but an array at a time: the whole may be larger than the host's memory.
        with replacing(path) as temporary, zipfile.ZipFile(temporary, "w", allowZip64=True) as archive:
            for name, value in {_HEAD: torch.tensor(list(head.encode()), dtype=torch.uint8), **state}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.save(member, value.detach().cpu().numpy(), allow_pickle=False)
    except OSError as error:
        raise UncurseError(f"cannot write {path}: {error.strerror}") from None


def load_checkpoint(path: str | os.PathLike[str], about: dict[str, Any], state: dict[str, Tensor]) -> int:
    """Fill the state from a checkpoint of this very training; returns the step it was at, 0 where there is none."""
    if not Path(path).exists():
        return 0
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as kept:
            head = json.loads(bytes(kept[_HEAD]).decode())
            if head["kind"] != "checkpoint" or head["schema_version"] != SCHEMA_VERSION:
                raise UncurseError(
                    f"{path} is a {head['kind']} of schema_version {head['schema_version']!r} and this release reads "
                    f"checkpoints of {SCHEMA_VERSION}; remove it, or name another file"
                )
            for name, value in about.items():
                was = head["about"].get(name)
                if was != value:
                    raise UncurseError(
                        f"{path} is a checkpoint of another training ({name} was {_short(was)}, here {_short(value)}); "
                        "remove it, or name another file"
                    )
            for name, tensor in state.items():
                value = kept[name]
                if value.shape != tuple(tensor.shape):
                    raise ValueError(f"{name} has shape {value.shape}, not {tuple(tensor.shape)}")
                with torch.no_grad():
                    tensor.copy_(torch.from_numpy(value))
            return int(head["step"])
    except UncurseError:
        raise
    except (OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        reason = "no archive of plain arrays" if "pickle" in str(error) else error
        raise UncurseError(f"{path} is no checkpoint ({reason}); remove it, or name another file") from None


class Keeper:
    """When to write a checkpoint: every so many steps, or about every minute, for a twentieth of the time at most."""

    def __init__(self, every: int | None) -> None:
        self.every, self.took, self.last = every, 0.0, time.monotonic()

    def due(self, done: int) -> bool:
        """After this step."""
        if self.every is not None:
            return done % self.every == 0
        return time.monotonic() - self.last > max(_MINUTE, 20 * self.took)

    def __enter__(self) -> None:
        self.last = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.took, self.last = time.monotonic() - self.last, time.monotonic()


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) < 120 else text[:117] + "…"
