"""`Evidence`: merging, parts, segments and files."""

import copy
import dataclasses
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from uncurse import Evidence, TopK, UncurseError
from uncurse.evidence import Histogram, LogSpec, Moments, from_arrays, merged
from uncurse.links import logistic

SPEC = LogSpec(("s", "t"))


def arrays(rows, size=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, (rows, 1))
    scores, weights = truth + rng.normal(0, 0.4, (rows, size)), rng.integers(1, 5, rows) / 4
    return scores, (rng.random(rows) < logistic(truth[:, 0])).astype(int), weights, rng.choice(["a", "b", "c"], rows)


def collected(rows=300, size=2, *, weights=True, segments=True, part=slice(None), seed=0, **options):
    scores, labels, w, names = (column[part] for column in arrays(rows, size, seed))
    return from_arrays(
        scores, labels, segments=names if segments else None, sample_weight=w if weights else None, **options
    )


def assert_equal(one, other):
    """Compare two `Evidence` objects; sums of logits up to rounding."""
    left, right = one.to_dict(), other.to_dict()
    assert left["spec"] == right["spec"]
    np.testing.assert_allclose(one.moments.mean, other.moments.mean, rtol=1e-12)
    np.testing.assert_allclose(one.moments.covariance, other.moments.covariance, rtol=1e-11)
    assert (one.rows, one.weight, one.effective_rows) == (other.rows, other.weight, pytest.approx(other.effective_rows))
    for name in ("served", "replicas"):
        assert (left[name] is None) == (right[name] is None)
        for key in ("rows", "level", "cells", "weight", "label") if left[name] else ():
            assert left[name][key] == right[name][key], (name, key)
    if one.served is not None:
        np.testing.assert_allclose(one.served.score, other.served.score, rtol=1e-12)
    assert one.segments.keys() == other.segments.keys()
    for name, part in one.segments.items():
        assert_equal(part, other.segments[name])


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 3),
    weights=st.booleans(),
    segments=st.booleans(),
    cuts=st.lists(st.integers(1, 299), max_size=4),
)
def test_merged_parts_equal_one_pass_in_any_order(seed, size, weights, segments, cuts):
    options = {"rows": 300, "size": size, "weights": weights, "segments": segments, "seed": seed}
    expected = collected(**options)
    order = np.random.default_rng(seed).permutation(300)
    parts = [collected(part=rows, **options) for rows in np.split(order, sorted(cuts)) if len(rows)]
    found = merged(parts)
    assert_equal(found, expected)
    assert_equal(merged(reversed(parts)), expected)
    again = Evidence.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert again.to_dict() == found.to_dict()


def test_a_merge_changes_neither_side_and_evidence_merges_with_itself():
    a, b = collected(seed=1), collected(seed=2)
    before = json.dumps([a.to_dict(), b.to_dict()])
    assert a.merge(b).rows == a.merge(a).rows == 600
    assert a.merge(a).effective_rows == pytest.approx(2 * a.effective_rows)
    assert json.dumps([a.to_dict(), b.to_dict()]) == before
    with pytest.raises(dataclasses.FrozenInstanceError):
        a.moments = b.moments


@pytest.mark.parametrize(
    "changes",
    [
        {"scores": ("s", "u")},
        {"scale": "probability"},
        {"link": "log"},
        {"top_k": TopK("auction")},
        {"negative_sampling_rate": 0.1},
        {"weight": "w"},
    ],
)
def test_evidence_of_different_descriptions_does_not_merge(changes):
    scores = logistic(arrays(50)[0])
    one, other = (
        from_arrays(scores, spec=spec) for spec in (LogSpec(("s", "t"), "probability", link="identity"), SPEC)
    )
    assert one.rows == 50
    with pytest.raises(UncurseError, match="cannot merge evidence: scale"):
        one.merge(other)
    changed = dataclasses.replace(other, spec=dataclasses.replace(SPEC, **changes))
    with pytest.raises(UncurseError, match=next(iter(changes))):
        other.merge(changed)


