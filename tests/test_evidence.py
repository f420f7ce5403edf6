"""`Evidence`: merging, saving, loading and checks of the content."""

import copy
import dataclasses
import json

import numpy as np
import pytest

from uncurse import Cells, Moments, ReplicaCounts, UncurseError
from uncurse.evidence import Evidence, LogSpec, TopK, from_arrays, merged
from uncurse.links import logistic

SPEC = LogSpec(("served", "twin"))


def arrays(rows, size=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, size))
    labels = (rng.random(rows) < logistic(truth)).astype(np.int8)
    return scores, labels, rng.exponential(size=rows), np.where(rng.random(rows) < 0.3, "a", "b")


def collected(rows=300, seed=0, *, size=2, weights=False, groups=False, spec=None, **parts):
    scores, labels, w, names = arrays(rows, size, seed)
    return from_arrays(
        scores,
        labels,
        spec=spec,
        sample_weight=w if weights else None,
        groups=names if groups else None,
        **{"replica_counts": True, **parts},
    )


def assert_equal_evidence(a, b, rtol=1e-12):
    assert (a.spec, a.rows, a.sources, a.groups.keys()) == (b.spec, b.rows, b.sources, b.groups.keys())
    assert a.moments.rows == b.moments.rows
    assert a.moments.effective_rows == pytest.approx(b.moments.effective_rows, rel=rtol)
    np.testing.assert_allclose(a.moments.mean, b.moments.mean, rtol=rtol)
    np.testing.assert_allclose(a.moments.covariance, b.moments.covariance, rtol=rtol)
    assert (a.cells is None, a.replica_counts is None) == (b.cells is None, b.replica_counts is None)
    parts = [(a.cells, b.cells)] if a.cells is not None else []
    if a.replica_counts is not None:
        assert a.replica_counts.level == b.replica_counts.level
        np.testing.assert_array_equal(a.replica_counts._keys, b.replica_counts._keys)
        assert a.replica_counts.rows == b.replica_counts.rows
        parts.append((a.replica_counts.cells(), b.replica_counts.cells()))
    for left, right in parts:
        assert left.effective_rows == pytest.approx(right.effective_rows, rel=rtol)
        np.testing.assert_allclose(left.weight, right.weight, rtol=rtol)
        assert (left.label is None) == (right.label is None)
        if left.label is not None:
            np.testing.assert_allclose(left.label, right.label, rtol=rtol, atol=1e-14)
    for name in a.groups:
        assert_equal_evidence(a.groups[name], b.groups[name], rtol)


# ---------------------------------------------------------------------------- merging


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_merged_parts_equal_one_pass_in_any_order(size, weights, groups):
    scores, y, w, names = arrays(2_000, size)

    def part(rows):
        return from_arrays(
            scores[rows],
            y[rows],
            sample_weight=w[rows] if weights else None,
            groups=names[rows] if groups else None,
            replica_counts=True,
        )

    parts = [part(rows) for rows in np.split(np.arange(2_000), [1, 11, 700, 1_500])]
    before = [one.to_dict() for one in parts]
    expected = part(np.arange(2_000))
    assert_equal_evidence(merged(parts), expected)
    assert_equal_evidence(merged(parts[::-1]), expected)
    assert_equal_evidence(parts[0].merge(parts[1]).merge(parts[2].merge(parts[3]).merge(parts[4])), expected)
    assert [one.to_dict() for one in parts] == before


def test_a_merge_returns_a_new_object_and_changes_neither_side():
    a, b = collected(300, 0, groups=True), collected(200, 1, groups=True)
    before = a.to_dict(), b.to_dict()
    both = a.merge(b)
    assert both is not a
    assert both.rows == 500
    both.moments.update([[0.0, 1.0]])
    both.cells.update([0.0], [1])
    both.replica_counts.update([[0.0, 1.0]], [1])
    both.merge(a).merge(both)
    assert (a.to_dict(), b.to_dict()) == before


def test_evidence_can_be_merged_with_itself():
    evidence = collected(300, groups=True)
    scores, y, _, names = arrays(300)
    twice = from_arrays(np.tile(scores, (2, 1)), np.tile(y, 2), groups=np.tile(names, 2), replica_counts=True)
    assert_equal_evidence(evidence.merge(evidence), twice)


def test_evidence_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        collected().spec = SPEC


OTHER_SPECS = {
    "scores": LogSpec(("column 0", "other"), label="label"),
    "scale": LogSpec(("column 0", "column 1"), "probability", label="label"),
    "label": LogSpec(("column 0", "column 1"), label="click"),
    "weight": LogSpec(("column 0", "column 1"), label="label", weight="w"),
    "group": LogSpec(("column 0", "column 1"), label="label", group="country"),
    "top_k": LogSpec(("column 0", "column 1"), label="label", top_k=TopK("request", 3)),
    "link": LogSpec(("column 0", "column 1"), label="label", link="probit"),
    "negative_rate": LogSpec(("column 0", "column 1"), label="label", negative_rate=0.1),
}


