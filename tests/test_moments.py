import json

import numpy as np
import pytest

from uncurse import Moments, UncurseError
from uncurse.debias.vad import noise_variance
from uncurse.links import LINKS, get_link, logistic


def pool_of(rows, replicas=2, *, seed=0, mean=-3.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def literal(pool, weights=None):
    mean = np.average(pool, axis=0, weights=weights)
    covariance = np.atleast_2d(np.cov(pool, rowvar=False, ddof=0, aweights=weights))
    return mean, covariance


def assert_same(moments, pool, weights=None, tolerance=1e-12):
    mean, covariance = literal(pool, weights)
    scale = np.sqrt(np.diag(covariance))
    assert np.abs((moments.mean - mean) / np.maximum(np.abs(mean), scale)).max() < tolerance
    assert np.abs((moments.covariance - covariance) / np.outer(scale, scale)).max() < tolerance


def lambda_of(mean, covariance):
    return 1 - noise_variance(covariance) / covariance[..., 0, 0]


# ---------------------------------------------------------------------------- sums


@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 5000])
def test_mean_and_covariance_are_those_of_numpy(rows, replicas):
    pool = pool_of(rows, replicas, seed=rows)
    moments = Moments().update(pool)
    np.testing.assert_allclose(moments.mean, pool.mean(axis=0), rtol=1e-13)
    covariance = np.atleast_2d(np.cov(pool, rowvar=False, ddof=0)) if rows > 1 else np.zeros((replicas, replicas))
    np.testing.assert_allclose(moments.covariance, covariance, atol=1e-13 * 10)
    assert (moments.rows, moments.weight, moments.n_replicas) == (rows, rows, replicas)


@pytest.mark.parametrize("center", [0.0, 4.9, 5.1, 1e4, -1e6])
def test_a_mean_far_from_zero_costs_no_digits(center):
    pool = pool_of(20_000, 3, mean=0.0, sd=1.0) + center
    # Tolerance: the data themselves are rounded to ε·|center|, half a unit each, which averages out.
    centred = pool - center
    _, covariance = literal(centred)
    np.testing.assert_allclose(Moments().update(pool).covariance, covariance, rtol=1e-12)


def test_columns_with_different_means_and_spreads_all_keep_their_digits():
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(10_000, 3)) * [1e-3, 1.0, 100.0] + [1e4, 0.0, -1e5]
    _, expected = literal(pool - [1e4, 0.0, -1e5])
    scale = np.sqrt(np.diag(expected))
    assert np.abs((Moments().update(pool).covariance - expected) / np.outer(scale, scale)).max() < 1e-9


def test_rows_that_drift_from_far_below_to_far_above_keep_their_digits():
    rng = np.random.default_rng(0)
    pool = np.linspace(-1e4, 1e4, 20_000)[:, None] + rng.normal(size=(20_000, 2))
    assert_same(Moments().update(pool), pool)
    V = noise_variance(Moments().update(pool).covariance)
    np.testing.assert_allclose(V, np.var(pool[:, 0] - pool[:, 1]) / 2, rtol=1e-6)


