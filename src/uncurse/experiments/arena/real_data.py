"""Real logs, split honestly: what a model is trained on, what calibrates it, and what judges it share no row.

MovieLens-1M, three ways; a label is a rating of 4 or 5.

- ``movielens-time``: one timeline for all. Models are trained on the first 70% of ratings, the next 15% are the
  labelled rows, the last 15% the test. Nothing of the future is used, so half of the test rows are of users whom no
  model has met.
- ``movielens-users``: of every user's own ratings the first 60%, the next 20%, the last 20%. Models know every user,
  and also what *other* users rated later: the usual "leave the last out", which leaks no label, but time.
- ``movielens-shift``: the paper's protocol. Rows at random, 50% to train, 15% labelled, 20% test, of which a row stays
  with probability 1 − p by a model trained on the other 15%. Here nothing drifts; in the first two the rate of labels
  falls with time, which no method can know. But the model that thins has seen rows that the served ones have not, so
  at the same scores, of all six, the test's rate is lower than that of labelled rows: that too no method can know.

Candidates of a user are what was rated in the test period, as only those have labels. Every draw trains anew: on four
fifths of the training rows, with the labels of four fifths of the users; the third splits anew too.

Open Bandit: the log of the uniformly random policy, so clicks are those of any item, unbiased. Four parts at random,
with clicks spread evenly: two train, one is labelled, one is the test, and every part is once the test. Every draw
splits and trains anew.

The pool is the test rows' scores, without labels. Training sees no labelled or test row; codes of users and items are
made of all rows, and know no label.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..._types import Array
from ...errors import UncurseError
from ...links import logistic
from ...validation import check_choice
from .real_files import codes, numbers, read
from .real_models import Factorisation, Ints, Side, bagged, factorised
from .worlds import Draw, Rng

LIKED = 4  # a rating of a label
FEWEST = 20  # test ratings of a user whose best k are looked at
_KEPT = 0.8  # of the training rows, and of labelled users
_PARTS = 4
_THINNED = (0.5, 0.65, 0.8)  # where the training rows end, those of the model elsewhere, and the labelled ones


@dataclass(frozen=True)
class Selection:
    """The top share of all test rows, or the k best of each user with enough of them."""

    alpha: float | None = None
    k: int | None = None

    @property
    def name(self) -> str:
        """As in a table's head."""
        return f"best {self.k}" if self.alpha is None else f"{100 * self.alpha:g}%"


@dataclass(frozen=True)
class Held:
    """One split: what methods see, with test labels for the truth; and whose each test row is."""

    draw: Draw
    units: Ints


@dataclass(frozen=True)
class Source:
    """A log and a way to split it; `count` units, users or rows, are what the bootstrap draws."""

    name: str
    text: str
    split: Callable[[Rng], list[Held]]
    selections: tuple[Selection, ...]
    count: int
    unit: str
    replications: int  # by default


def open_real(name: str, folder: str | Path) -> dict[str, Source]:
    """The splits of a log by name, read from its folder."""
    check_choice("real", name, tuple(_READERS))
    place = Path(folder)
    if not place.is_dir():
        raise UncurseError(f"there is no folder {folder}; name the one with {_FILES[name]}")
    return {source.name: source for source in _READERS[name](place)}


def _held(scores: Callable[[Ints], Array], labels: NDArray[np.bool_], labelled: Ints, test: Ints, units: Ints) -> Held:
    """Pool and test are the same rows: methods see their scores, the labels only judge."""
    made = scores(np.concatenate([labelled, test]))
    there = made[len(labelled) :]
    unknown = np.full(len(test), np.nan)  # no oracle here
    truth = labels[test].astype(np.float64)
    return Held(Draw(made[: len(labelled)], labels[labelled].astype(np.float64), there, unknown, there, truth), units)


