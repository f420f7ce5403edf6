"""The paper's experiments on click logs, on the log itself or on simulated worlds of its shape."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.optional import needing

from ..processes import Progress
from . import rows as parts
from .measure import log_losses, measure, tabulate
from .served import Scored
from .tables import ClickTables

if TYPE_CHECKING:
    from uncurse.deep.training import Replicas

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
    thinning: str = "other",
    decay: bool = False,
    seed: int = 0,
    device: str | None = None,
    say: Callable[[str], None] = lambda text: None,
    reading: Callable[[], AbstractContextManager[Any]] = nullcontext,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> ClickTables:
    """Run one experiment, "criteo" or "avazu", on the log `data`, or on worlds of its shape whose truth is known.

    `encoded` keeps the encoded log; if it exists, it is read instead. `rows`, `models` and `epochs` are by default the
    paper's; in the Criteo world 3 epochs. The network that thins pool and test is trained on further rows of the log;
    with ``thinning="same"``, a control, on the training rows of the others. With `decay` the learning rate falls
    linearly to a hundredth. `say`, `reading` and `progress` are for notes and progress bars.
    """
    with needing("deep"):
        import torch

        from uncurse.deep.inputs import pick_device

    setting = parts.SETTINGS[name]
    wanted, count = rows or setting.rows, models or setting.models
    if not 2 <= count < _WORLD_SEEDS:
        raise UncurseError(f"models={count}; train a served model, its replica, and fewer than {_WORLD_SEEDS} in all")
    if worlds > 1 and data is not None:
        raise UncurseError(f"worlds={worlds}, and a log is one; leave out --worlds or --data")
    where = pick_device(device)
    if where.type == "cuda":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    lines = None if data is None else parts.count_rows(data, setting, wanted)
    setting, there, fewer = parts.plan_rows(setting, wanted, lines)
    plan = dict(setting.training)
    if decay:
        plan["final_rate"] = plan["learning_rate"] / 100
    plan["epochs"] = epochs or (setting.world_epochs if data is None else plan["epochs"])
    if device is None and where.type == "cpu":
        parts.check_time(setting, there, count * worlds, plan["epochs"])
    if fewer:
        say(fewer)
    seconds: dict[str, float] = {}
    since = time.perf_counter()

    def done(stage: str, text: str) -> None:
        """Note the end of a stage, and keep how long it took."""
        nonlocal since
        took, since = time.perf_counter() - since, time.perf_counter()
        seconds[stage] = round(seconds.get(stage, 0.0) + took, 1)
        say(f"{text} ({took:.1f} s)")

    measured = []
    for world in range(worlds):
        base = seed + _WORLD_SEEDS * world
        if lines is None:
            clicks, split = parts.draw_world(setting, wanted, base, where)
            parts.hide_unknown(clicks, np.flatnonzero(split == parts.TRAIN))
            what = f"drew {len(split):,} rows of a world"
        else:
            total = min(lines, int(wanted * (1 + setting.shares[0])))
            split = parts.split_rows(setting, there, total, base)
            with reading():
                log = parts.read_log(name, data, encoded, split)
            clicks, split = log.clicks().to(where), split[: len(log)]
            what = f"read {len(clicks):,} rows, {log.bad_lines:,} bad lines"
        done("rows", f"{what}, {sum(clicks.sizes):,} values of categories")
        parts.check_parts(clicks, split)
        same = thinning == "same"
        scored, facts = train(setting, clicks, split, count, plan, seed=base, same=same, device=where, done=done)
        del clicks
        each = measure(scored, progress=progress)
        del scored
        facts["held-out log loss by epoch"].append(each.networks.pop("held-out log loss"))
        each.networks.update(facts)
        measured.append(each)
        done("measure", "measured")
    about = {
        "data": "a world" if data is None else Path(data).name,
        "rows": int((split != parts.OTHER).sum()),
        **({"fewer rows": fewer} if fewer else {}),
        "shares": list(setting.shares),
        "thinning network": f"trained on {'the training' if thinning == 'same' else 'other'} rows",
        "model": setting.model,
        "training": plan,
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "cpu",
        "seed": seed,
        "seconds": seconds,
    }
    return tabulate(name, measured, about)


def train(
    setting: parts.Setting,
    clicks: Clicks,
    split: NDArray[np.int8],
    count: int,
    plan: dict[str, Any],
    *,
    seed: int,
    same: bool,
    device: Any = None,
    done: Callable[[str, str], None],
) -> tuple[Scored, dict[str, Any]]:
    """Train and score `count` networks on one split of the rows, and one more that thins pool and test.

    With `same` the thinning network is trained on the training rows of the others. Returns what is known of the
    networks too.
    """
    import torch

    from .. import deep

    rows = {part: np.flatnonzero(split == part) for part in range(len(parts.PARTS))}
    training, thinning = rows[parts.TRAIN], rows[parts.TRAIN if same else parts.OTHER]
    # All networks have as many rows. Rows that one side has too many of are left out, not repeated on the other.
    size = min(len(training), len(thinning))

    def take(part: int) -> Clicks:
        return clicks.take(torch.from_numpy(rows[part]).to(clicks.label.device))

    columns = np.asfortranarray  # each network is read on its own
    ends = [k / plan["epochs"] for k in range(1, plan["epochs"])]
    label = take(parts.LABELED).label.cpu().numpy()
    held_out: dict[float, float] = {}  # mean log loss after each epoch but the last
    snapshots: dict[float, tuple[NDArray[Any], NDArray[Any]]] = {}

    def score_snapshot(share: float, now: Replicas) -> None:
        labeled = columns(now.logits(take(parts.LABELED))[:, 1:])
        if share in ends:
            held_out[share] = float(log_losses(labeled, label).mean())
        if share in SNAPSHOTS:  # the pool is thinned later, by the network as it is at the end
            snapshots[share] = labeled, now.logits(take(parts.POOL))[:, 1:]

    fit = deep.train_replicas(
        getattr(deep, setting.model),
        clicks,
        n_replicas=1 + count,
        rows=[thinning[:size]] + [training[:size]] * count,
        seed=seed,
        snapshots=sorted({*SNAPSHOTS, *ends}),
        on_snapshot=score_snapshot,
        device=device,
        **plan,
    )
    losses = fit.losses[:, 1:]
    done("train", f"trained {count} networks and the thinning one, log loss {losses[-1].mean():.4f}")
    logits, stays = {}, {}
    for part in (parts.LABELED, parts.POOL, parts.TEST):
        scores = fit.logits(take(part))
        draws = np.random.default_rng([seed, 2, part]).random(len(scores))
        stays[part] = (part == parts.LABELED) | (draws < setting.keep(logistic(scores[:, 0])))
        logits[part] = columns(scores[stays[part], 1:])
        rows[part] = rows[part][stays[part]]
    facts: dict[str, Any] = {
        "click rate": float(clicks.label.float().mean()),
        "training rows": size,
        "training rows left out": len(training) - size,
        "training log loss by epoch": [float(x) for x in losses.mean(1)],
        "test rows kept": float(stays[parts.TEST].mean()),
        "held-out log loss by epoch": list(held_out.values()),
    }
    done("score", f"scored, {facts['test rows kept']:.1%} of the test rows stay after thinning")
    test = take(parts.TEST)
    truth = None if test.truth is None else test.truth.cpu().numpy()
    thinned = {share: (labeled, columns(pool[stays[parts.POOL]])) for share, (labeled, pool) in snapshots.items()}
    labeled, pool, tested = logits.values()
    return Scored(labeled, label, pool, tested, test.label.cpu().numpy(), truth, thinned), facts
