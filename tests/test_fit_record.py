"""`FitRecord`: the record of every method, and its plain data."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy.special import expit

from uncurse import VAD, Auto, Tower, UncurseError, __version__
from uncurse.debias import DataRecord, ErrorInterval, FitRecord, GroupRecord, ScoreSummary, load_record
from uncurse.evidence import from_arrays


def rows_of(rows, replicas=2, *, seed=0, mean=-2.0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, 0.8, rows)
    scores = truth[:, None] + 0.4 * rng.normal(size=(rows, replicas))
    return scores, (rng.random(rows) < expit(truth)).astype(int)


POOL, _ = rows_of(2_000, mean=-2.5)
LABELLED = rows_of(1_500, seed=1)
GROUPS = np.resize(["a", "b", "c"], 2_000)


def fits():
    yield "vad", VAD(curvature=True, negative_rate=0.5).fit(POOL)
    yield "vad", VAD(calibrator="platt").fit(POOL, labelled=LABELLED, groups=GROUPS)
    yield "vad", VAD(shape="free", replicas="anchored").fit(POOL)
    yield "vad", VAD(link="identity", scale="value").fit(POOL[:, 0], variance=0.1)
    yield "tower", Tower(scale="probability").fit(expit(POOL), labelled=(expit(LABELLED[0]), LABELLED[1]))
    yield "average", Auto().fit(POOL)
    yield "tower", Auto().fit(POOL + 1, labelled=(LABELLED[0] + 1, LABELLED[1]), groups=GROUPS)


FITS = list(fits())


@pytest.mark.parametrize(("method", "fitted"), FITS)
def test_a_record_holds_plain_numbers_of_this_version(method, fitted):
    record = fitted.record_
    assert record.version == __version__
    assert record.pool.rows == 2_000
    assert (record.labelled is None) == ((method == "vad" and record.calibrator is None) or method == "average")
    if record.labelled is not None:
        assert record.labelled == DataRecord(1_500, ("column 0", "column 1"), effective_rows=1_500.0)
    for name in ("lambda_", "standard_error", "center", "noise_variance", "score_variance"):
        value = getattr(record, name)
        assert (value is None) == (method == "tower")
        assert value is None or (type(value) is float and np.isfinite(value))
    for name in ("line_probability", "contrast"):
        assert (getattr(record, name) is not None) == (method == "tower")


def test_the_record_of_vad_states_its_options_and_estimates():
    vad = VAD(curvature=True, negative_rate=0.5, replicas="anchored").fit(POOL)
    record = vad.record_
    assert (record.scale, record.link, record.replicas, record.negative_rate) == ("logit", "logistic", "anchored", 0.5)
    assert (record.curvature, record.shape, record.calibrator, record.groups) == (True, "straight", None, {})
    estimates = (vad.lambda_, vad.standard_error_, vad.center_, vad.noise_variance_, vad.score_variance_)
    names = ("lambda_", "standard_error", "center", "noise_variance", "score_variance")
    assert tuple(getattr(record, name) for name in names) == estimates


def test_the_record_of_groups_states_their_estimates():
    vad = VAD(calibrator="isotonic").fit(POOL, labelled=LABELLED, groups=GROUPS)
    assert vad.record_.calibrator == "isotonic"
    assert vad.record_.groups.keys() == {"a", "b", "c"}
    for name, group in vad.record_.groups.items():
        assert group == GroupRecord(vad.group_lambda_[name], vad.group_center_[name], int((name == GROUPS).sum()))


@pytest.mark.filterwarnings("ignore:the odds of the labels are")
def test_the_record_of_tower_states_its_estimates():
    tower = Tower(replicas="anchored", negative_rate=0.2).fit(POOL, labelled=LABELLED)
    record = tower.record_
    assert (record.method, record.replicas, record.negative_rate) == ("tower", "anchored", 0.2)
    assert (record.line_probability, record.contrast) == (tower.line_probability_, tower.contrast_)


def test_the_record_of_auto_is_that_of_the_method_and_the_reason():
    auto = Auto().fit(POOL)
    assert replace(auto.record_, method="vad", reason="") == VAD(curvature=True).fit(POOL).record_
    assert (auto.record_.method, auto.record_.reason) == (auto.method_, auto.reason_)
    agreed = Auto().fit(POOL, labelled=LABELLED)
    assert agreed.record_.labelled == DataRecord(1_500, ("column 0", "column 1"), effective_rows=1_500.0)


def test_sources_of_evidence_are_part_of_the_record():
    evidence = replace(from_arrays(POOL), sources=("day1.parquet", "day2.parquet"))
    expected = DataRecord(2_000, ("column 0", "column 1"), evidence.sources, effective_rows=2_000.0)
    assert VAD().fit(evidence).record_.pool == expected


def test_plain_data_has_every_field_and_calls_lambda_lambda():
    content = FITS[1][1].record_.to_dict()
    assert content.keys() == {field.name.replace("lambda_", "lambda") for field in fields(FitRecord)}
    assert content["groups"]["a"].keys() == {"lambda", "center", "rows"}


SUMMARY = ScoreSummary(3, 3.0, 0.5, 1.0, "logit", (-1.0, 0.0, 2.0), (1.0, 2.0), distance=0.1)


def test_intervals_and_summaries_of_scores_make_the_round_trip(tmp_path):
    record = replace(
        FITS[0][1].record_,
        pool=DataRecord(3, ("s0",), ("a.parquet",), SUMMARY),
        remaining_error=(ErrorInterval(0.02, -0.1, 0.2, 0.9),),
        command="uncurse fit",
    )
    FITS[0][1].map_.save(tmp_path / "map.json", record.to_dict())
    assert load_record(tmp_path / "map.json") == record


def test_a_map_without_a_record_has_none(tmp_path):
    FITS[0][1].map_.save(tmp_path / "map.json")
    assert load_record(tmp_path / "map.json") is None


def test_a_damaged_record_is_refused_with_its_file(tmp_path):
    FITS[0][1].map_.save(tmp_path / "map.json", {"method": "vad"})
    with pytest.raises(
        UncurseError, match=r"the record of .*map\.json: this is not a complete fit record document \('pool'\)"
    ):
        load_record(tmp_path / "map.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content.pop("lambda"),
        lambda content: content.pop("method"),
        lambda content: content.pop("pool"),
        lambda content: content.update(pool=None),
        lambda content: content.update(pool={"rows": 3}),
        lambda content: content.update(groups=[1]),
        lambda content: content.update(groups={"a": {"lambda": 1.0}}),
        lambda content: content.update(labelled=5),
        lambda content: content.update(unknown=5),
        lambda content: content.update(method=5),
        lambda content: content.update(curvature=1),
        lambda content: content.update(center=True),
        lambda content: content.update(center="0"),
        lambda content: content.update(center=float("inf")),
        lambda content: content.update(remaining_error=[0.1]),
        lambda content: content["pool"].update(rows=-1),
        lambda content: content["pool"].update(rows=True),
        lambda content: content["pool"].update(columns=["s", 1]),
        lambda content: content["pool"].update(columns="s0"),
    ],
)
def test_invalid_content_is_refused(change):
    content = FITS[1][1].record_.to_dict()
    change(content)
    with pytest.raises(UncurseError, match="fit record"):
        FitRecord.from_dict(content)


def test_a_record_cannot_be_changed():
    record = FITS[0][1].record_
    with pytest.raises(AttributeError):
        record.lambda_ = 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"edges": (-1.0, 0.0)},
        {"edges": (), "weights": ()},
        {"edges": (1.0,), "weights": ()},
        {"edges": (-1.0, -1.0, 2.0)},
        {"weights": (1.0, -0.5)},
        {"weight": 0.0},
        {"weight": -0.5},
        {"sd": -0.5},
    ],
)
def test_a_summary_that_is_no_distribution_is_refused(change):
    with pytest.raises(UncurseError, match="not a distribution"):
        replace(SUMMARY, **change)
    assert replace(SUMMARY, sd=0.0, weights=(0.0, 2.0), weight=0.5).sd == 0.0
