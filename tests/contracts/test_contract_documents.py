"""Every document survives JSON bit for bit; one that lacks a field, or is no document, is refused."""

import json

import numpy as np
import pytest
from scipy.special import expit

from uncurse import VAD, Auto, Evidence, ReplicaCalibrator, UncurseError, load
from uncurse.evidence import Histogram, LogSpec, Moments, from_arrays
from uncurse.methods import FitRecord

RNG = np.random.default_rng(0)
TRUTH = RNG.normal(-2.0, 0.8, (2_000, 1))
SCORES = TRUTH + 0.4 * RNG.normal(size=(2_000, 3))
LABELS, WEIGHTS = RNG.random(2_000) < expit(TRUTH[:, 0]), RNG.exponential(size=2_000)
GROUPS = np.array(["a", "b"])[RNG.integers(2, size=2_000)]
COMMON = {"scale": "logit", "replicas": "seeds"}
FITTED = {
    "vad": VAD(**COMMON).fit(SCORES),
    "curvature": VAD(**COMMON, curvature=True).fit(SCORES),
    "monotone": VAD(**COMMON, shape="monotone").fit(SCORES),
    "tandem": VAD(**COMMON, calibrator="isotonic").fit(SCORES, labeled=(SCORES, LABELS)),
    "segments": VAD(**COMMON).fit(SCORES, segments=GROUPS),
    "labels": ReplicaCalibrator(**COMMON).fit(SCORES, labeled=(SCORES, LABELS), labels_from="elsewhere"),
    "auto": Auto(**COMMON).fit(SCORES, labeled=(SCORES, LABELS), labels_from="elsewhere"),
}
DOCUMENTS = {
    "spec": LogSpec(("s0", "s1"), "logit", label="click", weight="w", negative_sampling_rate=0.1),
    "moments": Moments().update(SCORES, sample_weight=WEIGHTS),
    "histogram of one score": Histogram().update(SCORES[:, :1], LABELS, sample_weight=WEIGHTS),
    "histogram of replicas": Histogram().update(SCORES, LABELS, sample_weight=WEIGHTS),
    "evidence": from_arrays(SCORES, LABELS, sample_weight=WEIGHTS, segments=GROUPS),
    **{f"record of {name}": method.record_ for name, method in FITTED.items()},
}
OPTIONAL = {LogSpec, FitRecord}  # a field that was not given may be absent


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_json_round_trip_is_exact(name):
    one = DOCUMENTS[name]
    other = type(one).from_dict(json.loads(json.dumps(one.to_dict(), allow_nan=False)))
    assert json.dumps(other.to_dict()) == json.dumps(one.to_dict())


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, one in DOCUMENTS.items() if type(one) not in OPTIONAL for key in one.to_dict()],
)
def test_content_without_a_field_is_refused(name, key):
    content = {k: value for k, value in DOCUMENTS[name].to_dict().items() if k != key}
    with pytest.raises(UncurseError, match=key):
        type(DOCUMENTS[name]).from_dict(content)


@pytest.mark.parametrize("content", [None, 3, [], "text", {}])
@pytest.mark.parametrize("kind", [LogSpec, Moments, Histogram, Evidence, FitRecord])
def test_content_that_is_no_document_is_refused(kind, content):
    with pytest.raises(UncurseError):
        kind.from_dict(content)


@pytest.mark.parametrize("name", FITTED)
def test_a_fitted_map_survives_its_file_bit_for_bit(name, tmp_path):
    one = FITTED[name].fitted_
    one.save(tmp_path / "map.json")
    other = load(tmp_path / "map.json")
    served = np.concatenate([SCORES[:, 0], [-1e300, -50.0, 0.0, 50.0, 1e300]])
    for segment in ("a", "b", "never seen") if name == "segments" else (None,):
        names = () if segment is None else (np.full(len(served), segment),)
        np.testing.assert_array_equal(other(served, *names), one(served, *names))
    assert (other.record, other.errors) == (one.record, one.errors)
    assert one.errors is None or other.interval(0.02) == one.interval(0.02)
