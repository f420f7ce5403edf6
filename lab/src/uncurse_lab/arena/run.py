"""Run worlds and methods against each other."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.errors import UncurseError
from uncurse.metrics.selection import count_of_share
from uncurse.threads import one_blas_thread
from uncurse.validation import check_share

from ..processes import Progress, in_processes
from .methods import METHODS, ORACLE, ArenaMethod, FittedMethod
from .results import Arena, summarize
from .worlds import WORLDS, ArenaWorld, Draw

ALPHAS = (0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
REPLICATIONS = 100
_LEVEL = 0.9  # of the intervals

#: Errors of a method at each α, and whether its intervals held; or why it does not apply.
Judged = tuple[Array, NDArray[np.bool_] | None] | str
Rows = NDArray[np.intp]
Item = TypeVar("Item")


def run(
    worlds: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    replications: int = REPLICATIONS,
    seed: int = 0,
    *,
    alphas: Sequence[float] = ALPHAS,
    processes: int | None = None,
    progress: Callable[[int], Progress] = lambda total: iter,
) -> Arena:
    """Draw every world `replications` times, fit every method to each draw, and judge it by the truth.

    The random numbers of a replication depend on the seed, the world's name and the replication's number alone.
    `worlds` and `methods` are names of `WORLDS` and `METHODS`, by default all that can be drawn here. ``"labels"`` is
    replica calibration with every S. The oracle always runs. `alphas` are shares that are selected by the served
    score; in a world of requests, from each request. There is one process for each core, unless `processes` says how
    many. `progress` is called with the number of draws and returns a function that passes an iterator of them on, such
    as ``lambda total: lambda draws: tqdm(draws, total=total)``.

    Examples
    --------
    >>> arena = run(["few-labels"], ["vanilla", "platt"], replications=2, processes=1)
    >>> arena.cell("few-labels", "vanilla", 0.01).bias > 0.2
    True
    """
    if replications < 2:
        raise UncurseError(f"replications={replications}; a standard error needs at least 2")
    alphas = tuple(check_share(alpha) for alpha in alphas)
    chosen = pick(worlds, WORLDS, "world")
    left_out = {one.name: why for one in chosen if one.lacks is not None and (why := one.lacks()) is not None}
    if left_out and worlds is not None:
        name, why = next(iter(left_out.items()))
        raise UncurseError(f"the world {name} {why}")
    chosen = [one for one in chosen if one.name not in left_out]
    fitted = pick(methods, METHODS, "method")
    if METHODS[ORACLE] not in fitted:
        fitted.append(METHODS[ORACLE])
    tasks = [(one, number, seed, fitted, alphas) for one in chosen for number in range(replications)]
    made = in_processes(replicate, tasks, processes, progress)
    cells = []
    for i, one in enumerate(chosen):
        found = made[i * replications : (i + 1) * replications]
        oracle = np.stack([each[ORACLE][0] for each in found])
        for name in (m.name for m in fitted):
            reasons = [each[name] for each in found if isinstance(each[name], str)]
            if reasons:
                left_out[f"{name} in {one.name}"] = f"{len(reasons)} of {replications} draws: {reasons[0]}"
                continue
            errors, held = (np.array([each[name][k] for each in found]) for k in range(2))
            for a, alpha in enumerate(alphas):
                if np.isfinite(errors[0, a]):
                    covered = None if held[0] is None else held[:, a]
                    cells.append(summarize((one.name, name, alpha), errors[:, a], oracle[:, a], covered))
    texts = {one.name: one.text for one in chosen}
    serves_one = {m.name: m.serves_one for m in fitted}
    return Arena(tuple(cells), texts, serves_one, alphas, replications, seed, left_out)


def pick(names: Sequence[str] | None, known: Mapping[str, Item], what: str) -> list[Item]:
    """The named ones in the order of `known`, all where none is named; a family's name is all its members."""
    wanted = set(known) if names is None else set()
    for name in names or ():
        folded = name.casefold()
        found = [k for k in known if folded in (k.casefold(), k.casefold().split(" s=")[0])]
        if not found:
            raise UncurseError(f"{what}={name!r} is unknown; choose from {', '.join(known)}")
        wanted.update(found)
    return [item for name, item in known.items() if name in wanted]


def replicate(
    world: ArenaWorld, number: int, seed: int, methods: Sequence[ArenaMethod], alphas: Sequence[float]
) -> dict[str, Judged]:
    """Draw a world once and judge each method by it."""
    found: dict[str, Judged] = {}
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a fit has to say of its data, hundreds of times
        with _failing(f"the world {world.name} fails in replication {number}"):
            draw = world.draw(world.stream(seed, number))
            draw.check()
        selected = _selected(draw, alphas)
        for one in methods:
            with _failing(f"{one.name} fails in {world.name}, replication {number}"):
                fitted = one.fit(draw)
                found[one.name] = fitted if isinstance(fitted, str) else _judge(fitted, draw, selected, alphas)
    return found


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Raise an error that says what failed, with the type of the error unless it is one of the library's."""
    try:
        yield
    except Exception as error:
        why = str(error) if isinstance(error, UncurseError) else f"{type(error).__name__}: {error}"
        raise UncurseError(f"{what}: {why}") from error


def _selected(draw: Draw, alphas: Sequence[float]) -> list[Rows]:
    """Rows that are kept at each α, of requests the best of each; none where that is less than one of each."""
    served = -draw.test[:, 0]
    if draw.requests is None:
        order = np.argsort(served, kind="stable")
        return [order[: count_of_share(alpha, len(order))] for alpha in alphas]
    by_request = np.lexsort((served, draw.requests)).reshape(draw.requests.max() + 1, -1)
    return [by_request[:, : int(round(alpha * by_request.shape[1], 6))].ravel() for alpha in alphas]


def _judge(fitted: FittedMethod, draw: Draw, selected: list[Rows], alphas: Sequence[float]) -> Judged:
    predicted = np.asarray(fitted.predict(draw.test))
    if predicted.shape != draw.truth.shape or not ((predicted >= 0) & (predicted <= 1)).all():
        raise UncurseError(
            f"its predictions have shape {predicted.shape} and lie between {predicted.min():.3g} and "
            f"{predicted.max():.3g}; return one probability for each of the {len(draw.truth):,} rows"
        )
    # An α that selects no row has no error: 0 / 0.
    with np.errstate(invalid="ignore"):
        errors = np.array([predicted[rows].sum() / draw.truth[rows].sum() - 1 for rows in selected])
    # An interval is for the top share of a pool, which the best of requests are not.
    if fitted.interval is None or draw.requests is not None:
        return errors, None
    ends = np.array([fitted.interval(alpha, _LEVEL) for alpha in alphas])
    if ends.shape != (len(alphas), 2) or (ends[:, 0] > ends[:, 1]).any():
        raise UncurseError("its interval is not a pair (low, high) for each α; return the lower bound first")
    return errors, (ends[:, 0] <= errors) & (errors <= ends[:, 1])