def splits(rows, kind):
    rng = np.random.default_rng(len(kind))
    if kind == "one by one":
        return np.arange(1, rows)
    if kind == "uneven":
        return np.unique(np.sort((rows * rng.random(40) ** 4).astype(int)))[1:]
    if kind == "halves":
        return [rows // 2]
    if kind == "one and the rest":
        return [1]
    return np.arange(97, rows, 97)


@pytest.mark.parametrize("center", [-3.0, 1e4])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["one by one", "uneven", "halves", "one and the rest", "many"])
def test_any_split_into_chunks_merges_to_the_same_moments(kind, weighted, center):
    pool = pool_of(1500, 3, mean=center, sd=1.0)
    weights = np.random.default_rng(1).exponential(size=1500) if weighted else None
    parts = np.split(np.arange(1500), splits(1500, kind))
    whole = Moments().update(pool, sample_weight=weights)
    updated = Moments()
    pieces = []
    for rows in parts:
        w = None if weights is None else weights[rows]
        updated.update(pool[rows], sample_weight=w)
        pieces.append(Moments().update(pool[rows], sample_weight=w))
    merged, backwards = Moments(), Moments()
    for piece in pieces:
        merged.merge(piece)
    for piece in reversed(pieces):
        backwards.merge(piece)
    # Cells of 1e4 ± 1 are themselves known to 1e-12 of their spread: compare with the whole, at the same scale.
    for moments in (updated, merged, backwards):
        assert moments.rows == 1500
        np.testing.assert_allclose(moments.weight, whole.weight, rtol=1e-12)
        np.testing.assert_allclose(moments.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(moments.covariance, whole.covariance, rtol=1e-12)
    assert_same(whole, pool, weights, 1e-12 if center > 0 else 1e-13)


def test_a_tree_of_merges_is_the_same_as_a_row_of_them():
    pool = pool_of(4096, 2)
    level = [Moments().update(part) for part in np.split(pool, 64)]
    while len(level) > 1:
        level = [a.merge(b) for a, b in zip(level[::2], level[1::2], strict=True)]
    assert_same(level[0], pool)


def test_merging_leaves_the_other_untouched_then_and_later():
    a, b = Moments().update(pool_of(500, seed=1)), Moments().update(pool_of(500, seed=2))
    before = b.to_json()
    both = Moments().merge(b)
    both.merge(a).merge(a).update(pool_of(300, seed=3))
    assert b.to_json() == before


def test_merging_nothing_changes_nothing():
    a = Moments().update(pool_of(100))
    before = a.to_json()
    assert a.merge(Moments()).to_json() == before
    assert Moments().merge(a).to_json() == before


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_moments_are_those_of_the_link_scores(link, scale):
    pool = pool_of(3000)
    expected = get_link(link).inverse(logistic(pool))
    moments = Moments(link).update(pool if scale == "logit" else logistic(pool), scale=scale)
    mean, covariance = literal(expected)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-11)
    np.testing.assert_allclose(moments.covariance, covariance, rtol=1e-11)


@pytest.mark.parametrize("link", LINKS)
def test_an_offset_is_added_to_the_logit_whatever_the_scale(link):
    pool = pool_of(1000)
    expected, _ = literal(get_link(link).inverse(logistic(pool - 1.5)))
    for values, scale in ((pool, "logit"), (logistic(pool), "probability")):
        moments = Moments(link).update(values, scale=scale, logit_offset=-1.5)
        np.testing.assert_allclose(moments.mean, expected, rtol=1e-10)


def test_weights_equal_repetition_and_rows_without_weight_do_not_count():
    pool = pool_of(2000)
    counts = np.random.default_rng(0).integers(0, 4, 2000)
    weighted = Moments().update(pool, sample_weight=counts)
    repeated = Moments().update(np.repeat(pool, counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-12)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-12)
    assert weighted.weight == repeated.weight == counts.sum()


@pytest.mark.parametrize("columns", [[0], [2, 0], [3, 1, 0, 2]])
def test_selected_columns_have_the_moments_of_those_columns(columns):
    pool = pool_of(3000, 4) + np.arange(4.0)
    whole, chosen = Moments().update(pool), Moments().update(pool[:, columns])
    before = whole.to_json()
    ours = whole.select(columns)
    np.testing.assert_allclose(ours.mean, chosen.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance, chosen.covariance, rtol=1e-12)
    assert ours.rows == chosen.rows
    ours.update(pool[:, columns])
    assert whole.to_json() == before


def test_float32_agrees_with_float64():
    pool = pool_of(50_000)
    single, double = Moments().update(pool.astype(np.float32)), Moments().update(pool)
    np.testing.assert_allclose(single.mean, double.mean, rtol=1e-6)
    np.testing.assert_allclose(lambda_of(None, single.covariance), lambda_of(None, double.covariance), rtol=1e-5)


def test_many_threads_and_one_give_the_same_bits():
    pool = pool_of(1 << 21)  # two steps a worker
    whole = Moments().update(pool)
    assert_same(whole, pool, tolerance=1e-11)
    assert whole.to_json() == Moments().update(pool).to_json()


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_does_not_matter(order):
    pool = pool_of(1000, 3)
    assert Moments().update(np.array(pool, order=order)).to_json() == Moments().update(pool).to_json()


# ---------------------------------------------------------------------------- the jackknife


