"""The paper's experiments on click logs, on the log itself or on simulated worlds of its shape."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.validation import check_choice, check_count

from ..processes import Progress
from . import rows as parts
from .measure import log_losses, measure, tabulate
from .served import Scored
from .tables import ClickTables

if TYPE_CHECKING:
    from ..deep.clicks import Clicks

SNAPSHOTS = (0.8, 0.9)  # shares of the steps
_WORLD_SEEDS = 1000  # distance between the seeds of worlds, more than the networks of one


def run(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    encoded: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    models: int | None = None,
    worlds: int = 1,
    epochs: int | None = None,
    rate: float | None = None,
    thinning: str = "other",
    decay: bool = False,
    seed: int = 0,
    vocabulary: str = "training",
    device: str | None = None,
    precision: str = "tf32",
    checkpoint: str | os.PathLike[str] | None = None,
    bad_share: float = 0.01,
    say: Callable[[str], None] = lambda text: None,
    reading: parts.Reading = lambda: nullcontext(lambda rows: None),
    training_progress: Any = None,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> ClickTables:
    """Run one experiment, "criteo" or "avazu", on the log `data`, or on worlds of its shape whose truth is known.

    `encoded` keeps the encoded log; if it exists, it is read instead. `rows`, `models` and `epochs` are by default the
    paper's; in the Criteo world 3 epochs. The network that thins pool and test is trained on further rows of the log;
    with ``thinning="same"``, a control, on the training rows of the others. With `decay` the learning rate falls
    linearly to a hundredth. Values that no training row has are unknown, unless `vocabulary` is "all". `say`,
    `reading`, `training_progress` and `progress` are for notes and progress bars; the rest is for `train_replicas`.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise UncurseError("this experiment trains networks and needs PyTorch: pip install 'uncurse[deep]'") from None
    from uncurse.deep.inputs import pick_device
    from uncurse.deep.plan import PRECISIONS

    setting = parts.SETTINGS[check_choice("experiment", name, tuple(parts.SETTINGS))]
    wanted = check_count(setting.rows if rows is None else rows, "rows")
    count = check_count(setting.models if models is None else models, "models")
    if count < 2:
        raise UncurseError(f"models={count}; a served model and its replica are two at least")
    if not count < _WORLD_SEEDS:
        raise UncurseError(f"models={count}; train fewer than {_WORLD_SEEDS}")
    check_choice("vocabulary", vocabulary, ("training", "all"))
    check_choice("precision", precision, PRECISIONS)
    check_choice("thinning", thinning, ("other", "same"))
    if check_count(worlds, "worlds") > 1 and data is not None:
        raise UncurseError(f"worlds={worlds}, and a log is one; leave out --worlds or --data")
    if data is not None and rate is not None:
        raise UncurseError("a rate is for a world; the clicks of a log are what they are")
    where = pick_device(device)
    lines = None if data is None else parts.count_rows(data, setting, wanted)
    setting, there, fewer = parts.plan_rows(setting, wanted, lines)
    plan = {**setting.training, "precision": precision}
    if decay:
        plan["final_rate"] = plan["rate"] / 100
    plan["epochs"] = epochs or (setting.world_epochs if data is None else plan["epochs"])
    if device is None and where.type == "cpu":
        parts.check_time(setting, there, count * worlds, plan["epochs"])
    stages, measured = Stages(say), []
    if fewer:
        say(fewer)
    for world in range(worlds):
        base = seed + _WORLD_SEEDS * world
        if lines is None:
            clicks, split = parts.draw_world(setting, wanted, rate, base, where)
            if vocabulary == "training":
                parts.hide_unknown(clicks, np.flatnonzero(split == parts.TRAIN))
            what = f"drew {len(split):,} rows of a world"
        else:
            total = min(lines, int(wanted * (1 + setting.shares[0])))
            split = parts.split_rows(setting, there, total, base)
            log = parts.read_log(name, data, encoded, split, vocabulary, bad_share, reading)
            clicks, split = log.clicks().to(where), split[: len(log)]
            what = f"read {len(clicks):,} rows, {log.bad_lines:,} bad lines"
        stages.done("rows", f"{what}, {sum(clicks.sizes):,} values of categories")
        parts.check_parts(clicks, split)
        kept = checkpoint if checkpoint is None or not world else f"{checkpoint}.world-{world}"
        networks = Networks(setting, clicks, split, base, where, plan, thinning == "same", kept, training_progress)
        scored = networks.train(count, stages)
        del clicks
        each = measure(scored, progress=progress)
        held_out = [*networks.held_out, each.networks.pop("held-out log loss")]
        each.networks.update({**networks.facts, "held-out log loss by epoch": held_out})
        measured.append(each)
        stages.done("measure", "measured")
        del scored, networks
    about = {
        "data": "a world" if data is None else Path(data).name,
        "rows": int((split != parts.OTHER).sum()),
        **({"fewer rows": fewer} if fewer else {}),
        "shares": list(setting.shares),
        "thinning network": f"trained on {'the training' if thinning == 'same' else 'other'} rows",
        "vocabulary": vocabulary,
        "model": setting.model,
        "training": {**plan, "precision": precision if where.type == "cuda" or precision == "bf16" else "float32"},
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "cpu",
        "seed": seed,
        "seconds": stages.seconds,
    }
    return tabulate(name, measured, about)