def test_evidence_with_other_parts_and_other_objects_does_not_merge():
    with pytest.raises(UncurseError, match="histograms"):
        collected().merge(collected(histograms=False))
    for other in (None, 3, Moments(), Histogram()):
        with pytest.raises(UncurseError, match=type(other).__name__):
            collected().merge(other)
        with pytest.raises(UncurseError, match=type(other).__name__):
            merged([other])
    for parts in ([], 3):
        with pytest.raises(UncurseError, match="merge"):
            merged(parts)


def test_segments_of_one_side_are_kept_and_lie_on_the_grid_of_all_rows():
    scores, labels, _, _ = arrays(60_000, 3)
    large = from_arrays(scores, labels, segments=["a"] * 60_000)
    small = from_arrays(scores[:90], labels[:90], segments=["b"] * 90)
    both = large.merge(small)
    assert both.segments["a"].rows == 60_000
    assert {part.replicas.level for part in both.segments.values()} == {both.replicas.level}
    assert small.segments["b"].replicas.level == small.replicas.level < both.replicas.level


def test_sources_are_joined_and_a_repeated_source_raises_a_warning():
    a, b = (dataclasses.replace(collected(), sources=(name,)) for name in ("a.csv", "b.csv"))
    assert a.merge(b).sources == ("a.csv", "b.csv")
    with pytest.warns(UserWarning, match=r"a\.csv"):
        a.merge(b.merge(dataclasses.replace(a, sources=())).merge(a))


@pytest.mark.parametrize("size", [1, 2])
def test_repeated_rows_have_the_effective_number_of_different_rows(size):
    once, scores = collected(size=size, weights=False), arrays(300, size)[0]
    twice = from_arrays(np.concatenate([scores, scores])).scaled(1.0, 2.0)
    assert twice.effective_rows == twice.served.effective_rows == pytest.approx(300)
    if size > 1:
        assert twice.replicas.table().effective_rows == pytest.approx(300)
    np.testing.assert_allclose(twice.moments.covariance, once.moments.covariance)
    assert once.effective_rows == 300


# ---------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    "spec",
    [
        LogSpec(("s", "t"), "probability", top_k=TopK("auction", 4), negative_sampling_rate=0.25),
        LogSpec(("s", "t"), "value", link="identity"),
        LogSpec(("s",)),
    ],
)
def test_every_description_survives_a_file(tmp_path, spec):
    scores, labels, weights, names = arrays(200, len(spec.scores))
    scores = logistic(scores) if spec.scale == "probability" else scores
    evidence = from_arrays(scores, labels, spec=spec, segments=names, sample_weight=weights)
    evidence = dataclasses.replace(evidence, sources=("a.csv", "Übung.parquet"), as_of="2026-11-15")
    evidence.save(tmp_path / "evidence.json")
    back = Evidence.load(tmp_path / "evidence.json")
    assert (back.spec, back.sources, back.as_of) == (evidence.spec, evidence.sources, evidence.as_of)
    assert back.to_dict() == evidence.to_dict()
    for text in ("", '{"kind": "affine", "schema_version": 2}'):
        (tmp_path / "evidence.json").write_text(text)
        with pytest.raises(UncurseError, match=r"evidence\.json"):
            Evidence.load(tmp_path / "evidence.json")


CONTENT = collected(size=3).to_dict()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec",), None),
        (("spec", "scores"), ["column 0"]),
        (("spec", "scores"), ["a", "b", "c", "d"]),
        (("spec", "scale"), "odds"),
        (("spec", "top_k"), {"request": "auction", "k": 0}),
        (("spec", "unknown"), 2.0),
        (("sources",), None),
        (("segments",), []),
        (("segments", "a"), None),
        (("as_of",), "yesterday"),
        (("moments",), {}),
        (("moments", "mean"), [0.0]),
        (("served",), {}),
        (("replicas",), 3),
        (("replicas", "label"), [0.0]),
        (("replicas", "columns"), 2),
    ],
)
def test_inconsistent_content_is_refused(place, value):
    content = copy.deepcopy(CONTENT)
    target = content
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    with pytest.raises(UncurseError):
        Evidence.from_dict(content)