def _both_kinds(labels: NDArray[np.bool_], rows: Ints, what: str) -> None:
    liked = int(labels[rows].sum())
    if not 0 < liked < len(rows):
        raise UncurseError(f"of {len(rows)} {what} rows {liked} are rated {LIKED} or more; take a longer log")


def _counts(labels: NDArray[np.bool_], *parts: Ints) -> str:
    told = (f"{len(rows):,} ({100 * labels[rows].mean():.1f}% liked)" for rows in parts)
    return f"Rows: {', '.join(told)}."


# ---------------------------------------------------------------------------- MovieLens

_RATINGS = (*(Selection(k=k) for k in (1, 2, 5)), *(Selection(alpha) for alpha in (0.01, 0.02, 0.05, 0.1, 1.0)))


@dataclass(frozen=True)
class Ratings:
    """All ratings."""

    users: Side
    items: Side
    labels: NDArray[np.bool_]

    def held(self, train: Ints, labelled: Ints, test: Ints, rng: Rng) -> list[Held]:
        """Six models anew, of other rows, and other labelled users."""
        user = self.users.codes[:, 0]
        train = train[rng.random(len(train)) < _KEPT]
        labelled = labelled[(rng.random(int(user.max()) + 1) < _KEPT)[user[labelled]]]
        for what, rows in (("training", train), ("labelled", labelled), ("test", test)):
            _both_kinds(self.labels, rows, what)

        def scores(rows: Ints) -> Array:
            return factorised(self.users, self.items, self.labels, train, rows, rng)

        return [_held(scores, self.labels, labelled, test, user[test])]


@dataclass(frozen=True)
class InTime(Ratings):
    """Training rows come before labelled rows, and these before the test."""

    parts: tuple[Ints, Ints, Ints]

    def __call__(self, rng: Rng) -> list[Held]:
        """One split."""
        return self.held(*self.parts, rng)


@dataclass(frozen=True)
class Thinned(Ratings):
    """Rows at random; those that a model trained elsewhere likes are rarer in the test."""

    def __call__(self, rng: Rng) -> list[Held]:
        """One split."""
        rows = rng.permutation(len(self.labels))
        train, elsewhere, labelled, test = np.split(rows, [int(share * len(rows)) for share in _THINNED])
        _both_kinds(self.labels, elsewhere, "other")
        model = Factorisation(self.users, self.items).fit(self.labels, elsewhere, rng)
        stays = rng.random(len(test)) < 1 - logistic(model.scores(test))
        return self.held(train, labelled, test[stays], rng)


def _movielens(folder: Path) -> list[Source]:
    log = read(folder, "ml-1m.inter", "\t", ("user_id", "item_id", "rating", "timestamp"))
    items = read(folder, "ml-1m.item", "\t", ("item_id", "genre", "release_year"))
    users = read(folder, "ml-1m.user", "\t", ("user_id", "age", "gender", "occupation"))
    time, liked = numbers(log, "timestamp"), numbers(log, "rating") >= LIKED
    rows = log.join(items.unique("item_id", keep="first"), on="item_id", how="left", maintain_order="left")
    rows = rows.join(users.unique("user_id", keep="first"), on="user_id", how="left", maintain_order="left")
    user = codes(rows, "user_id")
    sides = (
        Side.of(user, codes(rows, "age", "gender"), codes(rows, "occupation")),
        Side.of(codes(rows, "item_id"), codes(rows, "genre"), codes(rows, "release_year")),
    )
    count = int(user.max()) + 1
    sources = []
    for name, order, passed, ends, text in (
        ("movielens-time", *_timeline(time), (0.7, 0.85), "One timeline: the first 70% train, 15% labelled, 15% test."),
        ("movielens-users", *_timelines(time, user), (0.6, 0.8), "Of each user the first 60%, the next 20%, the last."),
    ):
        parts = order[passed < ends[0]], order[(passed >= ends[0]) & (passed < ends[1])], order[passed >= ends[1]]
        split = InTime(*sides, liked, parts)
        sources.append(Source(name, f"{text} {_counts(liked, *parts)}", split, _RATINGS, count, "users", 5))
    text = (
        f"{len(liked):,} rows at random: 50% train, 15% labelled, 20% test, thinned by 1 − p of a model of other rows."
    )
    return [*sources, Source("movielens-shift", text, Thinned(*sides, liked), _RATINGS, count, "users", 5)]