def assert_refused(a, b, message):
    before = a.to_dict(), b.to_dict()
    for one, two in ((a, b), (b, a)):
        with pytest.raises(UncurseError, match=message):
            one.merge(two)
        assert (a.to_dict(), b.to_dict()) == before


def test_every_field_of_the_description_is_compared():
    assert set(OTHER_SPECS) == {field.name for field in dataclasses.fields(LogSpec)}


@pytest.mark.parametrize("name", OTHER_SPECS)
def test_evidence_of_different_descriptions_is_not_merged(name):
    other = dataclasses.replace(collected(200, 1), spec=OTHER_SPECS[name])
    assert_refused(collected(), other, rf"cannot merge evidence: {name} is .* in one and .* in the other; collect both")


@pytest.mark.parametrize("part", ["cells", "replica_counts"])
def test_evidence_with_different_parts_is_not_merged(part):
    options = {"cells": True, "replica_counts": True, part: False}
    message = f"cannot merge evidence: only one side has {part}; collect both with the same options"
    assert_refused(collected(), collected(200, 1, **options), message)


def test_a_merge_that_a_part_refuses_changes_neither_side():
    a, b = collected(), collected(200, 1)
    exact = dataclasses.replace(a, cells=Cells(exact=True).update([0.0, 1.0], [0, 1]))
    grid = dataclasses.replace(b, cells=Cells(exact=False).update([0.0, 1.0], [0, 1]))
    before = exact.to_dict(), grid.to_dict()
    with pytest.raises(UncurseError, match="cannot merge cells of a grid into exact ones"):
        exact.merge(grid)
    assert (exact.to_dict(), grid.to_dict()) == before
    unlabelled = dataclasses.replace(b, replica_counts=ReplicaCounts().update([[0.0, 1.0]]))
    assert_refused(a, unlabelled, "some of these rows have labels and some have none")
    probit = dataclasses.replace(b, moments=Moments("probit").update([[0.0, 1.0]]))
    assert_refused(a, probit, "cannot merge moments of the")


def test_groups_of_one_side_are_kept_and_common_groups_are_merged():
    scores, y, _, _ = arrays(400)

    def named(rows, names):
        return from_arrays(scores[rows], y[rows], groups=names, replica_counts=True)

    a = named(slice(0, 200), np.repeat(["x", "y"], 100))
    b = named(slice(200, 400), np.repeat(["y", "z"], 100))
    expected = named(slice(0, 400), np.repeat(["x", "y", "z"], [100, 200, 100]))
    for both in (a.merge(b), b.merge(a)):
        assert {name: part.rows for name, part in both.groups.items()} == {"x": 100, "y": 200, "z": 100}
        for name in "xyz":
            assert_equal_evidence(both.groups[name], expected.groups[name])


def test_groups_collected_without_a_part_are_merged_without_it():
    a, b = collected(300, 0, groups=True), collected(300, 1, groups=True)
    bare = {name: dataclasses.replace(part, cells=None, replica_counts=None) for name, part in b.groups.items()}
    both = a.merge(dataclasses.replace(b, groups=bare))
    for name in "ab":
        assert both.groups[name].moments.rows == a.groups[name].rows + b.groups[name].rows
        assert (both.groups[name].cells, both.groups[name].replica_counts) == (None, None)


def test_sources_are_joined_and_a_repeated_source_raises_a_warning():
    a, b = (dataclasses.replace(collected(100, seed), sources=(f"{seed}.csv",)) for seed in (0, 1))
    assert a.merge(b).sources == ("0.csv", "1.csv")
    with pytest.warns(UserWarning, match=r"0\.csv is a source of both; if its rows are the same they count twice"):
        assert a.merge(a).rows == 200


@pytest.mark.parametrize("other", [None, 3, "evidence", {}, Moments()])
def test_only_evidence_merges_with_evidence(other):
    with pytest.raises(UncurseError, match=r"cannot merge evidence with a .*; pass Evidence"):
        collected(50).merge(other)
    with pytest.raises(UncurseError, match=r"cannot merge evidence with a .*; pass Evidence"):
        merged([other])


def test_merging_an_empty_list_is_an_error():
    with pytest.raises(UncurseError, match="there is no evidence to merge; pass at least one"):
        merged([])


@pytest.mark.parametrize(("part", "words"), [("cells", "no cells"), ("replica_counts", "no replica counts")])
def test_a_missing_part_is_named_with_a_remedy(part, words):
    bare = Evidence(SPEC, Moments().update([[0.0, 1.0]]))
    with pytest.raises(UncurseError, match=f"this evidence has {words}; collect it again"):
        bare.require(part, "collect it again")
    evidence = collected()
    assert evidence.require(part, "") is getattr(evidence, part)


