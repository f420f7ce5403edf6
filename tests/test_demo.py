"""The demo's world: the bias is there before, and much less after, in any world."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from uncurse import VAD, demo

made = cache(demo.make)


@pytest.mark.theory
def test_the_bias_of_the_top_percent_falls_to_a_fraction_in_three_worlds():
    before, after = [], []
    for seed in range(3):
        scores, truth, _ = made(seed)
        vad = VAD(scale="logit", replicas="bootstrap", curvature=True).fit(scores)
        _, rate, *predicted = demo.outcomes(scores[:, 0], vad.predict_proba(scores[:, 0]), truth)[0]
        for errors, mean in zip((before, after), predicted, strict=True):
            errors.append(mean / rate - 1)
    assert min(before) > 0.1
    assert np.abs(after).mean() < 0.25 * np.mean(before)


def test_the_logs_hold_the_world(tmp_path):
    world = made(0)
    pool, outcomes = demo.write(*world, tmp_path)
    files = sorted(pool.glob("*.parquet"))
    assert len(files) == 4
    np.testing.assert_array_equal(pl.concat(map(pl.read_parquet, files)).select("s0", "s1", "s2").to_numpy(), world[0])
    log = pl.read_parquet(outcomes)
    assert log.columns == ["request", "s0", "click", "truth"]
    assert "click" not in pl.read_parquet(files[0]).columns
    assert abs(log["click"].mean() / log["truth"].mean() - 1) < 0.05