@dataclass
class Stages:
    """Reports what is being done, and keeps how long each part took."""

    say: Callable[[str], None] = lambda text: None
    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def done(self, name: str, text: str) -> None:
        """Note the end of a part."""
        now = time.perf_counter()
        self.seconds[name] = round(self.seconds.get(name, 0.0) + now - self._since, 1)
        self.say(f"{text} ({now - self._since:.1f} s)")
        self._since = now


@dataclass
class Networks:
    """Networks that are trained side by side on one split of the rows."""

    setting: parts.Setting
    clicks: Clicks
    split: NDArray[np.int8]
    seed: int
    device: Any
    plan: dict[str, Any]
    same: bool  # whether the thinning network is trained on the training rows of the others
    checkpoint: Any
    progress: Any

    def __post_init__(self) -> None:
        self.rows = {part: np.flatnonzero(self.split == part) for part in range(len(parts.PARTS))}
        train, thinning = self.rows[parts.TRAIN], self.rows[parts.TRAIN if self.same else parts.OTHER]
        # All networks have as many rows. Rows that one side has too many of are left out, not repeated on the other.
        size = min(len(train), len(thinning))
        self.train_rows, self.thinning_rows = train[:size], thinning[:size]
        self.held_out: list[float] = []  # mean log loss after each epoch but the last
        self.facts: dict[str, Any] = {
            "click rate": float(self.clicks.label.float().mean()),
            "training rows": size,
            "training rows left out": len(train) - size,
        }

    def train(self, count: int, stages: Stages) -> Scored:
        """Train and score `count` networks, and one more that thins pool and test."""
        from .. import deep

        columns = np.asfortranarray  # each network is read on its own
        ends = [k / self.plan["epochs"] for k in range(1, self.plan["epochs"])]
        label = self._take(parts.LABELLED).label.cpu().numpy()
        held_out: dict[float, float] = {}
        snapshots: dict[float, tuple[NDArray[Any], NDArray[Any]]] = {}

        def score_snapshot(share: float, now: deep.Replicas) -> None:
            labelled = columns(now.logits(self._take(parts.LABELLED))[:, 1:])
            if share in ends:
                held_out[share] = float(log_losses(labelled, label).mean())
            if share in SNAPSHOTS:  # the pool is thinned later, by the network as it is at the end
                snapshots[share] = labelled, now.logits(self._take(parts.POOL))[:, 1:]

        fit = deep.train_replicas(
            getattr(deep, self.setting.model),
            self.clicks,
            n_replicas=1 + count,
            rows=[self.thinning_rows] + [self.train_rows] * count,
            seed=self.seed,
            snapshots=sorted({*SNAPSHOTS, *ends}),
            on_snapshot=score_snapshot,
            device=self.device,
            checkpoint=self.checkpoint,
            progress=self.progress,
            **self.plan,
        )
        losses = fit.losses[:, 1:]
        resumed = f", from step {fit.began:,} of the checkpoint" if fit.began else ""
        what = f"trained {count} networks and the thinning one{resumed}"
        stages.done("train", f"{what}, log loss {losses[-1].mean():.4f}")
        self.held_out = [held_out.get(end, float("nan")) for end in ends]
        self.facts["training log loss by epoch"] = [float(x) for x in losses.mean(1)]
        missing = [share for share in SNAPSHOTS if share not in snapshots]
        if missing:
            self.facts["snapshots left out"] = f"{missing}: the training resumed from a checkpoint after them"
        logits, stays = {}, {}
        for part in (parts.LABELLED, parts.POOL, parts.TEST):
            scores = fit.logits(self._take(part))
            draws = np.random.default_rng([self.seed, 2, part]).random(len(scores))
            stays[part] = (part == parts.LABELLED) | (draws < self.setting.keep(logistic(scores[:, 0])))
            logits[part] = columns(scores[stays[part], 1:])
            self.rows[part] = self.rows[part][stays[part]]
        self.facts["test rows kept"] = float(stays[parts.TEST].mean())
        del fit
        stages.done("score", f"scored, {self.facts['test rows kept']:.1%} of the test rows stay after thinning")
        test = self._take(parts.TEST)
        truth = None if test.truth is None else test.truth.cpu().numpy()
        thinned = {share: (labelled, columns(pool[stays[parts.POOL]])) for share, (labelled, pool) in snapshots.items()}
        labelled, pool, tested = logits.values()
        return Scored(labelled, label, pool, tested, test.label.cpu().numpy(), truth, thinned)

    def _take(self, part: int) -> Clicks:
        import torch

        return self.clicks.take(torch.from_numpy(self.rows[part]).to(self.clicks.label.device))