def _timeline(time: Array) -> tuple[Ints, Array]:
    """Rows by time, and the share of them before each."""
    return np.argsort(time, kind="stable"), (np.arange(len(time)) + 0.5) / len(time)


def _timelines(time: Array, user: Ints) -> tuple[Ints, Array]:
    """Rows by user and time, and the share of the user's rows before each."""
    order = np.lexsort((time, user))
    owner = user[order]
    return order, (np.arange(len(time)) - np.searchsorted(owner, owner) + 0.5) / np.bincount(owner)[owner]


# ---------------------------------------------------------------------------- Open Bandit

_SHARES = tuple(Selection(alpha) for alpha in (0.05, 0.1, 0.2, 0.5, 1.0))


@dataclass(frozen=True)
class Clicks:
    """All rows of the random policy, as features."""

    features: Array
    clicks: NDArray[np.bool_]

    def __call__(self, rng: Rng) -> list[Held]:
        """Four splits, in which every row is once a test row."""
        part = np.empty(len(self.clicks), np.intp)
        for kind in (False, True):
            rows = rng.permutation(np.flatnonzero(self.clicks == kind))
            part[rows] = (np.arange(len(rows)) + rng.integers(_PARTS)) % _PARTS
        return [self._split(part, test, rng) for test in range(_PARTS)]

    def _split(self, part: Ints, last: int, rng: Rng) -> Held:
        turn = (part - last) % _PARTS
        test, labelled, train = (np.flatnonzero(turn == 0), np.flatnonzero(turn == 1), np.flatnonzero(turn > 1))

        def scores(rows: Ints) -> Array:
            return bagged(self.features, self.clicks, train, rows, rng)

        return _held(scores, self.clicks, labelled, test, test)


def _open_bandit(folder: Path) -> list[Source]:
    hashed = tuple(f"user_feature_{i}" for i in range(4))
    log = read(folder, "random_all_all.csv", ",", ("item_id", "position", "click", *hashed))
    context = read(folder, "random_all_item_context.csv", ",", ("item_id", *(f"item_feature_{i}" for i in range(4))))
    rows = log.join(context.unique("item_id", keep="first"), on="item_id", how="left", maintain_order="left")
    clicks = numbers(log, "click") > 0
    if clicks.sum() < 2 * _PARTS:
        raise UncurseError(
            f"{folder}: {clicks.sum()} clicks in {len(clicks)} rows are too few to split; take a longer log"
        )
    known = (*hashed, "item_id", "position", *(f"item_feature_{i}" for i in (1, 2, 3)))
    columns = [np.eye(int(code.max()) + 1)[code] for code in (codes(rows, name) for name in known)]
    features = np.column_stack([*columns, numbers(rows, "item_feature_0")])
    text = (
        f"The uniformly random policy: {len(clicks):,} rows, {clicks.sum()} clicks. Half train, a quarter is labelled, "
        "a quarter the test, in turn. So few clicks tell little: look at the errors."
    )
    return [Source("openbandit", text, Clicks(features, clicks), _SHARES, len(clicks), "rows", 20)]


_READERS: dict[str, Callable[[Path], list[Source]]] = {"movielens": _movielens, "openbandit": _open_bandit}
REAL = tuple(_READERS)
_FILES = {
    "movielens": "ml-1m.inter.gz, ml-1m.item.gz and ml-1m.user.gz",
    "openbandit": "random_all_all.csv.gz and random_all_item_context.csv.gz",
}

__all__ = ["FEWEST", "REAL", "Held", "Selection", "Source", "open_real"]
