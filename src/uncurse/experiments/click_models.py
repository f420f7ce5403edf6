"""The paper's experiments on click logs, up to the tables: rows, splits, the shift, and all models side by side."""

from __future__ import annotations

import os
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UncurseError
from ..links import logistic
from ..validation import check_choice, check_count
from .clicks import Scored, groups_of, measure
from .clicks_tables import ClickTables

if TYPE_CHECKING:
    from ..deep.data import Clicks
    from .logs import Encoded

Keep = Callable[[NDArray[Any]], NDArray[Any]]
Reading = Callable[[], AbstractContextManager[Callable[[int], None]]]  # a bar, to be told of rows


@dataclass(frozen=True)
class Setting:
    """One experiment as the paper has it."""

    name: str
    rows: int  # of which `shares` are training, labelled validation, pool sample and test
    shares: tuple[float, float, float, float]
    keep: Keep  # probability of the shifting model to the share of test rows that stays
    model: str
    training: dict[str, Any] = field(hash=False)
    models: int = 80


def _keep_avazu(p: NDArray[Any]) -> NDArray[Any]:
    return np.where(p < 0.2, 1 - p, np.where(p > 0.3, 0.1, 2.2 - 7 * p))


SETTINGS = {
    "criteo": Setting(
        "criteo",
        15_000_000,
        (0.85, 0.015, 0.015, 0.12),
        lambda p: 1 - p,
        "DLRM",
        {"optimiser": "sgd", "rate": 0.1, "batch_size": 128, "epochs": 2},
    ),
    "avazu": Setting(
        "avazu",
        10_000_000,
        (0.77, 0.015, 0.015, 0.2),
        _keep_avazu,
        "XDeepFM",
        {"optimiser": "adam", "rate": 1e-3, "batch_size": 256, "epochs": 1},
    ),
}
#: Below a million rows the paper's shares would leave too few to calibrate and to select from.
SMALL, SMALL_SHARES = 1_000_000, (0.6, 0.1, 0.1, 0.2)
#: What two CPU cores do in two minutes.
QUICK: dict[str, dict[str, int]] = {
    "criteo": {"rows": 80_000, "models": 8, "steps": 600},
    "avazu": {"rows": 60_000, "models": 4, "steps": 120},
}


@dataclass
class Stages:
    """Tells what is being done, and keeps how long each part took."""

    say: Callable[[str], None] = lambda text: None
    seconds: dict[str, float] = field(default_factory=dict)
    _since: float = field(default_factory=time.perf_counter)

    def done(self, name: str, text: str) -> None:
        """The part that ends here."""
        now = time.perf_counter()
        self.seconds[name] = round(now - self._since, 1)
        self._since = now
        self.say(f"{text} ({self.seconds[name]:.1f} s)")