# ---------------------------------------------------------------------------- files


def saved(evidence, tmp_path):
    path = tmp_path / "evidence.json"
    evidence.save(path)
    return path


@pytest.mark.parametrize("cells", [True, False])
@pytest.mark.parametrize("replica_counts", [True, False])
@pytest.mark.parametrize("groups", [True, False])
@pytest.mark.parametrize("weights", [True, False])
def test_a_saved_file_loads_as_equal_evidence(tmp_path, cells, replica_counts, groups, weights):
    evidence = collected(400, weights=weights, groups=groups, cells=cells, replica_counts=replica_counts, size=3)
    evidence = dataclasses.replace(evidence, sources=("a.csv", "Übung.parquet"))
    back = Evidence.load(saved(evidence, tmp_path))
    assert back.to_dict() == evidence.to_dict()
    assert_equal_evidence(back, evidence, rtol=0)
    bare = dataclasses.replace(evidence, sources=())
    assert bare.merge(back).to_dict() == bare.merge(evidence).to_dict()


@pytest.mark.parametrize(
    "spec",
    [
        LogSpec(("s", "t"), "probability", top_k=TopK("auction", 4), negative_rate=0.25),
        LogSpec(("s", "t"), "value", link="identity"),
        LogSpec(("s", "t"), link="probit"),
        LogSpec(("s",)),
    ],
)
def test_every_description_survives_a_file(tmp_path, spec):
    scores = logistic(arrays(200)[0])[:, : len(spec.scores)] if spec.scale == "probability" else arrays(200)[0]
    evidence = from_arrays(scores[:, : len(spec.scores)], spec=spec)
    assert Evidence.load(saved(evidence, tmp_path)).to_dict() == evidence.to_dict()
    assert Evidence.load(tmp_path / "evidence.json").spec == spec


def test_a_file_has_a_checksum(tmp_path):
    content = json.loads(saved(collected(20), tmp_path).read_text())
    assert (content["kind"], content["schema_version"]) == ("evidence", 2)
    assert len(content["checksum"]) == 8


def test_every_damaged_byte_is_refused_or_changes_nothing(tmp_path):
    evidence = from_arrays([[0.25, 1.0], [-1.5, 0.5]], [0, 1], replica_counts=True, spec=SPEC)
    path = saved(evidence, tmp_path)
    data, expected = path.read_bytes(), evidence.to_dict()
    accepted = 0
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        path.write_bytes(damaged)
        try:
            back = Evidence.load(path)
        except UncurseError:
            continue
        accepted += 1
        assert back.to_dict() == expected, place
    assert accepted < 0.02 * len(data)  # the name of the checksum, and a space between values


def test_every_truncated_file_is_refused(tmp_path):
    evidence = from_arrays([[0.25, 1.0]], replica_counts=True)
    path = saved(evidence, tmp_path)
    data = path.read_bytes()
    for length in range(0, len(data) - 1, 3):  # the last byte ends the line
        path.write_bytes(data[:length])
        with pytest.raises(UncurseError, match="is not valid JSON"):
            Evidence.load(path)


def test_an_edited_number_is_refused(tmp_path):
    path = saved(collected(50), tmp_path)
    content = json.loads(path.read_text())
    content["moments"]["scatter"][0][0][0] *= 1.5
    path.write_text(json.dumps(content))
    with pytest.raises(UncurseError, match="does not match its checksum, so it was damaged or edited; write it again"):
        Evidence.load(path)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_numbers_that_are_not_finite_are_refused_in_a_file(tmp_path, text):
    path = saved(collected(50), tmp_path)
    data = path.read_text()
    number = json.loads(data)["moments"]["mean"][0][0]
    assert data.count(repr(number)) >= 1
    path.write_text(data.replace(repr(number), text, 1))
    with pytest.raises(UncurseError, match="is not valid JSON"):
        Evidence.load(path)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "map.json"
    path.write_text('{"kind": "affine", "schema_version": 2, "slope": 1.0, "intercept": 0.0}')
    with pytest.raises(UncurseError, match="holds a 'affine'; pass evidence, which `uncurse collect` writes"):
        Evidence.load(path)


@pytest.mark.parametrize("path", [None, 3.5, "absent.json", "."])
def test_a_path_that_cannot_be_read_is_refused(path):
    with pytest.raises(UncurseError, match="cannot read"):
        Evidence.load(path)


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(UncurseError, match="cannot write"):
        collected(20).save(tmp_path / "absent" / "evidence.json")


# ---------------------------------------------------------------------------- content

