"""Work shared out over the cores: numpy releases its lock inside every large call, so threads are enough."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST = 8  # memory bandwidth is used up long before


def cores() -> int:
    """How many cores this process may use, up to 8."""
    affinity = getattr(os, "sched_getaffinity", None)
    return min(_MOST, len(affinity(0)) if affinity else (os.cpu_count() or 1))


def in_threads(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    progress: Callable[[Iterator[Result]], Iterable[Result]] = iter,
) -> list[Result]:
    """`function` of every item, in order, a thread per core where there is more than one of either.

    >>> in_threads(abs, [-1, 2, -3])
    [1, 2, 3]
    """
    workers = min(cores(), len(items))
    if workers < 2:
        return list(progress(map(function, items)))
    with ThreadPoolExecutor(workers) as threads:
        return list(progress(threads.map(function, items)))


def chunks(rows: int, step: int = 1 << 16) -> Iterable[slice]:
    """Slices of `step` rows, which stay in the cache."""
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def shares(rows: int, least: int = 1 << 18) -> list[slice]:
    """One slice for each core, none of fewer rows than a thread is worth starting for.

    >>> shares(10)
    [slice(0, 10, None)]
    """
    count = max(1, min(cores(), rows // least))
    return [slice(rows * i // count, rows * (i + 1) // count) for i in range(count)]


_lock = threading.Lock()
_inside: list[Any] = []  # one entry for each user of `one_blas_thread`; the first holds what to restore


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread: on products as small as ours two only wait for each other (2–4 times slower).

    The limit is the process's: it is set by the first to come and lifted by the last to go, whatever their order.
    """
    with _lock:
        _inside.append(_inside[0] if _inside else _blas().limit(limits=1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limiter = _inside.pop()
            if not _inside:
                limiter.restore_original_limits()


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # finding the libraries takes milliseconds: once


__all__ = ["chunks", "cores", "in_threads", "one_blas_thread", "shares"]