def test_leave_one_out_is_all_rows_but_a_block():
    pool = pool_of(320, 2)
    weight, mean, covariance = Moments().update(pool).leave_one_out()
    for i in (0, 7, 31):
        rest = np.delete(pool, slice(10 * i, 10 * i + 10), axis=0)
        assert weight[i] == 310
        np.testing.assert_allclose(mean[i], rest.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(covariance[i], np.cov(rest, rowvar=False, ddof=0), rtol=1e-11)


def test_the_standard_error_of_a_mean_is_the_textbook_one():
    pool = pool_of(32_000, 1)
    ours = np.mean([Moments().update(pool[i::20]).standard_error(lambda mean, _: mean[..., 0]) for i in range(20)])
    # 20 jackknives of 32 blocks: relative error of a standard deviation 1/√(2·31·20) = 2.8%; 3 of them.
    assert abs(ours / (pool.std() / np.sqrt(1600)) - 1) < 3 * 0.028


def spread_and_errors(collect, draws=250, rows=1200):
    values, errors = [], []
    for draw in range(draws):
        moments = collect(pool_of(rows, 2, seed=1000 + draw), np.random.default_rng(draw))
        values.append(float(lambda_of(moments.mean, moments.covariance)))
        errors.append(moments.standard_error(lambda_of))
    return np.std(values, ddof=1), np.sqrt(np.mean(np.square(errors)))


def whole(pool, rng):
    return Moments().update(pool)


def uneven(pool, rng):
    moments = Moments()
    for part in np.split(pool, np.unique((len(pool) * rng.random(12) ** 2).astype(int))[1:]):
        moments.merge(Moments().update(part))
    return moments


def importance(pool, rng):
    return Moments().update(pool, sample_weight=rng.exponential(size=len(pool)))


@pytest.mark.parametrize("collect", [whole, uneven, importance])
def test_the_standard_error_of_lambda_is_the_spread_over_redrawn_pools(collect):
    spread, error = spread_and_errors(collect)
    # The spread of 250 draws is known to 1/√500 = 4.5%; 25% is more than 5 of these.
    assert abs(error / spread - 1) < 0.25


def test_the_standard_error_survives_a_thousand_small_chunks():
    pool = pool_of(30_000)
    moments = Moments()
    for part in np.array_split(pool, 1000):
        moments.update(part)
    # Both have 32 to 64 groups: each is known to 1/√62 = 13%, their ratio to 18%; 2.5 of these.
    ratio = moments.standard_error(lambda_of) / Moments().update(pool).standard_error(lambda_of)
    assert abs(np.log(ratio)) < 2.5 * 0.18


def test_one_row_has_no_standard_error():
    assert np.isnan(Moments().update([[0.0, 1.0]]).standard_error(lambda_of))


# ---------------------------------------------------------------------------- documents


@pytest.mark.parametrize("weighted", [False, True])
def test_a_json_round_trip_is_exact(weighted):
    weights = np.random.default_rng(0).exponential(size=5000) if weighted else None
    moments = Moments("probit").update(pool_of(5000, 3), sample_weight=weights)
    back = Moments.from_json(moments.to_json())
    assert back.link == "probit"
    assert back.rows == moments.rows
    assert (back.mean == moments.mean).all()
    assert (back.covariance == moments.covariance).all()
    assert back.standard_error(lambda_of) == moments.standard_error(lambda_of)
    assert back.to_json() == moments.to_json()


def test_empty_moments_make_a_json_round_trip():
    back = Moments.from_json(Moments("log").to_json())
    assert (back.link, back.rows) == ("log", 0)


@pytest.mark.parametrize("key", ["link", "rows", "weight", "mean", "scatter"])
def test_moments_with_a_part_missing_are_refused(key):
    content = json.loads(Moments().update(pool_of(50)).to_json())
    del content[key]
    with pytest.raises(UncurseError, match=key):
        Moments.from_json(json.dumps(content))


# ---------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_what_is_not_finite_is_named_by_its_place(bad, dtype, scale):
    pool = logistic(pool_of(3000)).astype(dtype)
    pool[1234, 1] = bad
    with pytest.raises(UncurseError, match=rf"pool\[1234, 1\] is {bad} \(1 such values\); drop or repair"):
        Moments().update(pool, scale=scale)


ZERO = np.array([[0.5, 0.0], [0.25, 0.5]])
ONE = np.array([[0.5, 1.0], [0.25, 0.5]])


@pytest.mark.parametrize(
    ("link", "scale", "pool", "message"),
    [
        ("logistic", "probability", [[0.5, 1.5]], r"pool holds 1\.5, which is not a probability; are these logits"),
        ("logistic", "probability", [[0.5, -0.5]], r"pool holds -0\.5, which is not a probability"),
        ("logistic", "probability", ZERO, r"1 probabilities of the pool are exactly 0 or 1.*logistic.*clip them first"),
        ("probit", "probability", ONE, r"1 probabilities of the pool are exactly 0 or 1.*probit score is infinite"),
        ("log", "probability", ZERO, r"1 probabilities of the pool are exactly 0 or 1.*log score is infinite"),
        ("log", "value", [[1.0, 0.0]], r"the pool holds 0, which has no logarithm; use link='identity'"),
        ("log", "value", [[1.0, -2.0]], r"the pool holds -2, which has no logarithm"),
        ("logistic", "logit", [[1e200, 0.0], [-1e200, 1.0]], "squares of these scores overflow; pass scores of ord"),
        ("logistic", "logit", [0.0, 1.0], r"pool has shape \(2,\); pass a column per replica, shape \(n, S\)"),
        ("logistic", "logit", np.zeros((0, 2)), r"pool is empty, shape \(0, 2\); pass at least one row"),
        ("logistic", "logit", np.zeros((3, 0)), r"pool is empty, shape \(3, 0\)"),
        ("logistic", "logit", [["a", "b"]], "pool must be an array of numbers"),
        ("logistic", "odds", [[1.0, 2.0]], "scale='odds' is unknown; choose one of logit, probability, value"),
    ],
)
def test_a_bad_pool_is_named_with_the_remedy(link, scale, pool, message):
    moments = Moments(link)
    with pytest.raises(UncurseError, match=message):
        moments.update(pool, scale=scale)
    assert moments.rows == 0


def test_a_probability_of_one_has_a_logarithm():
    assert Moments("log").update(ONE, scale="probability").mean[1] == np.log(0.5) / 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"sample_weight has shape \(1,\) but there are 2 scores; pass shape \(2,\)"),
        ([1.0, -1.0], "sample_weight holds -1; weights must be 0 or more"),
        ([0.0, 0.0], "every sample_weight is zero; give some row a positive weight"),
        ([1.0, np.nan], r"sample_weight\[1\] is nan"),
    ],
)
def test_bad_weights_are_named(weights, message):
    with pytest.raises(UncurseError, match=message):
        Moments().update([[0.0, 1.0], [1.0, 2.0]], sample_weight=weights)


