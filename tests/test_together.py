"""Replicas counted together by any engine: a `Tower` fitted from it is that of the arrays."""

import json

import numpy as np
import polars as pl
import pytest

from test_tables import ENGINES, SPARK
from uncurse import Joint, Tower, UncurseError, collect
from uncurse.evidence import Evidence
from uncurse.links import logistic
from uncurse.tables import SMALL, streams

PROBE = np.linspace(-5, 1, 301)


def make_log(rows, seed, mean):
    rng = np.random.default_rng(seed)
    site = rng.choice(["news", "sport", "video"], rows, p=[0.5, 0.3, 0.2])
    truth = rng.normal(mean, 0.8, rows) + 0.4 * (site == "sport")
    scores = (truth[:, None] + rng.normal(0, 0.4, (rows, 3)) + [0.0, 0.1, -0.1]).astype(np.float32)
    names = {f"s{i + 1}": scores[:, i] for i in range(3)}
    probabilities = {f"p{i + 1}": logistic(scores[:, i].astype(np.float64)) for i in range(3)}
    clicks = (rng.random(rows) < logistic(truth)).astype(np.int8)
    weights = rng.integers(0, 3, rows).astype(np.float64)
    return pl.DataFrame({**names, **probabilities, "click": clicks, "w": weights, "site": site})


# Pool and labelled rows; above SMALL, engines answer queries.
LOGS = {
    "large": (make_log(SMALL + 30_000, 0, -2.0), make_log(SMALL + 20_000, 1, -1.5)),
    "small": (make_log(6_000, 2, -2.0), make_log(6_000, 3, -1.5)),
}


def of_arrays(logs, names, *, weight=False, group=False, **options):
    pool, labelled = logs
    rows = [labelled.select(names).to_numpy(), labelled["click"].to_numpy()]
    given = {"groups": pool["site"].to_numpy()} if group else {}
    if weight:
        rows.append(labelled["w"].to_numpy())
        given["sample_weight"] = pool["w"].to_numpy()
    return Tower(**options).fit(pool.select(names).to_numpy(), labelled=tuple(rows), **given)


def of_logs(engine, open_in, logs, names, *, weight=False, group=False, scale="logit", negative_rate=None):
    given = {"scale": scale, "negative_rate": negative_rate, "weight": "w" if weight else None, "joint": True}
    (pool, options), (labelled, more) = (open_in(engine, log) for log in logs)
    found = collect(pool, names, group="site" if group else None, **given, **options)
    rows = collect(labelled, names, label="click", **given, **more)
    return found, Tower(scale=scale, negative_rate=negative_rate).fit(found, labelled=rows)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("logs", LOGS.values(), ids=LOGS)
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_gives_the_tower_of_numpy(engine, logs, size, opened):
    names = ["s1", "s2", "s3"][:size]
    found, tower = of_logs(engine, opened, logs, names)
    expected = of_arrays(logs, names)
    assert found.joint.rows == len(logs[0])
    assert found.joint.weight.sum() == len(logs[0])
    assert found.joint.step == expected._pool.step
    # Seen: the same to the last digit with two replicas; with three, where sums are float64 and not float32, a few
    # variances round to another slot, which moves predictions by 2e-4.
    np.testing.assert_allclose(tower.map_(PROBE), expected.map_(PROBE), rtol=1e-9 if size == 2 else 1e-3)
    np.testing.assert_allclose(tower.interval(0.02), expected.interval(0.02), rtol=0, atol=1e-3)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("logs", LOGS.values(), ids=LOGS)
@pytest.mark.parametrize("engine", ENGINES)
def test_weights_groups_probabilities_and_sampled_negatives(engine, logs, size, opened):
    names = ["p1", "p2", "p3"][:size]
    options = {"weight": True, "group": True, "scale": "probability", "negative_rate": 0.2}
    found, tower = of_logs(engine, opened, logs, names, **options)
    expected = of_arrays(logs, names, **options)
    p = logistic(PROBE)
    np.testing.assert_allclose(tower.map_.default(p), expected.map_.default(p), rtol=2e-3)
    assert set(found.groups) == set(expected.map_.maps) == {"news", "sport", "video"}
    for name, part in found.groups.items():
        here = logs[0].filter(pl.col("site") == name)
        assert part.joint.rows == len(here)
        assert part.joint.weight.sum() == pytest.approx(here["w"].sum())
        assert part.joint.weight_squares == pytest.approx((here["w"] ** 2).sum())
        # Groups of a log share the grid of the whole, those of arrays have their own.
        sites = np.full(len(p), name)
        np.testing.assert_allclose(tower.predict_proba(p, sites), expected.predict_proba(p, sites), rtol=5e-3)


