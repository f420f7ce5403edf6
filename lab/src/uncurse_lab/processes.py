"""Run the tasks of an experiment in parallel."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

#: Wraps an iterator over results to show progress.
Progress = Callable[[Iterator[Any]], Iterable[Any]]


def in_processes(
    function: Callable[..., Any],
    tasks: Sequence[tuple[Any, ...]],
    processes: int | None = None,
    progress: Callable[[int], Progress] = lambda total: iter,
    *,
    in_order: bool = True,
) -> list[Any]:
    """Call a top-level function with the arguments of each task, in one process per core.

    Results are in the order of the tasks, or as they finish. Large arrays are shared, not copied. With one process
    everything runs in this one.
    """
    affinity = getattr(os, "sched_getaffinity", None)
    workers = min(len(tasks), processes or (len(affinity(0)) if affinity else os.cpu_count() or 1))
    bar = progress(len(tasks))
    if workers < 2:
        return list(bar(function(*task) for task in tasks))
    from joblib import Parallel, delayed, parallel_config

    returned = "generator" if in_order else "generator_unordered"
    with parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
        return list(bar(Parallel(return_as=returned)(delayed(function)(*task) for task in tasks)))
