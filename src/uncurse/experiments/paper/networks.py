"""Train and score the networks of one world or log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...links import logistic
from .measure import log_losses
from .rows import LABELLED, OTHER, POOL, TEST, TRAIN, Setting
from .served import Scored

if TYPE_CHECKING:
    from ...deep.data import Clicks

SNAPSHOTS = (0.8, 0.9)  # shares of the steps


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

    setting: Setting
    clicks: Clicks
    split: NDArray[np.int8]
    seed: int
    device: Any
    plan: dict[str, Any]
    same: bool  # whether the thinning network is trained on the training rows of the others
    checkpoint: Any
    progress: Any

    def __post_init__(self) -> None:
        train, other = (np.flatnonzero(self.split == part) for part in (TRAIN, OTHER))
        # All networks have as many rows. Rows that one side has too many of are left out, not repeated on the other.
        size = len(train) if self.same else min(len(train), len(other))
        self.train_rows, self.thinning_rows = train[:size], (train if self.same else other)[:size]
        self.rows = {part: np.flatnonzero(self.split == part) for part in (LABELLED, POOL, TEST)}
        self.held_out: list[float] = []  # mean log loss after each epoch but the last
        self.facts: dict[str, Any] = {
            "click rate": float(self.clicks.label.float().mean()),
            "training rows": size,
            "training rows left out": len(train) - size,
        }

    def train(self, count: int, stages: Stages) -> Scored:
        """Train and score `count` networks, and one more that thins pool and test."""
        from ... import deep

        epochs = self.plan["epochs"]
        ends = [k / epochs for k in range(1, epochs)]
        label = self._take(LABELLED).label.cpu().numpy()
        held_out: dict[float, float] = {}
        snapshots: dict[float, dict[int, NDArray[Any]]] = {}

        def score_snapshot(share: float, now: deep.Replicas) -> None:
            labelled = now.logits(self._take(LABELLED))[:, 1:]
            if share in ends:
                held_out[share] = float(log_losses(labelled, label).mean())
            if share in SNAPSHOTS:  # the pool is thinned later, by the network as it is at the end
                snapshots[share] = {LABELLED: labelled, POOL: now.logits(self._take(POOL))[:, 1:]}

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
        logits = {}
        for part in self.rows:
            scores = fit.logits(self._take(part))
            stays = self._thin(part, scores[:, 0])
            logits[part] = scores[stays, 1:]
            if part == POOL:
                for kept in snapshots.values():
                    kept[POOL] = kept[POOL][stays]
        del fit
        stages.done("score", f"scored, {self.facts['test rows kept']:.1%} of the test rows stay after thinning")
        columns = np.asfortranarray  # each network is read on its own
        labelled, test = (self._take(part) for part in (LABELLED, TEST))
        return Scored(
            columns(logits[LABELLED]),
            labelled.label.cpu().numpy(),
            columns(logits[POOL]),
            columns(logits[TEST]),
            test.label.cpu().numpy(),
            None if test.truth is None else test.truth.cpu().numpy(),
            {share: (columns(kept[LABELLED]), columns(kept[POOL])) for share, kept in snapshots.items()},
        )

    def _take(self, part: int) -> Clicks:
        import torch

        return self.clicks.take(torch.from_numpy(self.rows[part]).to(self.clicks.label.device))

    def _thin(self, part: int, logit: NDArray[Any]) -> NDArray[np.bool_]:
        """Keep rows of pool and test by the prediction of the thinning network; labelled rows all stay."""
        if part == LABELLED:
            return np.ones(len(logit), bool)
        stays = np.random.default_rng([self.seed, 2, part]).random(len(logit)) < self.setting.keep(logistic(logit))
        self.rows[part] = self.rows[part][stays]
        if part == TEST:
            self.facts["test rows kept"] = float(stays.mean())
        return stays
