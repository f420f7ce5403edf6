"""Rows of the paper's experiments on click logs: read from a log or drawn from a world, and split."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError

if TYPE_CHECKING:
    from ..deep.clicks import Clicks
    from ..logs import Encoded

TRAIN, LABELED, POOL, TEST, OTHER = range(5)  # other rows are for the thinning network
PARTS = ("training", "labeled", "pool", "test", "thinning")


@dataclass(frozen=True)
class Setting:
    """One experiment of the paper."""

    name: str
    rows: int  # of which `shares` are training, labeled validation, pool sample and test
    shares: tuple[float, float, float, float]
    keep: Callable[[NDArray[Any]], NDArray[Any]]  # share of test rows that stays, by the thinning network's probability
    model: str
    training: dict[str, Any] = field(hash=False)
    cpu_speed: int  # rows a second of all models, on two cores
    #: Networks of the Criteo world stop under-fitting in the third epoch, those of the real log in the second.
    world_epochs: int = 1
    models: int = 80


SETTINGS = {
    "criteo": Setting(
        "criteo", 15_000_000, (0.85, 0.015, 0.015, 0.12), lambda p: 1 - p, "DLRM",
        {"optimizer": "sgd", "learning_rate": 0.1, "batch_size": 128, "epochs": 2}, 40_000, world_epochs=3,
    ),
    "avazu": Setting(
        "avazu", 10_000_000, (0.77, 0.015, 0.015, 0.2),
        lambda p: np.where(p < 0.2, 1 - p, np.where(p > 0.3, 0.1, 2.2 - 7 * p)), "XDeepFM",
        {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 256, "epochs": 1}, 8_000,
    ),
}  # fmt: skip
#: Below a million rows the paper's shares would leave too few to calibrate and to select from.
SMALL, SMALL_SHARES = 1_000_000, (0.6, 0.1, 0.1, 0.2)
#: What two CPU cores do in two minutes.
QUICK: dict[str, dict[str, int]] = {
    "criteo": {"rows": 80_000, "models": 8, "epochs": 2},
    "avazu": {"rows": 60_000, "models": 4, "epochs": 1},
}


def split_rows(setting: Setting, rows: int, total: int, seed: int) -> NDArray[np.int8]:
    """Return the part of each of the first `total` rows; those after `rows` are for the thinning network."""
    u = np.random.default_rng([seed, 1]).random(rows, dtype=np.float32)
    split = np.searchsorted(np.cumsum(setting.shares[:3]), u, side="right").astype(np.int8)
    return np.append(split, np.full(total - rows, OTHER, np.int8))


def draw_world(setting: Setting, rows: int, seed: int, device: Any) -> tuple[Clicks, NDArray[Any]]:
    """Return rows of a world on the device, and the part of each."""
    from ..worlds import ClickWorld

    split = split_rows(setting, rows, rows, seed)
    split = np.append(split, np.full(int((split == TRAIN).sum()), OTHER, np.int8))
    scale = min(1.0, rows / SETTINGS[setting.name].rows)
    world = getattr(ClickWorld, setting.name)(scale=scale, seed=seed)
    return world.draw(len(split), seed=seed + 1, device=device), split


def read_log(kind: str, data: Any, kept: Any, split: NDArray[np.int8]) -> Encoded:
    """Return the log, encoded for this split now or before."""
    from ..logs import Encoded, encode

    if kept is None:
        with tempfile.TemporaryDirectory() as folder:  # a mapped file outlives its name
            return read_log(kind, data, Path(folder) / "log.clicks", split)
    if not Path(kept).exists():
        return encode(data, kept, kind=kind, rows=len(split), training=lambda rows: split[:rows] == TRAIN)
    # Codes depend on which rows are training rows.
    log = Encoded.open(kept)
    crc = zlib.crc32((split[: log.rows] == TRAIN).tobytes())
    wanted = {"kind": kind, "source_bytes": Path(data).stat().st_size, "training_crc": crc}
    for name, value in wanted.items():
        if getattr(log, name) != value:
            raise UncurseError(
                f"{log.path} was encoded from {log.source} for something else ({name} is {getattr(log, name)!r}, here "
                f"{value!r}; was it another log, --seed or --rows?); remove it, or name another file"
            )
    return log


def count_rows(data: str | os.PathLike[str], setting: Setting, rows: int) -> int:
    """Return the number of rows of a log, at most twice `rows`."""
    from ..logs import count_lines

    header = setting.name == "avazu"
    lines = count_lines(data, int(rows * 2) + header) - header
    if lines < 1:
        raise UncurseError(f"{data} holds no rows; pass {setting.name.capitalize()}'s log")
    return lines


def plan_rows(setting: Setting, wanted: int, lines: int | None) -> tuple[Setting, int, str]:
    """Return the setting with its shares, how many of the wanted rows a log has, and why if they are fewer."""
    there = wanted if lines is None else min(wanted, int(lines / (1 + setting.shares[0])))
    if there < SMALL and setting.shares != SMALL_SHARES:
        return plan_rows(replace(setting, shares=SMALL_SHARES), wanted, lines)
    reason = f"the log has {lines or 0:,}, and the thinning network needs as many further rows as the others train on"
    return setting, there, f"{there:,} rows instead of {wanted:,}: {reason}" if there < wanted else ""


def check_time(setting: Setting, rows: int, models: int, epochs: int) -> None:
    """Refuse to start half a day of work by accident."""
    hours = rows * setting.shares[0] * epochs * (models + 1) / setting.cpu_speed / 3600
    if hours > 12:
        raise UncurseError(
            f"there is no GPU here, and {models + 1} models on {rows:,} rows would take some {hours:.0f} hours on a "
            "CPU; use --quick, fewer --rows or --models, or --device cpu if you mean it"
        )


def check_parts(clicks: Clicks, split: NDArray[np.int8]) -> None:
    """Raise UncurseError before the training if a part has no clicks."""
    label = clicks.label.cpu().numpy()
    for part, name in enumerate(PARTS):
        if not label[split == part].any():
            raise UncurseError(
                f"of {len(split):,} rows {int((split == part).sum())} are {name} rows, with 0 clicks among them: too "
                "few; take more rows"
            )


def hide_unknown(clicks: Clicks, training: NDArray[np.intp]) -> None:
    """Replace values that no training row has by the code of unknown ones, 1."""
    import torch

    rows = torch.from_numpy(training).to(clicks.codes.device)
    for f, size in enumerate(clicks.sizes):
        codes = clicks.codes[:, f]
        known = torch.zeros(size, dtype=torch.bool, device=codes.device)
        known[codes[rows].long()] = True
        known[:2] = True
        codes.masked_fill_(~known[codes.long()], 1)
