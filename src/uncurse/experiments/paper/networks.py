"""Train and score the networks of one world or log, in parts that fit into the memory of a GPU."""

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
_FLOATS_PER_VALUE = {"DLRM": 17, "XDeepFM": 6}  # of a category, and a little for the dense layers
_BYTES_PER_ROW = 8  # of a replica: its training rows, and their order in this epoch
_MEMORY = 0.85  # share of the free memory of a GPU for networks and snapshots; the rest is for a step


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


class Networks:
    """Networks that are trained and scored in parts, so that a part and its snapshots fit into the memory of a GPU."""

    def __init__(
        self,
        setting: Setting,
        clicks: Clicks,
        split: NDArray[np.int8],
        seed: int,
        device: Any,
        plan: dict[str, Any],
        same: bool,
        checkpoint: Any,
        progress: Any,
    ) -> None:
        self.setting, self.clicks, self.seed, self.device, self.plan = setting, clicks, seed, device, plan
        self.checkpoint, self.progress = checkpoint, progress
        train, other = (np.flatnonzero(split == part) for part in (TRAIN, OTHER))
        # All networks have as many rows. Rows that one side has too many of are left out, not repeated on the other.
        size = len(train) if same else min(len(train), len(other))
        self.train_rows, self.thinning_rows = train[:size], (train if same else other)[:size]
        self.rows = {part: np.flatnonzero(split == part) for part in (LABELLED, POOL, TEST)}
        self.held_out: list[float] = []  # mean log loss of the first part after each epoch but the last
        self.facts: dict[str, Any] = {
            "click rate": float(clicks.label.float().mean()),
            "training rows": size,
            "training rows left out": len(train) - size,
        }

    def train(self, count: int, stages: Stages) -> Scored:
        """Train and score `count` networks; the first part has one more, which thins pool and test."""
        from ... import deep

        logits: dict[int, list[NDArray[Any]]] = {part: [] for part in self.rows}
        old: dict[tuple[float, int], list[NDArray[Any]]] = {}
        losses: list[NDArray[Any]] = []
        epochs = self.plan["epochs"]
        ends = [k / epochs for k in range(1, epochs)]
        done = 0
        while done < count:
            first = not done
            snapshots = sorted({*SNAPSHOTS, *(ends if first else ())})
            size = min(count - done, self._fitting(len(snapshots)))
            rows = [self.thinning_rows] * first + [self.train_rows] * size
            fit = deep.train_replicas(
                getattr(deep, self.setting.model),
                self.clicks,
                n_replicas=len(rows),
                rows=rows,
                seed=self.seed + (0 if first else 1 + done),
                snapshots=snapshots,
                device=self.device,
                checkpoint=self.checkpoint if first or self.checkpoint is None else f"{self.checkpoint}.{done}",
                progress=self.progress,
                **self.plan,
            )
            losses.append(fit.losses[:, first:])
            resumed = f", from step {fit.began:,} of the checkpoint" if fit.began else ""
            loss = f"log loss {losses[-1][-1].mean():.4f}"
            stages.done("train", f"trained {size} networks{' and the thinning one' * first}{resumed}, {loss}")
            for part, each in {part: fit.logits(self._take(part)) for part in self.rows}.items():
                stays = self._thin(part, each[:, 0]) if first else slice(None)
                logits[part].append(each[stays, first:])
            for share in SNAPSHOTS:
                for part in (LABELLED, POOL):
                    scores = fit.logits(self._take(part), snapshot=share)[:, first:]
                    old.setdefault((share, part), []).append(scores)
            if first:
                label = self._take(LABELLED).label.cpu().numpy()
                for end in ends:
                    scores = fit.logits(self._take(LABELLED), snapshot=end)[:, 1:]
                    self.held_out.append(float(log_losses(scores, label).mean()))
            done += size
            del fit
            stages.done("score", f"scored, {self.facts['test rows kept']:.1%} of the test rows stay after thinning")
        self.facts["training log loss by epoch"] = [float(x) for x in np.concatenate(losses, axis=1).mean(1)]
        return self._scored(logits, old)

    def _scored(self, logits: dict[int, list[Any]], old: dict[tuple[float, int], list[Any]]) -> Scored:
        def joined(parts: list[Any]) -> NDArray[Any]:
            return np.asfortranarray(np.concatenate(parts, axis=1))  # each network is read on its own

        labelled, test = (self._take(part) for part in (LABELLED, TEST))
        return Scored(
            joined(logits[LABELLED]),
            labelled.label.cpu().numpy(),
            joined(logits[POOL]),
            joined(logits[TEST]),
            test.label.cpu().numpy(),
            None if test.truth is None else test.truth.cpu().numpy(),
            {share: (joined(old[share, LABELLED]), joined(old[share, POOL])) for share in SNAPSHOTS},
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

    def _fitting(self, snapshots: int) -> int:
        """Return how many networks fit into the memory of the GPU with their snapshots, an even number."""
        if self.device.type != "cuda":
            return 1 << 30
        import torch

        torch.cuda.empty_cache()
        copies = 1 + snapshots + 2 * (self.plan["optimiser"] == "adam")
        table = sum(self.clicks.sizes) * _FLOATS_PER_VALUE[self.setting.model] * 4
        each = copies * table + len(self.train_rows) * _BYTES_PER_ROW
        return max(2, int(_MEMORY * torch.cuda.mem_get_info(self.device)[0] / each) // 2 * 2)


__all__ = ["SNAPSHOTS", "Networks", "Stages"]
