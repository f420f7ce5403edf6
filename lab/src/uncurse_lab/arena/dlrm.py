"""DLRM replicas on a click log of a known world, for the arena: trained once, kept as a small file of logits.

    python -m uncurse_lab.arena.dlrm FILE     # three minutes on one GPU

Each data set has training rows of its own, six models by seed, and a seventh, trained on other rows, that thins the
candidate pool by 1 − p. What is kept for labeled and pool rows: the mean logit, how far each model is from it, and the
true logit, in steps of 1/64, 1/16 and 1/64.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.documents import replacing
from uncurse.errors import UncurseError
from uncurse.links import logistic

MODELS = 6
SETS = {"28-a": 0.28, "28-b": 0.28, "28-c": 0.28, "4-a": 0.045, "4-b": 0.045}  # click rate of each data set
MEAN, APART, TRUTH = 64, 16, 64  # steps of one


@dataclass
class Logits:
    """Labeled and pool rows of one data set: logits (n, 6), and the true logit of each."""

    labeled: Array
    labeled_truth: Array
    pool: Array
    pool_truth: Array


def train(rate: float, seed: int, *, rows: int = 3_000_000, kept: int = 200_000) -> Logits:
    """One data set of `rows` training rows, and as many of the model that shifts; `kept` rows of either kind."""
    import torch

    from uncurse.deep.inputs import pick_device

    from ..deep import DLRM, train_replicas
    from ..paper.rows import hide_unknown
    from ..worlds import ClickWorld

    where = pick_device(None)
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    total = 2 * rows + 3 * kept
    world = ClickWorld.criteo(rate=rate, scale=min(1.0, rows / 15_000_000), seed=0)
    clicks = world.draw(total, seed=seed, device=where)
    number = np.arange(total)
    hide_unknown(clicks, number[:rows])
    trained_on = [number[:rows]] * MODELS + [number[rows : 2 * rows]]
    fit = train_replicas(DLRM, clicks, n_replicas=MODELS + 1, rows=trained_on, epochs=2, seed=100 * seed, device=where)
    rest = clicks.take(torch.from_numpy(number[2 * rows :]).to(clicks.label.device))
    logits, truth = fit.logits(rest).astype(np.float64), rest.truth.cpu().numpy().astype(np.float64)
    truth = np.log(truth) - np.log1p(-truth)
    stays = np.random.default_rng([seed, 2]).random(2 * kept) < 1 - logistic(logits[kept:, -1])
    pool = kept + np.flatnonzero(stays)[:kept]
    return Logits(logits[:kept, :-1], truth[:kept], logits[pool, :-1], truth[pool])


def pack(sets: dict[str, Logits]) -> bytes:
    """Data sets by name, as the bytes of an npz file."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, logits in sets.items():
        for part in ("labeled", "pool"):
            scores = getattr(logits, part)
            mean = np.rint(scores.mean(axis=1) * MEAN)
            arrays[f"{name}/{part}/mean"] = mean.astype(np.int16)
            apart = np.rint((scores - mean[:, None] / MEAN) * APART)
            arrays[f"{name}/{part}/apart"] = np.clip(apart, -127, 127).astype(np.int8).T
            arrays[f"{name}/{part}/truth"] = np.rint(getattr(logits, f"{part}_truth") * TRUTH).astype(np.int16)
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def unpack(path: Any) -> dict[str, Logits]:
    """Back from the file."""
    with np.load(path) as arrays:
        names = sorted({key.split("/")[0] for key in arrays.files})
        sets = {}
        for name in names:
            parts = []
            for part in ("labeled", "pool"):
                mean = arrays[f"{name}/{part}/mean"].astype(np.float64) / MEAN
                parts.append(mean[:, None] + arrays[f"{name}/{part}/apart"].T.astype(np.float64) / APART)
                parts.append(arrays[f"{name}/{part}/truth"].astype(np.float64) / TRUTH)
            sets[name] = Logits(*parts)
        return sets


def main(arguments: list[str]) -> None:
    """Train all data sets and write the file."""
    if not arguments:
        raise UncurseError("name the file to write: python -m uncurse_lab.arena.dlrm FILE")
    sets = {}
    for seed, (name, rate) in enumerate(SETS.items(), 1):
        sets[name] = train(rate, seed)
        sys.stdout.write(f"data set {name}: trained and scored\n")
    with replacing(arguments[0]) as path:
        path.write_bytes(pack(sets))


if __name__ == "__main__":
    main(sys.argv[1:])
