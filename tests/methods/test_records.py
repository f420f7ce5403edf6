"""`FitRecord`: what a fit leaves in its file."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, ndtri

from uncurse import VAD, Affine, Auto, Fitted, ReplicaCalibrator, UncurseError, __version__, load
from uncurse.evidence import from_arrays
from uncurse.methods import DataRecord, FitRecord, RefreshRecord, ScoreSummary, SegmentRecord, TopChange

COMMON = {"scale": "logit", "replicas": "seeds"}


def rows_of(rows, *, seed=0, mean=-2.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = truth[:, None] + 0.4 * rng.normal(size=(rows, 2))
    return scores, (rng.random(rows) < expit(truth)).astype(int)


POOL, LABELED = rows_of(2_000, mean=-2.5)[0], rows_of(1_500, seed=1)
SEGMENTS = np.resize(["a", "b", "c"], 2_000)


def fits():
    yield "vad", VAD(**COMMON, curvature=True, negative_sampling_rate=0.5).fit(POOL)
    yield "vad", VAD(**COMMON, calibrator="platt").fit(POOL, labeled=LABELED, segments=SEGMENTS)
    yield "vad", VAD(scale="logit", shape="monotone", replicas="bootstrap").fit(POOL)
    yield "vad", VAD(link="identity", scale="value", replicas="seeds").fit(POOL[:, 0], variance=0.1)
    of_p = ReplicaCalibrator(scale="probability", replicas="seeds")
    yield "labels", of_p.fit(expit(POOL), labeled=(expit(LABELED[0]), LABELED[1]), labels_from="winners")
    yield "average", Auto(**COMMON).fit(POOL)
    shifted = (LABELED[0] + 1, LABELED[1])
    yield "labels", Auto(**COMMON).fit(POOL + 1, labeled=shifted, labels_from="elsewhere", segments=SEGMENTS)


FITS = [(method, fitted.record_, fitted) for method, fitted in fits()]


@pytest.mark.parametrize(("method", "record", "fitted"), FITS)
def test_a_record_states_options_and_estimates(method, record, fitted):
    assert (record.method, record.version, record.pool.rows) == (method, __version__, 2_000)
    for name in ("scale", "replicas", "negative_sampling_rate"):
        assert getattr(record, name) == getattr(fitted, name)
    assert (record.labeled is None) == ((method == "vad" and record.calibrator is None) or method == "average")
    if record.labeled is not None:
        assert (record.labeled.rows, record.labeled.effective_rows) == (1_500, 1_500.0)
        assert record.labeled.columns == ("column 0", "column 1")
    for name in ("lambda_", "standard_error", "center", "noise_variance", "score_variance"):
        value = getattr(record, name)
        assert (value is None) == (method == "labels")
        assert value is None or (type(value) is float and np.isfinite(value))
        assert not isinstance(fitted, VAD) or value == getattr(fitted, name.rstrip("_") + "_")
    for name in ("line_probability", "shift_probability"):
        assert (getattr(record, name) is not None) == (method == "labels")
    with pytest.raises(AttributeError):
        record.lambda_ = 0.5


def test_records_of_segments_and_sources():
    record = FITS[1][1]
    assert record.segments.keys() == {"a", "b", "c"}
    assert [one.rows for one in record.segments.values()] == [667, 667, 666]
    evidence = replace(from_arrays(POOL), sources=("day1.parquet", "day2.parquet"))
    assert VAD(**COMMON).fit(evidence).record_.pool.sources == evidence.sources


def test_a_summary_of_scores_holds_their_distribution():
    scores = np.random.default_rng(0).normal(-3.0, 0.5, 20_000)
    summary = ScoreSummary.of(from_arrays(scores[:, None]).served)
    assert (summary.rows, summary.weight) == (20_000, 20_000)
    assert summary.mean == pytest.approx(scores.mean(), abs=1e-4)
    assert summary.sd == pytest.approx(scores.std(), rel=1e-3)
    assert summary.distance < 0.02  # of a normal distribution
    counts, _ = np.histogram(scores, summary.edges)
    np.testing.assert_allclose(summary.weights, counts, atol=5)
    # The last 37 shares run from 10% to 100%.
    expected = -3 - 0.5 * ndtri(np.linspace(0.1, 1.0, 37)[:-1])
    np.testing.assert_allclose(summary.top[-37:-1], expected, atol=0.05)
    tails = ScoreSummary.of(from_arrays(np.random.default_rng(0).standard_t(2, (20_000, 1))).served)
    assert tails.distance > 0.05
    constant = ScoreSummary.of(from_arrays(np.full((10, 1), -2.0)).served)
    assert constant.sd == 0
    assert sum(constant.weights) == pytest.approx(10, rel=0.01)


def test_every_part_makes_the_round_trip(tmp_path):
    summary = ScoreSummary(3, 3.0, 0.5, 1.0, (-1.0, 0.0, 2.0), (1.0, 2.0), (0.5,) * 127, 0.1)
    refreshed = RefreshRecord(
        1, 500, 40.0, ("a.parquet",), "level", "why", True, -2.0, changes=(TopChange(0.1, 0.2, 0.1),)
    )
    record = FitRecord(
        "vad",
        DataRecord(3, ("s0", "s1"), ("a.parquet",), summary),
        segments={"a": SegmentRecord(0.8, -2.0, 3)},
        refreshes=(refreshed,),
        command="uncurse fit",
    )
    one = Fitted(Affine(1.0, 0.0), record)
    one.save(tmp_path / "map.json")
    assert load(tmp_path / "map.json") == one
    one.map.save(tmp_path / "bare.json")
    assert load(tmp_path / "bare.json") == Fitted(one.map)


def test_a_damaged_record_is_refused_with_its_file(tmp_path):
    content = FITS[0][2].fitted_.to_json()
    (tmp_path / "map.json").write_text(content.replace('"pool"', '"pond"'))
    with pytest.raises(UncurseError, match=r"map\.json.*pool|map\.json.*pond"):
        load(tmp_path / "map.json")
