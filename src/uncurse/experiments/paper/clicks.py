"""The paper's experiments on click logs, on the log itself or on simulated worlds of its shape."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import UncurseError
from ...validation import check_choice, check_count
from . import rows as parts
from .measure import measure, tabulate
from .networks import Networks, Stages
from .tables import ClickTables

THINNING = ("other", "same")
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
    steps: int | None = None,
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
    progress: Callable[[int], Callable[[Iterator[Any]], Iterable[Any]]] = lambda total: iter,
) -> ClickTables:
    """Run one experiment, "criteo" or "avazu", on the log `data`, or on worlds of its shape whose truth is known.

    `encoded` keeps the encoded log; if it exists, it is read instead. `rows`, `models` and `epochs` are by default the
    paper's: 15 million (Avazu: 10), 80 and 2 (1); in the Criteo world 3 epochs. Of a log 1.85 (1.77) times as many rows
    are read, because the thinning network is trained on other rows. There are more epochs if they have fewer than
    `steps` steps.

    Each of the `worlds` has its own effects, rows, labels and networks, and the click rate `rate`. With
    ``thinning="same"``, a control, the network that thins pool and test is trained on the training rows of the others.
    With `decay` the learning rate falls linearly to a hundredth, a case in which snapshots agree too much. Values that
    no training row has are unknown, unless `vocabulary` is "all". `bad_share` is the largest share of bad lines in a
    log. `say`, `reading`, `training_progress` and `progress` are for notes and progress bars; see
    `uncurse.deep.train_replicas` for the rest.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise UncurseError("this experiment trains networks and needs PyTorch: pip install 'uncurse[deep]'") from None
    from ...deep.inputs import pick_device
    from ...deep.plan import PRECISIONS

    setting = parts.SETTINGS[check_choice("experiment", name, tuple(parts.SETTINGS))]
    wanted = check_count(setting.rows if rows is None else rows, "rows")
    count = check_count(setting.models if models is None else models, "models")
    if count < 2:
        raise UncurseError(f"models={count}; a served model and its replica are two at least")
    if not count < _WORLD_SEEDS:
        raise UncurseError(f"models={count}; train fewer than {_WORLD_SEEDS}")
    check_choice("vocabulary", vocabulary, ("training", "all"))
    check_choice("precision", precision, PRECISIONS)
    check_choice("thinning", thinning, THINNING)
    if check_count(worlds, "worlds") > 1 and data is not None:
        raise UncurseError(f"worlds={worlds}, and a log is one; leave out --worlds or --data")
    if data is not None and rate is not None:
        raise UncurseError("a rate is for a world; the clicks of a log are what they are")
    where = pick_device(device)
    lines = None if data is None else parts.count_rows(data, setting, wanted)
    there = wanted if lines is None else min(wanted, int(lines / (1 + setting.shares[0])))
    if there < parts.SMALL:
        setting = replace(setting, shares=parts.SMALL_SHARES)
    plan = {**setting.training, "precision": precision}
    if decay:
        plan["final_rate"] = plan["rate"] / 100
    plan["epochs"] = epochs or (setting.world_epochs if data is None else plan["epochs"])
    if device is None and where.type == "cpu":
        parts.check_time(setting, there, count * worlds, plan["epochs"])
    stages, measured = Stages(say), []
    for world in range(worlds):
        base = seed + _WORLD_SEEDS * world
        if data is None or lines is None:
            clicks, split = parts.draw_world(setting, wanted, rate, base, where)
            if vocabulary == "training":
                parts.hide_unknown(clicks, np.flatnonzero(split == parts.TRAIN))
            what = f"drew {len(split):,} rows of a world"
        else:
            total = min(lines, int(wanted * (1 + setting.shares[0])))
            split = parts.split_rows(setting, int(total / (1 + setting.shares[0])), total, base)
            log = parts.encoded_log(setting, data, encoded, split, vocabulary, bad_share, reading)
            clicks, split = log.clicks().to(where), split[: len(log)]
            what = f"read {len(clicks):,} rows, {log.bad_lines:,} bad lines"
        stages.done("rows", f"{what}, {sum(clicks.sizes):,} values of categories")
        parts.check_parts(clicks, split)
        if steps is not None:
            per_epoch = -(-int((split == parts.TRAIN).sum()) // plan["batch_size"])
            plan["epochs"] = max(plan["epochs"], -(-steps // per_epoch))
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