def test_an_unknown_link_is_named():
    with pytest.raises(UncurseError, match="link='cloglog' is unknown; choose one of logistic, identity, log, probit"):
        Moments("cloglog")


def test_moments_of_different_links_do_not_merge():
    a, b = Moments().update(pool_of(10)), Moments("probit").update(pool_of(10))
    with pytest.raises(UncurseError, match="cannot merge moments of the logistic and the probit link; collect them"):
        a.merge(b)
    assert a.rows == 10


def test_another_number_of_replicas_is_refused_and_nothing_is_added():
    moments = Moments().update(pool_of(10, 2))
    before = moments.to_json()
    message = "these rows have 3 replicas, the ones before 2; pass the same columns"
    with pytest.raises(UncurseError, match=message):
        moments.update(pool_of(10, 3))
    with pytest.raises(UncurseError, match=message):
        moments.merge(Moments().update(pool_of(10, 3)))
    assert moments.to_json() == before


@pytest.mark.parametrize("ask", ["mean", "covariance"])
def test_empty_moments_say_so(ask):
    with pytest.raises(UncurseError, match="these moments hold no rows; update them with scores first"):
        getattr(Moments(), ask)


def test_a_document_of_another_kind_is_no_moments():
    with pytest.raises(UncurseError, match="kind='cells' is unknown; choose one of moments"):
        Moments.from_json('{"kind": "cells", "schema_version": 2}')


def test_truncated_moments_are_refused():
    text = Moments().update(pool_of(50)).to_json()
    with pytest.raises(UncurseError, match="moments is not valid JSON"):
        Moments.from_json(text[: len(text) // 2])
