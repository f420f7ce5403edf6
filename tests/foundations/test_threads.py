"""Threads give the same results in the same order on any number of cores."""

import subprocess
import sys

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from uncurse import threads


def blas_threads():
    return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]


@pytest.fixture
def two_blas_threads():
    """The tests limit BLAS to one thread from the start, which would hide that a block does so."""
    with threadpool_limits(2, user_api="blas"):
        assert set(blas_threads()) == {2}
        yield


@pytest.mark.parametrize(
    ("limit", "expected"), [("1", 1), ("3", 3), ("0", 1), ("99", 8), ("", 8), ("2,1", 8), (None, 8)]
)
def test_the_environment_limits_the_number_of_threads(limit, expected, monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda pid: set(range(16)), raising=False)
    if limit is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", limit)
    assert threads.cores() == expected


@pytest.mark.parametrize("cores", [1, 2, 5])
def test_results_are_in_the_order_of_the_items(cores, monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: cores)
    assert threads.in_threads(lambda i: i * i, range(100)) == [i * i for i in range(100)]


@pytest.mark.parametrize("rows", [1, 10, 1 << 18, (1 << 20) + 7])
def test_shares_and_chunks_cover_every_row_once(rows):
    for slices in (threads.shares(rows), threads.chunks(rows)):
        covered = np.zeros(rows, int)
        for part in slices:
            covered[part] += 1
        assert (covered == 1).all()


def test_an_error_in_a_thread_is_raised_and_the_blas_limit_is_lifted(two_blas_threads):
    before = blas_threads()

    def fail(item):
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item 0"), threads.one_blas_thread():
        threads.in_threads(fail, [0, 1])
    assert blas_threads() == before


def test_the_blas_limit_ends_with_the_last_block(two_blas_threads):
    before = blas_threads()
    first, second = threads.one_blas_thread(), threads.one_blas_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) <= {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_a_blas_library_that_is_loaded_later_is_limited_too():
    code = """
from uncurse.threads import one_blas_thread
with one_blas_thread():
    pass
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
with threadpool_limits(2, user_api="blas"), one_blas_thread():
    print({entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "{1}"
