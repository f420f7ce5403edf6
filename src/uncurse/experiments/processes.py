"""Run the tasks of an experiment in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

Progress = Callable[[int], Callable[[Iterator[Any]], Iterable[Any]]]


def in_processes(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    processes: int | None = None,
    progress: Progress = lambda total: iter,
) -> list[Any]:
    """Call a function with the arguments of each task, in one process per core; results keep the order of the tasks.

    The function is one at the top level of a module; large arrays are shared, not copied. With one process everything
    runs in this one. `progress` wraps an iterator over results, given their number.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    workers = processes or (len(affinity(0)) if affinity else os.cpu_count() or 1)
    bar = progress(len(tasks))
    if min(workers, len(tasks)) < 2:
        return list(bar(function(*task) for task in tasks))
    from joblib import Parallel, delayed, parallel_config

    with parallel_config("loky", n_jobs=min(workers, len(tasks)), inner_max_num_threads=1):
        return list(bar(Parallel(return_as="generator")(delayed(function)(*task) for task in tasks)))