def run(
    name: str,
    *,
    data: str | os.PathLike[str] | None = None,
    encoded: str | os.PathLike[str] | None = None,
    rows: int | None = None,
    models: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    rate: float | None = None,
    seed: int = 0,
    vocabulary: str = "training",
    device: str | None = None,
    precision: str = "tf32",
    checkpoint: str | os.PathLike[str] | None = None,
    bad_share: float = 0.01,
    say: Callable[[str], None] = lambda text: None,
    reading: Reading = lambda: nullcontext(lambda rows: None),
    training_progress: Any = None,
    progress: Callable[[int], Callable[[Iterator[Any]], Iterable[Any]]] = lambda total: iter,
) -> ClickTables:
    """One experiment, from rows to tables.

    Parameters
    ----------
    name
        ``"criteo"`` or ``"avazu"``.
    data
        The log; without one a world of that shape is drawn, whose true probabilities are known.
    encoded
        Where to keep the encoded log, which is read in its place the next time.
    rows, models, epochs
        15 million (Avazu: 10), 80 and 2 (1), as in the paper. Of a log 1.85 (1.77) times as many rows are read, for the
        model that shifts the test rows is trained on rows of its own; where it has fewer, `rows` are fewer too.
    steps
        At least so many, by more epochs where rows are few.
    rate
        Of clicks in the world.
    vocabulary
        ``"training"``: values that no training row has are unknown; ``"all"``: every value of the log is known.
    """
    try:
        import torch
    except ModuleNotFoundError:
        raise UncurseError("this experiment trains networks and needs PyTorch: pip install 'uncurse[deep]'") from None
    from .. import deep
    from ..deep.inputs import pick_device
    from ..deep.training import PRECISIONS

    setting = SETTINGS[check_choice("experiment", name, tuple(SETTINGS))]
    wanted = check_count(setting.rows if rows is None else rows, "rows")
    count = check_count(setting.models if models is None else models, "models")
    if count < 2:
        raise UncurseError(f"models={count}; a served model and its replica are two at least")
    check_choice("vocabulary", vocabulary, ("training", "all"))
    check_choice("precision", precision, PRECISIONS)
    where = pick_device(device)
    lines = None if data is None else _count(data, setting, wanted)
    there = wanted if lines is None else min(wanted, int(lines / (1 + setting.shares[0])))
    if there < SMALL:
        setting = replace(setting, shares=SMALL_SHARES)
    stages = Stages(say)
    if device is None and where.type == "cpu":
        _check_time(setting, there, count, epochs)
    if data is None or lines is None:
        clicks, split = _draw(setting, wanted, rate, seed, where)
        if vocabulary == "training":
            hide_unknown(clicks, np.flatnonzero(split == _TRAIN))
        what = f"drew {len(split):,} rows of a world"
    else:
        if rate is not None:
            raise UncurseError("a rate is for a world; the clicks of a log are what they are")
        total = min(lines, int(wanted * (1 + setting.shares[0])))
        split = _split(setting, int(total / (1 + setting.shares[0])), total, seed)
        log = _encoded(setting, data, encoded, split, vocabulary, bad_share, reading)
        clicks, split = log.clicks().to(where), split[: len(log)]
        what = f"read {len(clicks):,} rows, {log.bad_lines:,} bad lines"
    stages.done("rows", f"{what}, {sum(clicks.sizes):,} values of categories")
    _check_parts(clicks, split)
    plan = {**setting.training, **({} if epochs is None else {"epochs": epochs})}
    if steps is not None:
        per_epoch = -(-int((split == _TRAIN).sum()) // plan["batch_size"])
        plan["epochs"] = max(plan["epochs"], -(-steps // per_epoch))
    shift = np.resize(np.flatnonzero(split == _OTHER), int((split == _TRAIN).sum()))
    fit = deep.train_replicas(
        getattr(deep, setting.model)(),
        clicks,
        n_replicas=count + 1,
        rows=[np.flatnonzero(split == _TRAIN)] * count + [shift],
        seed=seed,
        device=where,
        precision=precision,
        checkpoint=checkpoint,
        progress=training_progress,
        **plan,
    )
    losses = fit.losses[:, :count]
    went_on = f", from step {fit.began:,} on as {checkpoint} had it" if fit.began else ""
    stages.done("train", f"trained {count} models and the one that shifts{went_on}, log loss {losses[-1].mean():.4f}")
    scored, kept = _score(setting, fit, clicks, split, seed)
    del fit
    stages.done("score", f"scored, {kept:.1%} of the test rows stay after the shift")
    about = {
        "data": "a world" if data is None else Path(data).name,
        "rows": int((split != _OTHER).sum()),
        "rows of the model that shifts": int((split == _OTHER).sum()),
        "shares": list(setting.shares),
        "vocabulary": vocabulary,
        "click rate": round(float(clicks.label.float().mean()), 4),
        "model": setting.model,
        "training": {**plan, "precision": precision if where.type == "cuda" or precision == "bf16" else "float32"},
        "training log loss by epoch": [round(float(x), 4) for x in losses.mean(1)],
        "device": torch.cuda.get_device_name(where) if where.type == "cuda" else "cpu",
        "seed": seed,
    }
    tables = measure(name, scored, progress=progress(len(groups_of(count))), about=about)
    stages.done("measure", "measured")
    tables.about["seconds"] = stages.seconds
    return tables


_CPU_SPEED = {"criteo": 40_000, "avazu": 8_000}  # rows a second of all models, on two cores
_TRAIN, _LABELLED, _POOL, _TEST, _OTHER = range(5)


def _split(setting: Setting, rows: int, total: int, seed: int) -> NDArray[np.int8]:
    """Which part each of the first `total` rows is in; those after `rows` are for the model that shifts."""
    u = np.random.default_rng([seed, 1]).random(total, dtype=np.float32)
    split = np.searchsorted(np.cumsum(setting.shares[:3]), u, side="right").astype(np.int8)
    split[rows:] = _OTHER
    return split


def _draw(setting: Setting, rows: int, rate: float | None, seed: int, device: Any) -> tuple[Clicks, NDArray[np.int8]]:
    """Rows of a world on the device, and the part that each is in."""
    from ..deep.worlds import World

    split = _split(setting, rows, int(rows * (1 + setting.shares[0])), seed)
    make = World.criteo if setting.name == "criteo" else World.avazu
    options: dict[str, Any] = {} if rate is None else {"rate": rate}
    world = make(**options, scale=min(1.0, rows / SETTINGS[setting.name].rows), seed=seed)
    return world.draw(len(split), seed=seed + 1, device=device), split


def _encoded(
    setting: Setting,
    data: str | os.PathLike[str],
    kept: str | os.PathLike[str] | None,
    split: NDArray[np.int8],
    vocabulary: str,
    bad_share: float,
    reading: Reading,
) -> Encoded:
    """The log, encoded for this split now, or the last time if it was kept."""
    from .logs import Encoded, encode

    if kept is not None and Path(kept).exists():
        log = Encoded.open(kept)
        _check_encoded(log, data, setting, vocabulary, split)
        return log
    with ExitStack() as stack:
        if kept is None:  # mapped, it outlives its name
            kept = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "log.clicks"
        return encode(
            data,
            kept,
            kind=setting.name,
            rows=len(split),
            training=lambda start, stop: split[start:stop] == _TRAIN,
            vocabulary=vocabulary,
            bad_share=bad_share,
            progress=stack.enter_context(reading()),
        )


def _count(data: str | os.PathLike[str], setting: Setting, rows: int) -> int:
    from .logs import MAGIC, count_lines

    try:
        with open(data, "rb") as stream:
            if stream.read(len(MAGIC)) == MAGIC:
                raise UncurseError(f"{data} is an encoded log; pass the log itself, and this file as --encoded")
    except OSError as error:
        raise UncurseError(f"cannot read {data}: {error.strerror}") from None
    header = setting.name == "avazu"
    lines = count_lines(data, int(rows * 2) + header) - header
    if lines < 1:
        raise UncurseError(f"{data} holds no rows; pass {setting.name.capitalize()}'s log")
    return lines


def _check_time(setting: Setting, rows: int, models: int, epochs: int | None) -> None:
    """Nobody waits for half a day by accident."""
    work = rows * setting.shares[0] * (epochs or setting.training["epochs"]) * (models + 1)
    hours = work / _CPU_SPEED[setting.name] / 3600
    if hours > 12:
        raise UncurseError(
            f"there is no GPU here, and {models + 1} models on {rows:,} rows would take some {hours:.0f} hours on a "
            "CPU; use --quick, fewer --rows or --models, or --device cpu if you mean it"
        )


def _check_parts(clicks: Clicks, split: NDArray[np.int8]) -> None:
    """Told before the training, not after it."""
    label = clicks.label.cpu().numpy()
    for part, name in enumerate(("training", "labelled", "pool", "test", "shifting")):
        clicked = int(label[split == part].sum())
        if not clicked:
            raise UncurseError(
                f"of {len(split):,} rows {int((split == part).sum())} are {name} rows, with {clicked} clicks among "
                "them: too few; take more rows"
            )


def _check_encoded(log: Any, data: str | os.PathLike[str], setting: Setting, vocabulary: str, split: Any) -> None:
    """Encoded from this log for these very rows: codes follow from which of them are training rows."""
    wanted: dict[str, Any] = {"kind": setting.name, "source_bytes": Path(data).stat().st_size, "vocabulary": vocabulary}
    if log.rows > len(split):
        wanted["rows"] = len(split)
    elif vocabulary == "training":
        wanted["training_crc"] = zlib.crc32((split[: log.rows] == _TRAIN).tobytes())
    for name, value in wanted.items():
        if getattr(log, name) != value:
            raise UncurseError(
                f"{log.path} was encoded from {log.source} for something else ({name} is {getattr(log, name)!r}, here "
                f"{value!r}; was it another log, --seed or --rows?); remove it, or name another file"
            )


def hide_unknown(clicks: Clicks, training: NDArray[np.intp]) -> None:
    """Values that no training row has become the code of unknown ones, 1."""
    import torch

    rows = torch.from_numpy(training).to(clicks.codes.device)
    for f, size in enumerate(clicks.sizes):
        codes = clicks.codes[:, f]
        known = torch.zeros(size, dtype=torch.bool, device=codes.device)
        known[codes[rows].long()] = True
        known[:2] = True
        codes.masked_fill_(~known[codes.long()], 1)


def _score(setting: Setting, fit: Any, clicks: Clicks, split: NDArray[np.int8], seed: int) -> tuple[Scored, float]:
    """Logits of all models on the three sets; test and pool thinned by the model that was trained elsewhere."""
    import torch

    rng = np.random.default_rng([seed, 2])
    parts, thinned = {}, {}
    for part in (_LABELLED, _POOL, _TEST):
        rows = np.flatnonzero(split == part)
        chosen = clicks.take(torch.from_numpy(rows).to(clicks.label.device))
        logits = fit.logits(chosen)
        labels = chosen.label.cpu().numpy()
        truth = None if chosen.truth is None else chosen.truth.cpu().numpy()
        stays = np.ones(len(rows), bool)
        if part != _LABELLED:
            stays = rng.random(len(rows)) < setting.keep(logistic(logits[:, -1]))
        thinned[part] = stays.mean()
        parts[part] = logits[stays, :-1], labels[stays], None if truth is None else truth[stays]
    (labelled, labelled_y, _), (pool, _, _), (test, test_y, truth) = (parts[p] for p in (_LABELLED, _POOL, _TEST))
    return Scored(labelled, labelled_y, pool, test, test_y, truth), float(thinned[_TEST])


__all__ = ["QUICK", "SETTINGS", "Setting", "Stages", "hide_unknown", "run"]
