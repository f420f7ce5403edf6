"""Parallel work: NumPy releases the interpreter lock inside large calls, so threads are enough."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_MAX_CORES = 8  # memory bandwidth limits the speed of more


def cores() -> int:
    """Return the number of cores that this process may use: at most 8, and at most ``OMP_NUM_THREADS`` if it is set."""
    affinity = getattr(os, "sched_getaffinity", None)
    available = len(affinity(0)) if affinity else (os.cpu_count() or 1)
    limit = os.environ.get("OMP_NUM_THREADS", "")  # also of worker processes that share the cores
    return min(_MAX_CORES, available, max(1, int(limit)) if limit.isdecimal() else available)


def in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Callable[[Iterator[Result]], Iterable[Result]] = iter,
) -> list[Result]:
    """Apply a function to every item, in one thread per core; `progress` wraps the iterator over the results."""
    workers = min(cores(), len(items))
    if workers < 2:
        return list(progress(map(function, items)))
    with ThreadPoolExecutor(workers) as threads:
        return list(progress(threads.map(function, items)))


def chunks(rows: int | slice, step: int = 1 << 16) -> Iterator[slice]:
    """Split a number of rows, or a slice of rows, into slices that fit in the cache."""
    first, stop = (rows.start, rows.stop) if isinstance(rows, slice) else (0, rows)
    return (slice(start, min(start + step, stop)) for start in range(first, stop, step))


def shares(rows: int, least: int = 1 << 18) -> list[slice]:
    """Split rows into one slice per core; if there are several, each has at least `least` rows."""
    count = max(1, min(cores(), rows // least))
    return [slice(rows * i // count, rows * (i + 1) // count) for i in range(count)]


_lock = threading.Lock()
_limits: list[Any] = []  # one entry per active `one_blas_thread`, all equal


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread: for small products more threads only wait for each other (2–4 times slower).

    The limit applies to the process. The first active block sets it, and the last one to end removes it.
    """
    with _lock:
        _limits.append(_limits[0] if _limits else _blas(len(sys.modules)).limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limit = _limits.pop()
            if not _limits:
                limit.restore_original_limits()


@lru_cache(maxsize=1)
def _blas(modules: int) -> ThreadpoolController:
    """Find the BLAS libraries, in milliseconds; again only if modules were imported, which may bring another."""
    return ThreadpoolController()
