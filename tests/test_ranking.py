"""Ranking of rows: the top rows found from a sample, and labels sorted along with scores."""

import numpy as np

from uncurse.metrics.ranking import Ranked, rank, top_rows


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
        running = ranked.at(np.array([1000.0, 5000.0]))["y"]
        assert running[1] == y.sum()
        assert running[0] == y[order[-1000:]].sum()


def test_unordered_predictions_are_ranked():
    w = np.ones(3)
    y = np.array([0.0, 1.0, 1.0])
    ranked = Ranked(np.array([0.2, 0.9, 0.5]), (w, y, w, y))
    np.testing.assert_array_equal(ranked.f, [0.9, 0.5, 0.2])
    np.testing.assert_array_equal(ranked.at(np.array([1.0, 2.0]))["y"], [1.0, 2.0])