@pytest.mark.parametrize("engine", ["lazy polars", "duckdb", "ibis", SPARK])
def test_cells_lie_on_the_logit_whatever_the_link(engine, opened):
    log = LOGS["large"][0]
    source, options = opened(engine, log)
    found = collect(source, ["p1", "p2"], scale="probability", link="identity", joint=True, **options).joint
    expected = Joint().update(log.select("p1", "p2").to_numpy(), scale="probability")
    assert found.step == expected.step
    assert abs(len(found) - len(expected)) < 20
    assert found.weight @ found.served == pytest.approx(expected.weight @ expected.served, rel=1e-5)


def test_batches_and_threads_share_one_grid(monkeypatch, tmp_path):
    log, path = LOGS["large"][1], tmp_path / "log.parquet"
    log.write_parquet(path, row_group_size=7_000)
    whole = collect(log, ["s1", "s2", "s3"], label="click", weight="w", joint=True).joint
    monkeypatch.setattr(streams, "_BATCH", 10_000)
    for cores in (1, 3):
        monkeypatch.setattr(streams, "cores", lambda cores=cores: cores)
        found = collect(path, ["s1", "s2", "s3"], label="click", weight="w", joint=True).joint
        assert (found.rows, found.step) == (whole.rows, whole.step)
        assert found.weight.sum() == whole.weight.sum()
        assert found.label.sum() == whole.label.sum()
        if cores == 1:
            first = found.to_dict()
    assert found.to_dict() == first


def test_a_first_batch_without_weight_does_not_settle_the_grid(monkeypatch, tmp_path):
    monkeypatch.setattr(streams, "_BATCH", 10_000)
    log = LOGS["large"][1]
    log = log.with_columns(w=pl.when(pl.int_range(len(log)) < 25_000).then(0.0).otherwise("w"))
    log.write_parquet(tmp_path / "log.parquet", row_group_size=5_000)
    found = collect(tmp_path / "log.parquet", ["s1", "s2"], weight="w", joint=True).joint
    assert found.weight.sum() == log["w"].sum()


def test_many_groups_keep_moments_alone():
    log = LOGS["large"][0].with_columns(site=pl.int_range(pl.len()) % 300)
    found = collect(log, ["s1", "s2"], group="site", joint=True)
    assert found.joint is not None
    assert all(part.joint is None for part in found.groups.values())


def test_days_merge_and_survive_their_files(tmp_path):
    pool = LOGS["large"][0]
    whole = collect(pool, ["s1", "s2"], group="site", joint=True)
    for i, part in enumerate((pool[:70_000], pool[70_000:])):
        collect(part, ["s1", "s2"], group="site", joint=True).save(tmp_path / f"{i}.json")
    a, b = (Evidence.load(tmp_path / f"{i}.json") for i in (0, 1))
    assert len(json.dumps(a.joint.to_dict())) < 300_000
    merged = a.merge(b)
    np.testing.assert_array_equal(merged.joint.weight, whole.joint.weight)
    np.testing.assert_array_equal(merged.groups["news"].joint.weight, whole.groups["news"].joint.weight)
    assert a.merge(collect(pool, ["s1", "s2"], group="site")).joint is None


@pytest.mark.parametrize(
    ("scores", "options", "message"),
    [
        ("s1", {}, "joint counts of s1 with scale='logit' cannot be; name the served column and a replica at least"),
        (["s1", "s2"], {"scale": "value", "link": "identity"}, "with scale='value' cannot be; .* logits or prob"),
    ],
)
def test_what_cannot_be_counted_together(scores, options, message):
    with pytest.raises(UncurseError, match=message):
        collect(LOGS["small"][0], scores, joint=True, **options)


@pytest.mark.parametrize("engine", ["lazy polars", "parquet", "duckdb"])
def test_bad_scores_are_named_as_ever(engine, opened):
    log = LOGS["large"][0].with_columns(s2=pl.when(pl.int_range(pl.len()) == 16).then(float("nan")).otherwise("s2"))
    source, options = opened(engine, log)
    with pytest.raises(UncurseError, match=r"nan|NaN"):
        collect(source, ["s1", "s2"], joint=True, **options)
