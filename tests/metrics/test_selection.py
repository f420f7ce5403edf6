import numpy as np
import pytest

from uncurse import UncurseError, top_k, top_share


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("decimals", [12, 1, 0])
@pytest.mark.parametrize("alpha", [0.001, 0.02, 0.37, 1.0])
def test_top_share_is_the_head_of_a_stable_sort(alpha, decimals, dtype):
    scores = np.random.default_rng(0).normal(size=5000).round(decimals).astype(dtype)
    chosen = top_share(scores, alpha)
    expected = np.argsort(-scores, kind="stable")[: round(5000 * alpha)]
    assert chosen.dtype == bool
    np.testing.assert_array_equal(np.flatnonzero(chosen), np.sort(expected))


def literal_top_k(scores, requests, k):
    chosen = np.zeros(len(scores), bool)
    for request in set(requests):
        rows = [i for i, name in enumerate(requests) if name == request]
        chosen[sorted(rows, key=lambda i: (-scores[i], i))[:k]] = True
    return chosen


@pytest.mark.parametrize("kind", ["int", "negative", "uint64", "text", "object", "float"])
@pytest.mark.parametrize("k", [1, 3, 100])
@pytest.mark.parametrize("decimals", [12, 0])
def test_top_k_is_the_head_of_every_request(k, decimals, kind):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=300).round(decimals)
    requests = rng.integers(0, 40, 300)
    requests = {
        "int": requests,
        "negative": -requests,
        "uint64": requests.astype(np.uint64) + (2**63),
        "text": np.char.add("r", requests.astype(str)),
        "object": np.char.add("r", requests.astype(str)).astype(object),
        "float": requests / 7,
    }[kind]
    np.testing.assert_array_equal(top_k(scores, requests, k), literal_top_k(scores, requests.tolist(), k))


def test_top_k_takes_lists():
    assert top_k([0.1, 0.9, 0.5], ["a", "a", "b"]).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: top_share([0.1, 0.2], 0.1), r"0\.1 of 2 rows selects none; use at least 0\.5"),
        (lambda: top_share([0.1, 0.2], 0.0), r"alpha=0\.0 is not a share; pass a number above 0 and at most 1"),
        (lambda: top_share([0.1, 0.2], 1.1), r"alpha=1\.1 is not a share"),
        (lambda: top_share([0.1, 0.2], np.nan), "alpha=nan is not a share"),
        (lambda: top_share([0.1, 0.2], "all"), "alpha='all' is not a share"),
        (lambda: top_share([0.1, np.nan], 0.5), r"scores\[1\] is nan"),
        (lambda: top_share([0.1, np.inf], 0.5), r"scores\[1\] is inf"),
        (lambda: top_share([], 0.5), "scores is empty"),
        (lambda: top_share([[0.1]], 0.5), r"scores has shape \(1, 1\)"),
        (lambda: top_k([0.1, 0.2], [1]), r"requests has shape \(1,\) but there are 2 rows; pass shape \(2,\)"),
        (lambda: top_k([0.1, 0.2], [[1, 2]]), r"requests has shape \(1, 2\)"),
        (lambda: top_k([0.1, 0.2], [1, 2], k=0), "k=0; pass an integer, 1 or more"),
        (lambda: top_k([0.1, 0.2], [1, 2], k=-1), "k=-1; pass an integer, 1 or more"),
        (lambda: top_k([0.1, np.nan], [1, 2]), r"scores\[1\] is nan"),
        (lambda: top_k([0.1, 0.2], [1, 2], k=1.5), "k="),
        (lambda: top_k([0.1, 0.2], [1, 2], k="one"), "k="),
        (lambda: top_k([0.1, 0.2], np.array(["a", None], dtype=object)), "requests"),
    ],
)
def test_invalid_selection_is_named(call, message):
    with pytest.raises(UncurseError, match=message):
        call()


def test_large_float_requests_stay_distinct():
    assert top_k([0.1, 0.2, 0.3, 0.4], [1.1e19, 1.1e19, 1.2e19, 1.3e19], 1).tolist() == [False, True, True, True]
