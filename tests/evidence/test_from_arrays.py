"""Arrays as evidence: pools and labeled rows."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

from uncurse import UncurseError
from uncurse.evidence import Histogram, LogSpec, Moments, from_arrays
from uncurse.links import LINKS, logistic


def arrays(rows=500, size=2, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.5, 0.8, (rows, 1))
    scores = truth + rng.normal(0, 0.4, (rows, size))
    return scores, (rng.random(rows) < logistic(truth[:, 0])).astype(int), rng.integers(0, 4, rows) / 2


def assert_same(one, other):
    """Compare evidence of the same rows; sums may differ by rounding, because the memory is laid out differently."""
    left, right = one.to_dict(), other.to_dict()
    assert left["spec"] == right["spec"]
    for name in ("served", "replicas"):
        for key in ("rows", "cells", "weight", "label"):
            assert left[name][key] == right[name][key]
        np.testing.assert_allclose(left[name]["column_sums"], right[name]["column_sums"], rtol=1e-12)
    np.testing.assert_allclose(one.moments.covariance, other.moments.covariance, rtol=1e-12)


# ---------------------------------------------------------------------------- parts


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("labeled", [False, True])
def test_every_part_equals_that_of_its_own_class(size, weighted, labeled):
    scores, y, w = arrays(size=size)
    y, w = y if labeled else None, w if weighted else None
    evidence = from_arrays(scores, y, sample_weight=w)
    assert evidence.moments.to_dict() == Moments().update(scores, sample_weight=w).to_dict()
    assert evidence.served.to_dict() == Histogram().update(scores[:, 0], y, sample_weight=w).to_dict()
    if size == 1:
        assert evidence.replicas is None
    else:
        assert evidence.replicas.to_dict() == Histogram().update(scores, y, sample_weight=w).to_dict()
    assert (evidence.spec.label is None, evidence.spec.weight is None) == (not labeled, not weighted)
    without = from_arrays(scores, y, sample_weight=w, histograms=False)
    assert (without.served, without.replicas) == (None, None)
    assert without.moments.to_dict() == evidence.moments.to_dict()


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("rate", [None, 0.1])
def test_moments_are_of_the_link_and_histograms_of_corrected_logits(link, scale, rate):
    scores, y, _ = arrays(300_000 if link == "log" else 500)  # more than are converted at once
    spec = LogSpec(("s", "t"), scale, link=link, negative_sampling_rate=rate)
    evidence = from_arrays(scores if scale == "logit" else logistic(scores), y, spec=spec)
    logits = scores + np.log(rate or 1.0)
    linked = {"logistic": logits, "identity": logistic(logits), "log": np.log(logistic(logits))}[link]
    np.testing.assert_allclose(evidence.moments.mean, linked.mean(axis=0), rtol=1e-10)
    np.testing.assert_allclose(evidence.moments.covariance, np.cov(linked.T, ddof=0), rtol=1e-9)
    np.testing.assert_allclose(evidence.served.column_sums, logits[:, :1].sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(evidence.replicas.column_sums, logits.sum(axis=0), rtol=1e-10)


def test_values_have_moments_only_and_need_logarithms_on_the_log_link():
    values = np.exp(arrays()[0])
    for link, expected in (("identity", values), ("log", np.log(values))):
        evidence = from_arrays(values, spec=LogSpec(("s", "t"), "value", link=link))
        assert (evidence.served, evidence.replicas) == (None, None)
        np.testing.assert_allclose(evidence.moments.mean, expected.mean(axis=0), rtol=1e-12)
    with pytest.raises(UncurseError, match="a score is 0"):
        from_arrays([[0.0, 1.0]], spec=LogSpec(("s", "t"), "value", link="log"))


@pytest.mark.parametrize("bad", [0.0, 1.0])
def test_probabilities_of_0_and_1_have_no_logit(bad):
    p = logistic(arrays(50)[0])
    p[17, 1] = bad
    with pytest.raises(UncurseError, match="1 probabilities are exactly 0 or 1"):
        from_arrays(p, spec=LogSpec(("s", "t"), "probability"))
    for link in ("identity", "log"):  # the link decides which of them have a score
        spec = LogSpec(("s", "t"), "probability", link=link)
        if link == "log" and bad == 0:
            with pytest.raises(UncurseError, match="1 probabilities are exactly 0 or 1"):
                from_arrays(p, spec=spec)
        else:
            assert np.isfinite(from_arrays(p, spec=spec).replicas.table().gap).all()
    single = from_arrays(p[:, 1:], (p[:, 0] > 0.2).astype(int), spec=LogSpec(("s",), "probability"))
    assert single.served.weight.sum() == 50
    assert np.isfinite(single.served.score).all()
    assert logistic(single.served.score[0 if bad == 0 else -1 :][:1]) == pytest.approx([bad], abs=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_every_numeric_type_is_accepted(dtype):
    scores, y, _ = arrays()
    scores = scores.round().astype(dtype)
    found = from_arrays(scores, y.astype(dtype)).to_dict()
    assert found == from_arrays(scores.astype(np.float64), y.astype(bool)).to_dict()


@pytest.mark.parametrize("convert", [np.ndarray.tolist, pd.DataFrame, lambda x: pl.from_numpy(x), np.asfortranarray])
def test_lists_and_frames_give_the_evidence_of_arrays_and_are_not_changed(convert):
    scores, y, w = arrays()
    before = scores.copy(), y.copy(), w.copy()
    expected = from_arrays(scores, y, sample_weight=w)
    assert_same(from_arrays(convert(scores), pd.Series(y), sample_weight=w.tolist()), expected)
    for column, same in zip((scores, y, w), before, strict=True):
        np.testing.assert_array_equal(column, same)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_evidence_of_a_segment_is_that_of_its_rows(weighted):
    scores, y, w = arrays()
    names, w = np.array(["a", "b", "c"])[np.arange(500) % 3], w if weighted else None
    if weighted:
        w[names == "c"] = 0
    evidence = from_arrays(scores, y, segments=names, sample_weight=w)
    assert set(evidence.segments) == ({"a", "b"} if weighted else {"a", "b", "c"})
    for name, part in evidence.segments.items():
        rows = names == name
        own = from_arrays(scores[rows], y[rows], sample_weight=None if w is None else w[rows])
        assert part.moments.to_dict() == own.moments.to_dict()
        assert part.served.to_dict() == own.served.to_dict()
        assert part.replicas.weight.sum() == own.replicas.weight.sum()
    assert set(from_arrays(scores, segments=np.arange(500) % 2).segments) == {"0", "1"}


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_number_of_threads_does_not_matter(monkeypatch, size, weighted):
    scores, y, w = arrays(1_000_000, size)
    results = []
    for count in (1, 3):
        monkeypatch.setattr("uncurse.threads.cores", lambda count=count: count)
        results.append(from_arrays(scores, y, sample_weight=w if weighted else None))
    one, other = results
    assert (one.rows, one.weight, len(one.served)) == (other.rows, other.weight, len(other.served))
    np.testing.assert_array_equal(one.served.label, other.served.label)
    np.testing.assert_allclose(one.moments.covariance, other.moments.covariance, rtol=1e-12)


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([0.0, 1.0], r"shape \(2,\)"),
        (np.zeros((0, 2)), r"shape \(0, 2\)"),
        ([[1, 2], [3]], "array of numbers, not list"),
        (np.array([["2020-01-01"]], "datetime64[D]"), "array of numbers, not ndarray"),
        (np.ma.masked_array([[0.0, 1.0]], [[True, False]]), "masked"),
        ([[0.0, np.nan]], r"\[0, 1\] is nan"),
        ([[0.0, 1.0], [-np.inf, 1.0]], r"\[1, 0\] is -inf"),
        ([[1e300, 0.0], [1.0, 2.0]], r"\[0, 0\] is 1e\+300"),
        (np.zeros((2, 100)), r"\(2, 100\).*transpose"),
    ],
)
def test_invalid_scores_are_refused(scores, message):
    with pytest.raises(UncurseError, match=message):
        from_arrays(scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": [0]}, r"labels has shape \(1,\)"),
        ({"labels": [0, 1, 2]}, r"labels\[2\] is 2"),
        ({"sample_weight": [1.0]}, r"sample_weight has shape \(1,\)"),
        ({"sample_weight": [1.0, -1.0, 1.0]}, "sample_weight holds -1"),
        ({"sample_weight": [1e305, 1.0, 1.0]}, "1e.305"),
        ({"segments": ["a"]}, "segments"),
        ({"segments": ["a", None, "b"]}, "segments"),
        ({"spec": LogSpec(("a",))}, "2 score columns, not 1"),
        ({"spec": ("a", "b")}, "spec is a tuple"),
        ({"spec": LogSpec(("a", "b"), "probability")}, "not a probability"),
    ],
)
def test_invalid_options_are_refused(options, message):
    with pytest.raises(UncurseError, match=message):
        from_arrays(arrays(3)[0], **options)


def test_logits_that_look_like_probabilities_raise_a_warning():
    p = logistic(arrays()[0])
    with pytest.warns(UserWarning, match="set the scale to probability"):
        from_arrays(p)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        from_arrays(p, spec=LogSpec(("s", "t"), "probability"))
        from_arrays(arrays()[0])


SCORES, Y, _ = arrays()
