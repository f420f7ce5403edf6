"""Evidence of parts merges to that of all rows, and every engine gives that of arrays."""

import json
from functools import reduce

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

from uncurse import VAD, Auto, Evidence, ReplicaCalibrator, collect

ROWS = 3_000
RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-2.0, 0.8, ROWS)
LOG = pl.DataFrame(TRUTH[:, None] + 0.4 * RNG.normal(size=(ROWS, 3)), schema=["s0", "s1", "s2"]).with_columns(
    click=RNG.random(ROWS) < expit(TRUTH), weight=RNG.exponential(size=ROWS), site=RNG.choice(["a", "b"], ROWS)
)
GRID = np.linspace(-5, 1, 50)
SCORES = ["s0", "s1", "s2"]
OPTIONS = {"label": "click", "scale": "logit"}
COMMON = {"scale": "logit", "replicas": "seeds"}
FITS = {
    "vad": lambda e: VAD(**COMMON, curvature=True).fit(e),
    "monotone": lambda e: VAD(**COMMON, shape="monotone").fit(e),
    "tandem": lambda e: VAD(**COMMON, calibrator="isotonic").fit(e, labeled=e),
    "labels": lambda e: ReplicaCalibrator(**COMMON).fit(e, labeled=e, labels_from="elsewhere"),
    "auto": lambda e: Auto(**COMMON).fit(e, labeled=e, labels_from="elsewhere"),
}
ENGINES = ["lazy polars", "pandas", "pyarrow", "duckdb", "ibis", "parquet", "csv"]


def collected(log, **options):
    return collect(log, SCORES, **OPTIONS, **options)


def assert_same_maps(one, other, names=FITS):
    assert other.rows == one.rows
    for name in names:
        expected, found = (FITS[name](evidence).map_ for evidence in (one, other))
        np.testing.assert_allclose(found(GRID), expected(GRID), rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_evidence_of_parts_merges_to_that_of_all_rows_in_any_order(order, weight):
    parts = [LOG[:1], LOG[1:900], LOG[900:2_000], LOG[2_000:]]
    merged = reduce(Evidence.merge, (collected(parts[i], weight=weight) for i in order))
    assert_same_maps(collected(LOG, weight=weight), merged)


def test_merging_is_associative():
    a, b, c = (collected(part) for part in (LOG[:700], LOG[700:900], LOG[900:]))
    assert_same_maps(a.merge(b).merge(c), a.merge(b.merge(c)))


@pytest.mark.parametrize("weight", [None, "weight"])
def test_evidence_survives_its_file(weight, tmp_path):
    one = collected(LOG, weight=weight, segment="site")
    one.save(tmp_path / "evidence.json")
    other = Evidence.load(tmp_path / "evidence.json")
    assert json.dumps(other.to_dict()) == json.dumps(one.to_dict())
    later = collected(LOG[:500], weight=weight, segment="site")
    assert json.dumps(other.merge(later).to_dict()) == json.dumps(one.merge(later).to_dict())


@pytest.mark.parametrize("engine", [*ENGINES, pytest.param("spark", marks=pytest.mark.spark)])
def test_every_engine_gives_the_maps_of_a_frame_in_memory(engine, opened):
    log = LOG.with_columns(pl.col("click").cast(pl.Int8))
    source, options = opened(engine, log)
    assert_same_maps(collected(log), collected(source, **options))
    assert_same_maps(collected(log, weight="weight"), collected(source, weight="weight", **options), ["vad", "tandem"])
    one, other = collected(log, segment="site"), collected(source, segment="site", **options)
    vads = [VAD(**COMMON).fit(evidence).map_ for evidence in (one, other)]
    for site in ("a", "b"):
        predictions = [vad(GRID, np.full(len(GRID), site)) for vad in vads]
        np.testing.assert_allclose(*predictions, rtol=1e-9)