CONTENT = collected(300, size=3, weights=True, groups=True).to_dict()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("spec",), None),
        (("spec",), []),
        (("spec", "scores"), ["column 0"]),
        (("spec", "scores"), ["column 0", "column 0", "column 1"]),
        (("spec", "scores"), ["a", "b", "c", "d"]),
        (("spec", "scores"), 3),
        (("spec", "scale"), "odds"),
        (("spec", "link"), "probit"),
        (("spec", "link"), "cloglog"),
        (("spec", "label"), None),
        (("spec", "label"), 3),
        (("spec", "top_k"), 3),
        (("spec", "top_k"), {"request": "auction", "k": 0}),
        (("spec", "negative_rate"), 2.0),
        (("spec", "unknown"), 2.0),
        (("sources",), None),
        (("sources",), 3),
        (("groups",), None),
        (("groups",), []),
        (("groups", "a"), None),
        (("groups", "a", "moments", "weight", 0), -1.0),
        (("groups", "a", "cells", "rows"), 10**30),
        (("moments",), None),
        (("moments",), {}),
        (("moments", "weight", 0), -1.0),
        (("moments", "rows", 0), 10**30),
        (("moments", "scatter", 0, 0, 1), 1e3),
        (("moments", "scatter", 0, 0, 0), -1e-3),
        (("moments", "mean", 0, 0), float("nan")),
        (("moments", "squares", 0), 0.0),
        (("cells",), {}),
        (("cells",), 3),
        (("cells", "rows"), 10**30),
        (("cells", "rows"), float("nan")),
        (("cells", "cut"), float("inf")),
        (("cells", "exact_table", 1, 0), -1.0),
        (("cells", "exact_table", 2, 0), 1e6),
        (("cells", "exact_keys", 0), 1e6),
        (("cells", "labelled"), False),
        (("cells", "scale"), "probability"),
        (("replica_counts",), {}),
        (("replica_counts",), 3),
        (("replica_counts", "level"), 99),
        (("replica_counts", "level"), -1),
        (("replica_counts", "rows"), 10**30),
        (("replica_counts", "weight_squares"), 0.0),
        (("replica_counts", "weight", 0), -1.0),
        (("replica_counts", "label", 0), 1e6),
        (("replica_counts", "labelled"), False),
        (("replica_counts", "served", 0), 1 << 40),
        (("replica_counts", "column_sums", 0), float("inf")),
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


def test_replica_counts_of_other_columns_are_refused():
    content = collected(300).to_dict()
    content["replica_counts"] = collected(300, size=3).to_dict()["replica_counts"]
    with pytest.raises(UncurseError, match="its replica counts do not fit its columns"):
        Evidence.from_dict(content)
    content = collected(300).to_dict()
    content["moments"] = collected(300, size=3).to_dict()["moments"]
    with pytest.raises(UncurseError, match="its moments do not fit its columns"):
        Evidence.from_dict(content)


@pytest.mark.parametrize("seed", range(3))
def test_random_edits_are_refused_or_give_evidence_that_can_be_used(seed):
    rng = np.random.default_rng(seed)
    values = [None, True, -1, 0, 10**30, 1e308, -1e308, 0.5, "x", [], {}, float("nan"), float("inf"), -(2**63), 2**53]
    for _ in range(120):
        content = copy.deepcopy(CONTENT)
        target, key = content, None
        while True:
            keys = list(target) if isinstance(target, dict) else range(len(target))
            if not len(keys):
                break
            key = list(keys)[rng.integers(len(keys))]
            if not isinstance(target[key], dict | list) or not target[key] or rng.random() < 0.1:
                break
            target = target[key]
        if key is None or not len(target):
            continue
        target[key] = values[rng.integers(len(values))]
        try:
            evidence = Evidence.from_dict(content)
        except UncurseError:
            continue
        assert np.isfinite(evidence.moments.covariance).all()
        if evidence.cells is not None:
            assert np.isfinite(evidence.cells.score).all()
            assert (evidence.cells.weight > 0).all()
        if evidence.replica_counts is not None:
            cells = evidence.replica_counts.cells()
            assert all(np.isfinite(x).all() for x in (cells.served, cells.gap, cells.spread, cells.levels))
            assert cells.effective_rows > 0


def test_repeated_rows_have_the_effective_number_of_different_rows():
    scores = np.random.default_rng(0).normal(size=(300, 2))
    once = from_arrays(scores, replica_counts=True)
    twice = from_arrays(np.concatenate([scores, scores]), replica_counts=True).repeated(2)
    assert twice.moments.effective_rows == pytest.approx(300)
    assert twice.replica_counts.cells().effective_rows == pytest.approx(300)
    assert once.replica_counts.cells().effective_rows == pytest.approx(300)  # unchanged
    np.testing.assert_allclose(twice.moments.covariance, once.moments.covariance)
    assert twice.cells is None
