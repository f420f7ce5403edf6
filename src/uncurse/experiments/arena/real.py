"""The arena on real logs, where labels judge instead of the truth.

    uncurse arena --real movielens --data FOLDER              # or, from Python:
    found = run("movielens", "ml1m", ["vanilla", "platt", "Tower"])

How each log is split is told in `real_data`. An error is (Σf − Σy)/Σy over the selected test rows, whose labels are
noisy, and their noise is common to all methods: so each is also compared with one of them, `against`, pairwise.

Standard errors have two parts: of labels, by a bootstrap over users (over rows where there are none), the same draws
for all methods and replications; and of training, by the spread over replications. Replications share most of their
rows, so they do not tell how the labelled rows themselves could have come out differently.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..._types import Array, Float
from ...debias.intervals import normal_quantile
from ...errors import UncurseError
from ...metrics.selection import top_k, top_share
from ...threads import cores, one_blas_thread
from .methods import METHODS, ORACLE, Method
from .real_data import FEWEST, Held, Selection, Source, open_real
from .real_tables import Measured, Real, Sums, failures, summarise
from .run import LEVEL, pick

AGAINST = "vanilla"
_DRAWS = 400  # of the bootstrap


def run(
    name: str,
    data: str | Path,
    methods: Sequence[str] | None = None,
    replications: int | None = None,
    seed: int = 0,
    *,
    worlds: Sequence[str] | None = None,
    against: str = AGAINST,
    processes: int | None = None,
    progress: Callable[[int], Callable[[Iterator[Any]], Iterable[Any]]] = lambda total: iter,
) -> Real:
    """Split a log and train on it `replications` times, fit every method to each, and judge by the test labels.

    Parameters
    ----------
    name, data
        ``"movielens"`` or ``"openbandit"``, and the folder of its files.
    methods
        Names of `METHODS`; by default all but the oracle, which needs a truth.
    replications
        By default 5 of each split of MovieLens and 20 of Open Bandit.
    worlds
        Splits, such as ``"movielens-time"``; by default all of that log.
    against
        The method that the others are compared with.
    """
    if replications is not None and replications < 2:
        raise UncurseError(f"replications={replications}; a standard error needs at least 2")
    known = {key: one for key, one in METHODS.items() if key != ORACLE}
    (base,) = _one(against, known)
    chosen = pick(methods, known, "method")
    if base not in chosen:
        chosen.insert(0, base)
    sources = pick(worlds, open_real(name, data), "world")
    tasks = [(one, number) for one in sources for number in range(replications or one.replications)]
    made = _in_processes(
        [(one, number, seed, chosen) for one, number in tasks],
        cores() if processes is None else processes,
        progress(len(tasks)),
    )
    found = {one.name: [m for (of, _), m in zip(tasks, made, strict=True) if of is one] for one in sources}
    failed = {key: failures(one) for key, one in found.items()}
    for key, reasons in failed.items():
        if base.name in reasons:
            raise UncurseError(f"{base.name}, which the others are compared with, fails in {key}: {reasons[base.name]}")
    return Real(
        tuple(cell for one in sources for cell in summarise(one, found[one.name], chosen, failed[one.name], base.name)),
        {one.name: one.text for one in sources},
        {one.name: one.kind for one in chosen},
        {one.name: tuple(selection.name for selection in one.selections) for one in sources},
        {key: tuple(np.mean([m.coins for m in one], axis=0).tolist()) for key, one in found.items()},
        {key: tuple(np.mean([m.observed[:, 0] for m in one], axis=0).tolist()) for key, one in found.items()},
        {key: len(one) for key, one in found.items()},
        failed,
        base.name,
        seed,
    )


def _one(name: str, known: Mapping[str, Method]) -> list[Method]:
    found = pick([name], known, "against")
    if len(found) > 1:
        raise UncurseError(f"against={name!r} are several methods; name one: {', '.join(m.name for m in found)}")
    return found


def _in_processes(tasks: list[Any], workers: int, progress: Callable[[Iterator[Any]], Iterable[Any]]) -> list[Measured]:
    if min(workers, len(tasks)) < 2:
        return list(progress(measure(*task) for task in tasks))
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
        return list(progress(Parallel(return_as="generator")(delayed(measure)(*task) for task in tasks)))


# ---------------------------------------------------------------------------- one replication


def measure(source: Source, number: int, seed: int, methods: Sequence[Method]) -> Measured:
    """One replication: its splits, with every method fitted in each; sums are over all of them."""
    with one_blas_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a fit has to say of its data, hundreds of times
        splits = source.split(np.random.default_rng([seed, number, *source.name.encode()]))
        chosen = [[_rows(held, selection) for selection in source.selections] for held in splits]
        weights = _bootstrap(source.count, seed)

        def total(values: list[Array]) -> Array:
            sums = np.zeros((len(source.selections), source.count))
            for held, rows, value in zip(splits, chosen, values, strict=True):
                for i, mask in enumerate(rows):
                    sums[i] += np.bincount(held.units[mask], value[mask], source.count)
            return np.asarray(sums @ weights)

        labels = [_floats(held.draw.truth) for held in splits]
        observed = total(labels)
        selected = total([np.ones(len(y)) for y in labels])[:, 0]
        found = Measured(observed, np.sqrt((1 - observed[:, 0] / selected) / np.maximum(observed[:, 0], 1)))
        for one in methods:
            try:
                fits = [fit for held in splits if (fit := one.fit(held.draw)) is not None]
                if len(fits) < len(splits):
                    raise UncurseError("does not apply to these rows")
                predicted = [_floats(fit.predict(held.draw.test)) for fit, held in zip(fits, splits, strict=True)]
                ends = [edges for fit in fits if (edges := _ends(fit.interval, source.selections)) is not None]
            except UncurseError as error:
                found.failed[one.name] = str(error)
                continue
            kept = _kept(ends, predicted, chosen, observed[:, 0]) if ends else None
            found.methods[one.name] = Sums(total(predicted), kept)
    return found


def _floats(values: Float) -> Array:
    return values.astype(np.float64)


def _rows(held: Held, selection: Selection) -> NDArray[np.bool_]:
    """Which test rows are selected by the served score."""
    served = held.draw.test[:, 0]
    if selection.alpha is not None:
        return top_share(served, selection.alpha)
    assert selection.k is not None
    enough = np.bincount(held.units)[held.units] >= FEWEST
    if not enough.any():
        raise UncurseError(f"no user has {FEWEST} test ratings, and the best are of those; take the whole log")
    chosen = np.zeros(len(served), bool)
    chosen[enough] = top_k(served[enough], held.units[enough], k=selection.k)
    return chosen


@lru_cache(maxsize=1)
def _bootstrap(units: int, seed: int) -> Array:
    """(units, 1 + draws): how often each unit is drawn; the first column is the log itself."""
    drawn = np.random.default_rng([seed, units]).multinomial(units, np.full(units, 1 / units), size=_DRAWS)
    return np.concatenate([np.ones((1, units)), drawn]).T


Interval = Callable[[float, float], tuple[float, float]]


def _ends(interval: Interval | None, selections: Sequence[Selection]) -> Array | None:
    """Low and high by selection; an interval is for the top share of a pool, so nan for the best of users."""
    if interval is None:
        return None
    unknown = (np.nan, np.nan)
    return np.array([unknown if s.alpha is None else interval(s.alpha, LEVEL) for s in selections])


def _kept(ends: list[Array], predicted: list[Array], chosen: list[list[NDArray[np.bool_]]], observed: Array) -> Array:
    """Whether Σy is where an interval puts Σp, both with their noise; that of labels is Σf(1 − f)."""
    middle, variance = np.zeros(len(observed)), np.zeros(len(observed))
    for edges, f, rows in zip(ends, predicted, chosen, strict=True):
        sums = np.array([f[mask].sum() for mask in rows])
        high, low = sums / (1 + edges[:, 0]), sums / (1 + edges[:, 1])
        middle += (low + high) / 2
        noise = np.array([(f[mask] * (1 - f[mask])).sum() for mask in rows])
        variance += np.square((high - low) / 2) + normal_quantile(LEVEL) ** 2 * noise
    inside = (np.abs(observed - middle) <= np.sqrt(variance)).astype(np.float64)
    return np.where(np.isnan(middle), np.nan, inside)


__all__ = ["AGAINST", "measure", "run"]
