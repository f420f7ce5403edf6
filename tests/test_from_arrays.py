"""`from_arrays`, `pool_evidence` and `labelled_evidence`: conversion of arrays to evidence."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from uncurse import Cells, Moments, ReplicaCounts, UncurseError
from uncurse.evidence import LogSpec, TopK, from_arrays
from uncurse.evidence.from_arrays import EvidenceSums, Parts, column_names, labelled_evidence, pool_evidence
from uncurse.links import logistic


def arrays(rows=500, size=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, rows)
    scores = truth[:, None] + rng.normal(0, 0.4, (rows, size))
    return scores, (rng.random(rows) < logistic(truth)).astype(np.int8), rng.exponential(size=rows)


def assert_equal_content(a, b):
    """Equal content; the layout of the memory may only change the rounding of dot products."""
    left, right = a.to_dict(), b.to_dict()
    pairs = [(left, right), *((left["groups"][name], right["groups"][name]) for name in right["groups"])]
    for one, two in pairs:
        for name in ("column_sums", "weight_squares"):
            sums, expected = (content["replica_counts"].pop(name) for content in (one, two))
            np.testing.assert_allclose(sums, expected, rtol=1e-13)
    assert left == right


# ---------------------------------------------------------------------------- from_arrays


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [2, 3])
def test_every_part_equals_that_of_its_own_class(size, weighted, labelled):
    scores, y, w = arrays(size=size)
    y, w = (y if labelled else None), (w if weighted else None)
    evidence = from_arrays(scores, y, sample_weight=w, replica_counts=True)
    assert evidence.moments.to_dict() == Moments().update(scores, sample_weight=w).to_dict()
    assert evidence.cells.to_dict() == Cells().update(scores[:, 0], y, sample_weight=w).to_dict()
    assert evidence.replica_counts.to_dict() == ReplicaCounts().update(scores, y, sample_weight=w).to_dict()
    names = ("column 0", "column 1", "column 2")[:size]
    expected = LogSpec(names, label="label" if labelled else None, weight="weight" if weighted else None)
    assert evidence.spec == expected
    assert (evidence.rows, evidence.groups, evidence.sources) == (500, {}, ())


@pytest.mark.parametrize("cells", [False, True])
@pytest.mark.parametrize("replica_counts", [False, True])
def test_only_the_requested_parts_are_built(cells, replica_counts):
    evidence = from_arrays(arrays()[0], cells=cells, replica_counts=replica_counts)
    assert (evidence.cells is not None, evidence.replica_counts is not None) == (cells, replica_counts)
    assert evidence.moments.rows == evidence.rows == 500


def test_one_column_with_a_probability_of_one_has_cells_and_no_moments():
    spec = LogSpec(("s",), "probability")
    evidence = from_arrays([[0.5], [1.0]], [0, 1], spec=spec)
    assert (evidence.rows, evidence.moments.rows) == (2, 0)
    sums = EvidenceSums(spec, Parts(cells=True))
    for score in (0.5, 1.0, 0.2):
        sums.add(np.array([[score]]), None, None)
    assert (sums.evidence().rows, sums.evidence().moments.rows) == (3, 0)
    with pytest.raises(UncurseError, match=r"exactly 0 or 1"):
        from_arrays([[0.5, 0.5], [1.0, 0.5]], spec=LogSpec(("s", "t"), "probability"))
    with pytest.raises(UncurseError, match=r"exactly 0 or 1"):
        from_arrays([[0.5], [1.0]], spec=spec, cells=False)


def test_one_column_has_cells_and_moments():
    scores, y, _ = arrays()
    evidence = from_arrays(scores[:, :1], y)
    assert (evidence.rows, evidence.moments.rows) == (500, 500)
    assert from_arrays(scores[:, :1], cells=False).moments.rows == 500


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.tolist(),
        lambda x: tuple(map(tuple, x.tolist())) if x.ndim == 2 else tuple(x.tolist()),
        lambda x: pd.DataFrame(x) if x.ndim == 2 else pd.Series(x),
        lambda x: pl.DataFrame(x) if x.ndim == 2 else pl.Series(x),
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=0)[::2],
        lambda x: np.ma.masked_array(x),
    ],
    ids=["list", "tuple", "pandas", "polars", "Fortran order", "strided", "masked array without masks"],
)
def test_lists_and_frames_give_the_evidence_of_arrays(convert):
    scores, y, w = arrays(200, 3)
    groups = np.where(scores[:, 0] > -1, "high", "low")
    expected = from_arrays(scores, y, groups=groups, sample_weight=w, replica_counts=True)
    evidence = from_arrays(
        convert(scores), convert(y), groups=groups.tolist(), sample_weight=convert(w), replica_counts=True
    )
    assert_equal_content(evidence, expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8, np.uint16, np.int64, bool, np.longdouble])
def test_every_numeric_type_is_accepted(dtype):
    scores = np.random.default_rng(0).integers(0, 4, (90, 2)).astype(dtype)
    expected = from_arrays(scores.astype(np.float64), replica_counts=True)
    assert from_arrays(scores, replica_counts=True).to_dict() == expected.to_dict()


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float32])
def test_labels_of_every_numeric_type_are_accepted(dtype):
    scores, y, _ = arrays()
    assert from_arrays(scores, y.astype(dtype)).to_dict() == from_arrays(scores, y).to_dict()


def test_inputs_are_not_changed():
    scores, y, w = arrays()
    copies = scores.copy(), y.copy(), w.copy()
    from_arrays(scores, y, sample_weight=1e200 * w, groups=y, replica_counts=True)
    from_arrays(scores, y, sample_weight=w, groups=y, replica_counts=True)
    for array, copy in zip((scores, y, w), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_a_description_decides_scale_link_and_names():
    scores, y, w = arrays()
    spec = LogSpec(("s", "t"), "probability", label="click", weight="w", link="probit", negative_rate=0.2)
    evidence = from_arrays(logistic(scores), y, spec=spec, sample_weight=w, replica_counts=True)
    assert evidence.spec == spec
    offset = np.log(0.2)
    np.testing.assert_allclose(evidence.cells.score, np.sort(scores[:, 0]) + offset, rtol=1e-12)
    np.testing.assert_allclose(evidence.replica_counts.column_sums, w @ (scores + offset), rtol=1e-12)
    options = {"scale": "probability", "sample_weight": w, "logit_offset": offset}
    expected = Moments("probit").update(logistic(scores), **options)
    assert evidence.moments.to_dict() == expected.to_dict()
    bare = from_arrays(logistic(scores), spec=spec)
    assert (bare.spec.label, bare.spec.weight, bare.spec.group) == (None, None, None)


def test_values_have_moments_only():
    scores, y, _ = arrays()
    evidence = from_arrays(scores, y, spec=LogSpec(("s", "t"), "value", link="identity"))
    assert evidence.cells is None
    np.testing.assert_allclose(evidence.moments.mean, scores.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("factor", [1e-300, 1e-160, 1 / 500, 1.0, 1e20, 1e160, 1e299])
def test_only_ratios_of_weights_matter(factor):
    scores, y, w = arrays(size=3)
    w = w / w.max()
    groups = np.where(scores[:, 1] > -1.5, "a", "b")
    expected = from_arrays(scores, y, sample_weight=w, groups=groups, replica_counts=True)
    evidence = from_arrays(scores, y, sample_weight=factor * w, groups=groups, replica_counts=True)
    for ours, theirs in [(evidence, expected), *((evidence.groups[g], expected.groups[g]) for g in "ab")]:
        np.testing.assert_allclose(ours.moments.mean, theirs.moments.mean, rtol=1e-11)
        np.testing.assert_allclose(ours.moments.covariance, theirs.moments.covariance, rtol=1e-11)
        for part in ("moments", "cells"):
            effective = getattr(theirs, part).effective_rows
            assert getattr(ours, part).effective_rows == pytest.approx(effective, rel=1e-9)
        cells, wanted = ours.replica_counts.cells(), theirs.replica_counts.cells()
        assert cells.effective_rows == pytest.approx(wanted.effective_rows, rel=1e-9)
        np.testing.assert_allclose(cells.gap, wanted.gap, rtol=1e-9)
        np.testing.assert_allclose(cells.row_weights()[1], wanted.row_weights()[1], rtol=1e-9)


def test_equal_weights_equal_no_weights():
    scores, y, _ = arrays()
    groups = np.where(scores[:, 1] > -1.5, "a", "b")
    for weight in (1e-300, 1 / 500, 7.0, 1e300):
        evidence = from_arrays(scores, y, sample_weight=np.full(500, weight), groups=groups, replica_counts=True)
        assert evidence.moments.effective_rows == pytest.approx(500)
        assert evidence.cells.effective_rows == pytest.approx(500)
        assert evidence.replica_counts.cells().effective_rows == pytest.approx(500)
        assert evidence.groups["a"].moments.effective_rows == pytest.approx((groups == "a").sum())


# ---------------------------------------------------------------------------- groups


@pytest.mark.parametrize("weighted", [False, True])
def test_the_evidence_of_a_group_is_that_of_its_rows(weighted):
    scores, y, w = arrays(1_000, 3)
    groups = np.random.default_rng(1).choice(["de", "fr", "it"], 1_000, p=[0.7, 0.2, 0.1])
    w = w if weighted else None
    evidence = from_arrays(scores, y, groups=groups, sample_weight=w, replica_counts=True)
    assert evidence.spec.group == "group"
    assert list(evidence.groups) == ["de", "fr", "it"]
    assert sum(part.rows for part in evidence.groups.values()) == 1_000
    for name, part in evidence.groups.items():
        here = groups == name
        own = from_arrays(scores[here], y[here], sample_weight=None if w is None else w[here], replica_counts=True)
        assert part.spec == evidence.spec
        np.testing.assert_allclose(part.moments.mean, own.moments.mean, rtol=1e-12)
        np.testing.assert_allclose(part.moments.covariance, own.moments.covariance, rtol=1e-12)
        assert part.cells.to_dict() == own.cells.to_dict()
        assert part.replica_counts.level == evidence.replica_counts.level
        assert part.replica_counts.to_dict() == own.replica_counts.coarsened(part.replica_counts.level).to_dict()


@pytest.mark.parametrize(
    ("groups", "names"),
    [([1, 2, 1, 2], ["1", "2"]), ([1.0, 2.5, 1.0, 2.5], ["1", "2.5"]), ([True, False, True, False], ["False", "True"])],
)
def test_groups_of_numbers_are_named_by_them(groups, names):
    assert list(from_arrays(arrays(4)[0], groups=groups).groups) == names


def test_a_group_of_zero_weight_is_omitted():
    scores, y, _ = arrays(4)
    evidence = from_arrays(scores, y, groups=["a", "a", "b", "b"], sample_weight=[1.0, 2.0, 0.0, 0.0])
    assert list(evidence.groups) == ["a"]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a", "b"], r"groups has shape \(2,\) but there are 4 rows; pass shape \(4,\)"),
        (["a", "b", None, "c"], r"groups\[2\] is None; fill missing values"),
        ([1.0, np.nan, 2.0, 3.0], r"groups\[1\] is nan; fill missing values"),
        ([["a", "b"]] * 4, r"groups has shape \(4, 2\) but there are 4 rows"),
        ("abcd", r"groups has shape \(\)"),
    ],
)
def test_invalid_groups_are_refused(groups, message):
    with pytest.raises(UncurseError, match=message):
        from_arrays(arrays(4)[0], groups=groups)


# ---------------------------------------------------------------------------- invalid arrays


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.0, 1.0], r"the scores have shape \(2,\); pass rows \(n, S\) with the served model in column 0"),
        (5, r"the scores have shape \(\)"),
        (np.zeros((2, 2, 2)), r"the scores have shape \(2, 2, 2\)"),
        (np.zeros((0, 2)), r"the scores have shape \(0, 2\)"),
        (np.zeros((2, 0)), r"the scores have shape \(2, 0\)"),
        ([], r"the scores have shape \(0,\)"),
        ([[1, 2], [3]], "scores must be an array of numbers, not list"),
        ("abc", "scores must be an array of numbers, not str"),
        (None, "scores must be an array of numbers, not NoneType"),
        ({"a": [1.0]}, "scores must be an array of numbers, not dict"),
        ([["a", "b"]], "scores must be an array of numbers, not list"),
        ([[1j, 2.0]], "scores must be an array of numbers, not list"),
        ([[None, 2.0]], "scores must be an array of numbers, not list"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "scores must be an array of numbers, not ndarray"),
        (np.ma.masked_array([[0.0, 1.0]], [[True, False]]), "scores has masked values; drop or fill those rows first"),
        ([[0.0, np.nan]], r"\[0, 1\] is nan \(1 such values\); drop or repair those rows first"),
        ([[0.0, 1.0], [-np.inf, 1.0]], r"\[1, 0\] is -inf \(1 such values\)"),
        (
            [[1e300, 0.0], [1.0, 2.0]],
            r"\[0, 0\] is 1e\+300 beyond ±1e\+75 \(1 such values\); drop or repair those rows first",
        ),
        (np.zeros((2, 2_000)), "there are 2000 score columns; columns are replicas: pass the transpose"),
    ],
)
@pytest.mark.parametrize("replica_counts", [False, True])
def test_invalid_scores_are_refused(scores, message, replica_counts):
    with pytest.raises(UncurseError, match=message):
        from_arrays(scores, replica_counts=replica_counts)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0]}, r"labels has shape \(1,\) but there are 3 rows"),
        ({"labels": [0, 1, 2]}, r"labels\[2\] is 2.*; labels must be 0 or 1"),
        ({"labels": [0, 1, np.nan]}, r"labels\[2\] is nan; labels must be 0 or 1"),
        ({"labels": ["0", "1", "0"]}, "labels must be an array of numbers"),
        ({"labels": [[0], [1], [0]]}, r"labels has shape \(3, 1\)"),
        ({"labels": 1}, r"labels has shape \(\)"),
        ({"sample_weight": [1.0]}, r"sample_weight has shape \(1,\) but there are 3 rows"),
        ({"sample_weight": [1.0, -1.0, 1.0]}, "sample_weight holds -1; weights must be 0 or more"),
        ({"sample_weight": [0.0, 0.0, 0.0]}, "every sample_weight is zero; give some row a positive weight"),
        ({"sample_weight": [1.0, np.inf, 1.0]}, r"sample_weight\[1\] is inf"),
        ({"sample_weight": ["a", "b", "c"]}, "sample_weight must be an array of numbers"),
        ({"sample_weight": [1e305, 1.0, 1.0]}, "the largest sample_weight is 1e.305; rescale the weights"),
        ({"spec": LogSpec(("a",))}, "there are 2 score columns, not 1; pass the same columns"),
        ({"spec": ("a", "b")}, "spec is a tuple; pass a LogSpec"),
        ({"spec": "a"}, "spec is a str; pass a LogSpec"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(UncurseError, match=message):
        from_arrays(arrays(3)[0], **options)


@pytest.mark.parametrize("replica_counts", [False, True])
@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_probabilities_of_0_and_1_are_refused(replica_counts, bad):
    p = logistic(arrays(50)[0])
    p[17, 1] = bad
    with pytest.raises(UncurseError, match=r"1 probabilities of the pool are exactly 0 or 1.*clip them first"):
        from_arrays(p, spec=LogSpec(("s", "t"), "probability"), replica_counts=replica_counts)


def test_replica_counts_need_two_columns_of_logits_or_probabilities():
    scores = arrays()[0]
    with pytest.raises(
        UncurseError, match=r"replica counts need two or more columns .* not column 0 with scale='logit'"
    ):
        from_arrays(scores[:, :1], replica_counts=True)
    with pytest.raises(UncurseError, match=r"replica counts need two or more columns .* scale='value'"):
        from_arrays(scores, spec=LogSpec(("s", "t"), "value", link="identity"), replica_counts=True)


def test_logits_that_look_like_probabilities_raise_a_warning():
    p = logistic(arrays()[0])
    with pytest.warns(
        UserWarning, match=r"every value of the scores lies in \[0, 1\].*set the scale to probability"
    ) as seen:
        from_arrays(p)
    assert [warning.filename for warning in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays(p, spec=LogSpec(("s", "t"), "probability"))
        from_arrays(p[:99])
        from_arrays(arrays()[0])


def test_column_names_count_from_zero():
    assert column_names(3) == ("column 0", "column 1", "column 2")
    assert len(set(column_names(1_000))) == 1_000


# ---------------------------------------------------------------------------- pools


@pytest.mark.parametrize("form", ["array", "list", "pandas"])
def test_a_pool_of_an_array_is_converted(form):
    scores, _, w = arrays()
    pool = {"array": scores, "list": scores.tolist(), "pandas": pd.DataFrame(scores)}[form]
    evidence = pool_evidence(pool, None, scale="logit", sample_weight=w, cells=True, replica_counts=True)
    assert_equal_content(evidence, from_arrays(scores, sample_weight=w, replica_counts=True))


def test_a_pool_of_evidence_is_used_as_it_is():
    evidence = from_arrays(arrays()[0])
    assert pool_evidence(evidence, None, scale="logit") is evidence


def test_an_array_takes_the_column_names_of_labelled_evidence():
    scores, y, _ = arrays()
    labelled = from_arrays(scores, y, spec=LogSpec(("s", "t")))
    assert pool_evidence(scores, labelled, scale="logit").spec.scores == ("s", "t")
    assert pool_evidence(arrays(size=3)[0], labelled, scale="logit").spec.scores == column_names(3)


@pytest.mark.parametrize(
    ("spec", "options", "message"),
    [
        (
            LogSpec(("s", "t")),
            {"scale": "probability"},
            "evidence of the pool was collected with scale='logit', not 'probability'",
        ),
        (LogSpec(("s", "t")), {"link": "probit"}, "collected with link='logistic', not 'probit'"),
        (LogSpec(("s", "t")), {"negative_rate": 0.5}, "collected with negative_rate=None, not 0.5"),
        (LogSpec(("s", "t"), negative_rate=0.1), {}, "collected with negative_rate=0.1, not None"),
        (
            LogSpec(("s", "t"), top_k=TopK("auction", 2)),
            {},
            "the pool holds only the top 2 of each auction; collect all",
        ),
        (LogSpec(("s", "t")), {"groups": ["a"] * 500}, "groups and sample_weight go with arrays"),
        (LogSpec(("s", "t")), {"sample_weight": [1.0] * 500}, "groups and sample_weight go with arrays"),
    ],
)
def test_a_pool_of_evidence_that_contradicts_the_options_is_refused(spec, options, message):
    with pytest.raises(UncurseError, match=message):
        pool_evidence(from_arrays(arrays()[0], spec=spec), None, **{"scale": "logit", **options})


@pytest.mark.parametrize("pool", [5, None, "abc", {"a": [1.0]}, Moments(), [[1.0], [1.0, 2.0]], [0.0, 1.0], []])
def test_a_pool_of_another_type_is_refused(pool):
    with pytest.raises(UncurseError, match=r"must be an array of numbers|the scores have shape"):
        pool_evidence(pool, None, scale="logit")


# ---------------------------------------------------------------------------- labelled rows


@pytest.mark.parametrize("container", [tuple, list])
@pytest.mark.parametrize("weighted", [False, True])
def test_labelled_tuples_are_converted(container, weighted):
    scores, y, w = arrays()
    pool = from_arrays(scores, spec=LogSpec(("s", "t")), groups=y)
    labelled = labelled_evidence(
        container((scores, y, w) if weighted else (scores, y)), pool, cells=True, replica_counts=True
    )
    expected = from_arrays(
        scores, y, spec=LogSpec(("s", "t")), sample_weight=w if weighted else None, replica_counts=True
    )
    assert labelled.to_dict() == expected.to_dict()


def test_labelled_frames_are_converted():
    scores, y, _ = arrays()
    pool = from_arrays(scores)
    expected = labelled_evidence((scores, y), pool, cells=True)
    assert labelled_evidence((pd.DataFrame(scores), pd.Series(y)), pool, cells=True).to_dict() == expected.to_dict()
    assert labelled_evidence((scores.tolist(), y.tolist()), pool, cells=True).to_dict() == expected.to_dict()


def test_none_as_weights_of_a_labelled_tuple_means_no_weights():
    scores, y, _ = arrays()
    pool = from_arrays(scores)
    expected = labelled_evidence((scores, y), pool, cells=True)
    assert labelled_evidence((scores, y, None), pool, cells=True).to_dict() == expected.to_dict()


@pytest.mark.parametrize(
    "labelled",
    [None, [], (), 5, "ab", (np.zeros((3, 2)),), (np.zeros((3, 2)), None), (1, 2, 3, 4), {"scores": 1, "labels": 2}],
)
def test_labelled_rows_of_another_form_are_refused(labelled):
    with pytest.raises(UncurseError, match=r"labelled must be \(scores, labels\), \(scores, labels, weights\) or Evid"):
        labelled_evidence(labelled, from_arrays(arrays()[0]))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.zeros((3, 3)), r"the labelled scores have shape \(3, 3\); pass the 2 replicas of the pool, shape \(m, S\)"),
        (np.zeros((3, 1)), r"the labelled scores have shape \(3, 1\)"),
        (np.zeros(3), r"the labelled scores have shape \(3,\)"),
        (5, r"the labelled scores have shape \(\)"),
        ("abc", "labelled scores must be an array of numbers"),
        (np.full((3, 2), np.nan), r"\[0, 0\] is nan"),
    ],
)
def test_labelled_scores_of_another_shape_are_refused(scores, message):
    with pytest.raises(UncurseError, match=message):
        labelled_evidence((scores, [0, 1, 0]), from_arrays(arrays()[0]), cells=True)


@pytest.mark.parametrize(("labels", "missing"), [([0, 0, 0], "positives"), ([1, 1, 1], "negatives")])
@pytest.mark.parametrize("parts", [{"cells": True}, {"replica_counts": True}, {"cells": True, "replica_counts": True}])
def test_labels_of_one_class_are_refused(labels, missing, parts):
    scores = arrays(3)[0]
    pool = from_arrays(arrays()[0])
    message = f"the labels have no {missing}; add rows until both classes occur"
    with pytest.raises(UncurseError, match=message):
        labelled_evidence((scores, labels), pool, **parts)
    with pytest.raises(UncurseError, match=message):
        labelled_evidence(from_arrays(scores, labels, **{"cells": False, **parts}), pool, **parts)


def test_labelled_evidence_is_used_as_it_is():
    scores, y, _ = arrays()
    labelled = from_arrays(scores, y)
    assert labelled_evidence(labelled, from_arrays(scores), cells=True) is labelled


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (LogSpec(("s", "u")), "have different columns: scores is s, t in one and s, u in the other"),
        (LogSpec(("t", "s")), "pool and labelled rows have different columns"),
        (
            LogSpec(("s", "t"), "probability"),
            "evidence of the labelled rows was collected with scale='probability', not 'logit'",
        ),
        (
            LogSpec(("s", "t"), link="probit"),
            "evidence of the labelled rows was collected with link='probit', not 'logistic'",
        ),
        (
            LogSpec(("s", "t"), negative_rate=0.5),
            "evidence of the labelled rows was collected with negative_rate=0.5, not None",
        ),
    ],
)
def test_labelled_evidence_with_other_options_is_refused(spec, message):
    scores, y, _ = arrays()
    labelled = from_arrays(logistic(scores) if spec.scale == "probability" else scores, y, spec=spec)
    with pytest.raises(UncurseError, match=message):
        labelled_evidence(labelled, from_arrays(scores, spec=LogSpec(("s", "t"))))


def test_labelled_evidence_may_be_a_selection_of_the_pool():
    scores, y, _ = arrays()
    selected = from_arrays(scores[:90], y[:90], spec=LogSpec(("s", "t"), top_k=TopK("auction")))
    assert labelled_evidence(selected, from_arrays(scores, spec=LogSpec(("s", "t")))) is selected


def test_labelled_evidence_needs_labels_and_cells():
    scores, y, _ = arrays()
    pool = from_arrays(scores)
    with pytest.raises(UncurseError, match="the labelled evidence holds no labels; collect it with its label column"):
        labelled_evidence(from_arrays(scores), pool)
    with pytest.raises(UncurseError, match="this evidence has no cells; collect logits or probabilities"):
        labelled_evidence(from_arrays(scores, y, cells=False), pool, cells=True)
