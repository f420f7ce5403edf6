"""Ranking of rows: selection of the top from a sample, and sorting of scores with labels."""

import numpy as np
import pytest

from uncurse.metrics import ranking
from uncurse.metrics.ranking import Ranked, rank, top_rows


def sums_above(ranked: Ranked, bounds: np.ndarray) -> dict[str, np.ndarray]:
    """Return the sums over the rows above each of `bounds`."""
    between, total = ranked.sums(np.append(0.0, bounds))
    sums = {name: np.cumsum(values) for name, values in between.items()}
    for name, value in total.items():
        np.testing.assert_allclose(sums[name][-1], value, rtol=1e-12, atol=1e-9, err_msg=name)
    return sums


def test_top_rows_equal_a_partition_for_any_sample():
    rng = np.random.default_rng(0)
    rows = 300_000
    plain = rng.random(rows)
    misleading = np.where(
        np.arange(rows) % 3 == 0, 0.9 + 0.1 * plain, 0.5 * plain
    )  # the sample sees only the high ones
    for f in (plain, misleading, misleading[::-1].copy(), np.full(rows, 0.5)):
        for dtype in (np.float32, np.float64):
            p = f.astype(dtype)
            for count in (1, 300, 60_000, 200_000):
                kept, _ = top_rows(p, np.zeros(rows, int), count)
                expected = np.sort(p)[-count:]
                np.testing.assert_array_equal(np.sort(kept)[-count:], expected)
                assert len(kept) >= count


def test_rank_keeps_labels_with_their_scores_exactly():
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        f = rng.random(5_000).astype(dtype)
        f[:3] = 0.0, 1.0, -0.0
        y = (rng.random(5_000) < 0.3).astype(np.int8)
        ranked = rank(f, y, None)
        order = np.argsort(f, kind="stable")
        assert ranked.f[::-1][-1] == 1.0
        np.testing.assert_array_equal(np.unique(f + 0.0), ranked.f[::-1])
        running = sums_above(ranked, np.array([1000.0, 5000.0]))["y"]
        assert running[1] == y.sum()
        assert running[0] == y[order[-1000:]].sum()


def test_unordered_predictions_are_ranked():
    w = np.ones(3)
    y = np.array([0.0, 1.0, 1.0])
    ranked = Ranked(np.array([0.2, 0.9, 0.5]), (w, y, w, y))
    np.testing.assert_array_equal(ranked.f, [0.9, 0.5, 0.2])
    np.testing.assert_array_equal(sums_above(ranked, np.array([1.0, 2.0]))["y"], [1.0, 2.0])


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_below_the_exact_ones_are_summarised_without_changing_totals(monkeypatch, weighted):
    rng = np.random.default_rng(2)
    f, y = rng.random(4_000), rng.integers(0, 2, 4_000)
    w = rng.random(4_000) * (f > 0.2) if weighted else None  # rows below 0.2 have no weight
    exact = rank(f, y, w)
    monkeypatch.setattr(ranking, "_EXACT_ROWS", 500)
    summarised = rank(f, y, w)
    assert len(summarised.f) < len(exact.f)
    np.testing.assert_array_equal(summarised.f[:500], exact.f[:500])
    total = exact.reached[-1]
    at = np.append(exact.reached[[1, 250, 500]], total)
    for name, sums in sums_above(exact, at).items():
        # Above the limit sums are exact; the grid moves a prediction below by at most 1/1024 logits.
        np.testing.assert_allclose(sums_above(summarised, at)[name][:3], sums[:3], rtol=1e-9, atol=1e-9, err_msg=name)
        np.testing.assert_allclose(sums_above(summarised, at)[name], sums, rtol=2e-3, atol=2e-3, err_msg=name)
    if weighted:
        monkeypatch.setattr(ranking, "_EXACT_ROWS", int((f > 0.2).sum()))
        np.testing.assert_array_equal(rank(f, y, w).f, exact.f)


def test_sums_of_a_light_bin_keep_their_digits_next_to_heavy_bins():
    rng = np.random.default_rng(3)
    f = np.sort(rng.random(300))
    w = np.where(np.arange(300) < 100, rng.random(300), 1e7 * rng.random(300))
    y = w * (rng.random(300) < 0.5)
    ranked = Ranked(f, (w, y, w * w, w * y))
    between, _ = ranked.sums(np.array([0.0, ranked.reached[200], ranked.reached[-1]]))
    light = slice(0, 100)
    # Weights below 1 follow 1e9: plain differences of cumulative sums of squares would have no digit left.
    np.testing.assert_allclose(between["w2"][1], np.sum(w[light] ** 2), rtol=1e-13)
    np.testing.assert_allclose(between["yy2"][1], np.sum((w * y)[light]), rtol=1e-13)
    np.testing.assert_allclose(between["f"][1], np.sum((w * f)[light]), rtol=1e-13)


def test_zero_of_either_sign_and_denormal_numbers_are_one_prediction():
    f = np.array([0.5, 1e-310, -0.0, 0.0, 1e-299])
    for weights in (None, np.ones(5)):
        np.testing.assert_array_equal(rank(f, np.array([1, 1, 0, 0, 0]), weights).f, [0.5, 1e-299, 0.0])
