"""`Moments`: sums, merging, jackknife and plain data."""

import json

import numpy as np
import pytest

from uncurse import Cells, Moments, UncurseError
from uncurse.debias import KINDS
from uncurse.evidence import block_sums
from uncurse.links import LINKS, get_link, logistic


def pool_of(rows, replicas=2, *, seed=0, mean=-3.0, sd=0.8, noise=0.4):
    rng = np.random.default_rng(seed)
    return rng.normal(mean, sd, (rows, 1)) + noise * rng.normal(size=(rows, replicas))


def literal(pool, weights=None):
    mean = np.average(pool, axis=0, weights=weights)
    covariance = np.atleast_2d(np.cov(pool.T, ddof=0, aweights=weights))
    return mean, covariance


def assert_same(moments, pool, weights=None, tolerance=1e-12):
    mean, covariance = literal(pool, weights)
    scale = np.sqrt(np.diag(covariance))
    assert np.abs((moments.mean - mean) / np.maximum(np.abs(mean), scale)).max() < tolerance
    assert np.abs((moments.covariance - covariance) / np.outer(scale, scale)).max() < tolerance


def lambda_of(mean, covariance):
    return 1 - KINDS["seeds"].noise_variance(covariance) / covariance[..., 0, 0]


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
def test_covariance_is_accurate_for_means_far_from_zero(center):
    pool = pool_of(20_000, 3, mean=0.0, sd=1.0) + center
    # Tolerance: the data themselves are rounded to ε·|center|, half a unit each, which averages out.
    centred = pool - center
    _, covariance = literal(centred)
    np.testing.assert_allclose(Moments().update(pool).covariance, covariance, rtol=1e-12)


def test_covariance_is_accurate_for_columns_of_different_mean_and_spread():
    rng = np.random.default_rng(0)
    pool = rng.normal(size=(10_000, 3)) * [1e-3, 1.0, 100.0] + [1e4, 0.0, -1e5]
    _, expected = literal(pool - [1e4, 0.0, -1e5])
    scale = np.sqrt(np.diag(expected))
    assert np.abs((Moments().update(pool).covariance - expected) / np.outer(scale, scale)).max() < 1e-9


def test_covariance_is_accurate_for_rows_that_drift():
    rng = np.random.default_rng(0)
    pool = np.linspace(-1e4, 1e4, 20_000)[:, None] + rng.normal(size=(20_000, 2))
    assert_same(Moments().update(pool), pool)
    V = KINDS["seeds"].noise_variance(Moments().update(pool).covariance)
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
    count = 100 if kind == "one by one" else 1500
    pool = pool_of(count, 3, mean=center, sd=1.0)
    weights = np.random.default_rng(1).exponential(size=count) if weighted else None
    parts = np.split(np.arange(count), splits(count, kind))
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
    # Scores of 1e4 ± 1 have a relative precision of 1e-12 of their spread: compare with one pass at that tolerance.
    for moments in (updated, merged, backwards):
        assert moments.rows == count
        np.testing.assert_allclose(moments.weight, whole.weight, rtol=1e-12)
        np.testing.assert_allclose(moments.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(moments.covariance, whole.covariance, rtol=1e-12)
    assert_same(whole, pool, weights, 1e-12 if center > 0 else 1e-13)


def test_a_tree_of_merges_equals_one_pass():
    pool = pool_of(4096, 2)
    level = [Moments().update(part) for part in np.split(pool, 64)]
    while len(level) > 1:
        level = [a.merge(b) for a, b in zip(level[::2], level[1::2], strict=True)]
    assert_same(level[0], pool)


def test_a_merge_does_not_change_the_other_moments_then_or_later():
    a, b = Moments().update(pool_of(500, seed=1)), Moments().update(pool_of(500, seed=2))
    before = b.to_dict()
    both = Moments().merge(b)
    both.merge(a).merge(a).update(pool_of(300, seed=3))
    assert b.to_dict() == before


def test_merging_empty_moments_changes_nothing():
    a = Moments().update(pool_of(100))
    before = a.to_dict()
    assert a.merge(Moments()).to_dict() == before
    assert Moments().merge(a).to_dict() == before


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_moments_are_those_of_the_scores_of_the_link(link, scale):
    pool = pool_of(3000)
    expected = get_link(link).inverse(logistic(pool))
    moments = Moments(link).update(pool if scale == "logit" else logistic(pool), scale=scale)
    mean, covariance = literal(expected)
    np.testing.assert_allclose(moments.mean, mean, rtol=1e-11)
    np.testing.assert_allclose(moments.covariance, covariance, rtol=1e-11)


@pytest.mark.parametrize("link", LINKS)
def test_an_offset_is_added_to_the_logit_on_every_scale(link):
    pool = pool_of(1000)
    expected, _ = literal(get_link(link).inverse(logistic(pool - 1.5)))
    for values, scale in ((pool, "logit"), (logistic(pool), "probability")):
        moments = Moments(link).update(values, scale=scale, logit_offset=-1.5)
        np.testing.assert_allclose(moments.mean, expected, rtol=1e-10)


def test_integer_weights_give_the_mean_and_covariance_of_repeated_rows():
    pool = pool_of(2000)
    counts = np.random.default_rng(0).integers(0, 4, 2000)
    weighted = Moments().update(pool, sample_weight=counts)
    repeated = Moments().update(np.repeat(pool, counts, axis=0))
    np.testing.assert_allclose(weighted.mean, repeated.mean, rtol=1e-12)
    np.testing.assert_allclose(weighted.covariance, repeated.covariance, rtol=1e-12)
    assert weighted.weight == repeated.weight == counts.sum()


def test_only_ratios_of_weights_matter():
    pool = pool_of(2000)
    weights = np.random.default_rng(0).exponential(size=2000)
    expected = Moments().update(pool, sample_weight=weights)
    assert expected.effective_rows == pytest.approx(weights.sum() ** 2 / (weights @ weights), rel=1e-12)
    for factor in (1e-12, 1 / 2000, 1e20):
        moments = Moments().update(pool, sample_weight=factor * weights)
        assert moments.effective_rows == pytest.approx(expected.effective_rows, rel=1e-12)
        np.testing.assert_allclose(moments.mean, expected.mean, rtol=1e-12)
        np.testing.assert_allclose(moments.covariance, expected.covariance, rtol=1e-12)
        assert moments.standard_error(lambda_of) == pytest.approx(expected.standard_error(lambda_of), rel=1e-9)


def test_effective_rows_of_unweighted_rows_are_the_rows_also_after_merging():
    moments = Moments().update(pool_of(300))
    assert moments.effective_rows == 300
    assert Moments().effective_rows == 0
    moments.merge(Moments().update(pool_of(100), sample_weight=np.full(100, 3.0)))
    assert moments.effective_rows == pytest.approx(600**2 / (300 + 900))


def test_rows_without_weight_do_not_contribute():
    pool = pool_of(40)
    pool[7] = [1e6, -1e6]
    weights = np.where(np.arange(40) == 7, 0.0, 1.0)
    rest = np.delete(pool, 7, axis=0)
    assert_same(Moments().update(pool, sample_weight=weights), rest)


def test_update_blocks_does_not_change_its_input():
    pool = pool_of(2000, 3)
    source = Moments().update(pool)
    blocks = (source.block_rows, source.block_weight, source.block_squares, source.block_mean, source.block_scatter)
    copies = [block.copy() for block in blocks]
    moments = Moments().update_blocks(*blocks)
    for _ in range(3):
        moments.update_blocks(*blocks)
    assert moments.rows == 8000
    assert_same(moments, pool)
    for block, copy in zip(blocks, copies, strict=True):
        np.testing.assert_array_equal(block, copy)


@pytest.mark.parametrize("columns", [[0], [2, 0], [3, 1, 0, 2]])
def test_selected_columns_have_the_moments_of_those_columns(columns):
    pool = pool_of(3000, 4) + np.arange(4.0)
    whole, chosen = Moments().update(pool), Moments().update(pool[:, columns])
    before = whole.to_dict()
    ours = whole.transformed(np.eye(whole.n_replicas)[columns])
    np.testing.assert_allclose(ours.mean, chosen.mean, rtol=1e-12)
    np.testing.assert_allclose(ours.covariance, chosen.covariance, rtol=1e-12)
    assert ours.rows == chosen.rows
    ours.update(pool[:, columns])
    assert whole.to_dict() == before


def test_float32_agrees_with_float64():
    pool = pool_of(50_000)
    single, double = Moments().update(pool.astype(np.float32)), Moments().update(pool)
    np.testing.assert_allclose(single.mean, double.mean, rtol=1e-6)
    np.testing.assert_allclose(lambda_of(None, single.covariance), lambda_of(None, double.covariance), rtol=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, weighted):
    rows = 1 << (20 if weighted else 21)  # two steps per thread
    pool = pool_of(rows)
    weights = np.random.default_rng(1).exponential(size=rows) if weighted else None
    results = []
    for count in (1, 2, 5):
        monkeypatch.setattr(block_sums, "cores", lambda count=count: count)
        results.append(Moments().update(pool, sample_weight=weights))
    assert_same(results[0], pool, weights, tolerance=1e-11)
    assert all(result.to_dict() == results[0].to_dict() for result in results)


@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_order_does_not_matter(order):
    pool = pool_of(1000, 3)
    assert Moments().update(np.array(pool, order=order)).to_dict() == Moments().update(pool).to_dict()


# ---------------------------------------------------------------------------- the jackknife


def delete_a_group_jackknife(values, groups, weights, function):
    """Σ (1 − q) (without − center)² on the rows themselves; for equal groups this is (g − 1)/g Σ (without − mean)²."""
    estimates, shares = [], []
    for group in np.unique(groups):
        rest = groups != group
        estimates.append(function(*literal(values[rest], weights[rest])))
        shares.append(weights[rest].sum() / weights.sum())
    estimates, shares = np.array(estimates), np.array(shares)
    return np.sqrt(shares @ np.square(estimates - np.average(estimates, weights=shares)))


@pytest.mark.parametrize("sizes", [[10] * 32, [1, 2], [40, 3, 3, 200, 17]])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_standard_error_is_that_of_the_delete_a_group_jackknife(sizes, weighted):
    rows = sum(sizes)
    pool = pool_of(rows, 2, mean=-3.0)
    weights = np.random.default_rng(5).exponential(size=rows) if weighted else np.ones(rows)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    moments = Moments(blocks=1)
    for group in range(len(sizes)):
        some = groups == group
        moments.update(pool[some], sample_weight=weights[some] if weighted else None)
    for function in (lambda mean, _: mean[..., 1], lambda _, covariance: covariance[..., 0, 1]):
        expected = delete_a_group_jackknife(pool, groups, weights, function)
        np.testing.assert_allclose(moments.standard_error(function), expected, rtol=1e-9)


def test_the_standard_error_of_a_mean_is_the_textbook_one():
    pool = pool_of(32_000, 1)
    ours = np.mean([Moments().update(pool[i::20]).standard_error(lambda mean, _: mean[..., 0]) for i in range(20)])
    # 20 jackknives of 32 blocks: relative error of a standard deviation 1/√(2·31·20) = 2.8%; 3 of them.
    assert abs(ours / (pool.std() / np.sqrt(1600)) - 1) < 3 * 0.028


def spread_and_errors(collect, draws=125, rows=1200):
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
        moments.merge(Moments(blocks=8).update(part))
    return moments


def importance(pool, rng):
    return Moments().update(pool, sample_weight=rng.exponential(size=len(pool)))


@pytest.mark.theory
@pytest.mark.parametrize("collect", [whole, uneven, importance])
def test_the_standard_error_of_lambda_equals_its_spread_over_new_pools(collect):
    spread, error = spread_and_errors(collect)
    # 125 draws: a standard error of 1/√250 = 6.3%; 25% is four of these.
    assert abs(error / spread - 1) < 0.25


def test_the_standard_error_of_a_thousand_small_chunks_agrees_with_that_of_one_pass():
    pool = pool_of(30_000)
    moments = Moments()
    for part in np.array_split(pool, 1000):
        moments.update(part)
        moments.blocks = 4  # as a pass over a log does
    # 32 to 64 groups: standard errors of 1/√62 = 13% each and 18% of the ratio; 2.5 of these.
    ratio = moments.standard_error(lambda_of) / Moments().update(pool).standard_error(lambda_of)
    assert abs(np.log(ratio)) < 2.5 * 0.18


@pytest.mark.parametrize("rows", [2, 3])
def test_a_standard_error_of_few_rows_is_a_number_or_nan(rows):
    error = Moments().update(pool_of(rows)).standard_error(lambda_of)
    assert np.isnan(error) or 0 <= error < np.inf


def test_standard_error_is_nan_if_one_row_has_all_the_variation():
    pool = np.zeros((5, 2))
    pool[3] = [1.0, 2.0]
    assert np.isnan(Moments().update(pool).standard_error(lambda_of))


def test_one_row_has_no_standard_error():
    assert np.isnan(Moments().update([[0.0, 1.0]]).standard_error(lambda_of))


# ---------------------------------------------------------------------------- documents


def through_json(moments):
    return Moments.from_dict(json.loads(json.dumps(moments.to_dict(), allow_nan=False)))


def test_empty_moments_make_a_json_round_trip():
    back = through_json(Moments("log"))
    assert (back.link, back.rows) == ("log", 0)


def replaced(name, *place, value):
    """Content of valid moments of two blocks of ten rows, with one value replaced."""
    content = Moments(blocks=2).update(pool_of(20)).to_dict()
    target = content
    for step in (name, *place)[:-1]:
        target = target[step]
    target[(name, *place)[-1]] = value
    return content


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("link",), "cloglog", "link='cloglog' is unknown"),
        (("rows", 0), -1, "rows and weights must be positive"),
        (("rows", 0), 10**30, "moments document"),
        (("rows", 0), 1 << 54, "rows and weights must be positive"),
        (("rows", 0), 1.5, "moments document"),
        (("rows", 0), 9, "squared weights do not fit"),  # Σw² = 10 is below (Σw)²/n for nine rows
        (("rows",), [10], "arrays differ in length"),
        (("rows",), [], "arrays differ in length"),
        (("squares", 0), 1e304, "squared weights do not fit"),
        (("weight", 0), 1e304, "squared weights do not fit"),
        (("scatter", 0, 0, 0), 1e307, "not finite"),
        (("rows",), 10, "moments document"),
        (("rows",), "10", "moments document"),
        (("weight", 0), -10.0, "rows and weights must be positive"),
        (("weight", 0), float("nan"), "not finite"),
        (("weight",), [0.0, 0.0], "rows and weights must be positive"),
        (("squares", 0), 9.9, "squared weights do not fit"),
        (("squares", 0), 100.1, "squared weights do not fit"),
        (("squares", 0), 0.0, "squared weights do not fit"),
        (("squares", 0), float("inf"), "not finite"),
        (("mean", 0, 1), float("inf"), "not finite"),
        (("mean", 0, 1), "a", "moments document"),
        (("mean", 0), [0.0], "moments document"),
        (("mean",), [[0.0], [0.0]], "arrays differ in length"),
        (("scatter", 1, 0, 0), float("nan"), "not finite"),
        (("scatter", 1, 0, 1), 3.0, "not symmetric and positive semi-definite"),
        (("scatter", 1, 0, 0), -1.0, "not symmetric and positive semi-definite"),
        (("scatter", 1), [[1.0, 2.0], [2.0, 1.0]], "not symmetric and positive semi-definite"),
        (("scatter",), [[[1.0]], [[1.0]]], "arrays differ in length"),
        (("scatter",), None, "moments document"),
    ],
)
def test_inconsistent_content_is_refused(place, value, message):
    with pytest.raises(UncurseError, match=message):
        Moments.from_dict(replaced(*place, value=value))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("center", [0.0, 1e4, -1e8])
def test_content_with_rounding_errors_is_accepted(center, weighted):
    rng = np.random.default_rng(3)
    served = center + rng.normal(size=(2_000, 1)) * 1e-3
    weights = rng.exponential(size=2_000) ** 4 if weighted else None
    for pool in (np.repeat(served, 3, axis=1), served + np.array([0.0, 1.0, 1e5]), np.full((9, 2), center)):
        moments = Moments().update(pool, sample_weight=None if weights is None else weights[: len(pool)])
        assert through_json(moments).to_dict() == moments.to_dict()


# ---------------------------------------------------------------------------- invalid input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["logit", "probability"])
def test_an_error_locates_the_first_value_that_is_not_finite(bad, dtype, scale):
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
        ("logistic", "logit", [[1e200, 0.0], [-1e200, 1.0]], r"pool\[0, 0\] is 1e\+200 beyond ±1e\+75 \(2 such"),
        ("logistic", "logit", [0.0, 1.0], r"pool has shape \(2,\); pass a column per replica, shape \(n, S\)"),
        ("logistic", "logit", np.zeros((0, 2)), r"pool is empty, shape \(0, 2\); pass at least one row"),
        ("logistic", "logit", np.zeros((3, 0)), r"pool is empty, shape \(3, 0\)"),
        ("logistic", "logit", [["a", "b"]], "pool must be an array of numbers"),
        ("logistic", "odds", [[1.0, 2.0]], "scale='odds' is unknown; choose one of logit, probability, value"),
    ],
)
def test_an_invalid_pool_is_refused_with_a_remedy(link, scale, pool, message):
    moments = Moments(link)
    with pytest.raises(UncurseError, match=message):
        moments.update(pool, scale=scale)
    assert moments.rows == 0


def test_a_probability_of_one_has_a_logarithm():
    assert Moments("log").update(ONE, scale="probability").mean[1] == np.log(0.5) / 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0], r"sample_weight has shape \(1,\) but there are 2 rows; pass shape \(2,\)"),
        ([1.0, -1.0], "sample_weight holds -1; weights must be 0 or more"),
        ([0.0, 0.0], "every sample_weight is zero; give some row a positive weight"),
        ([1.0, np.nan], r"sample_weight\[1\] is nan"),
    ],
)
def test_invalid_weights_are_refused(weights, message):
    with pytest.raises(UncurseError, match=message):
        Moments().update([[0.0, 1.0], [1.0, 2.0]], sample_weight=weights)


@pytest.mark.parametrize("other", [None, 3, "moments", Cells()])
def test_only_moments_merge_into_moments(other):
    with pytest.raises(UncurseError, match=r"cannot merge a .* into Moments; pass Moments"):
        Moments().merge(other)


def test_decayed_and_transformed_moments_keep_the_number_of_blocks():
    for moments in (Moments(blocks=8), Moments(blocks=8).update(pool_of(100))):
        assert moments.decayed(0.5).blocks == 8
    assert moments.transformed([[1.0, 0.0]]).blocks == moments.repeated(2).blocks == 8


@pytest.mark.parametrize("blocks", [0, -1, 1.5, "4", None])
def test_an_invalid_number_of_blocks_is_refused(blocks):
    with pytest.raises(UncurseError, match="blocks="):
        Moments(blocks=blocks)


def test_transposed_pool_is_refused():
    with pytest.raises(UncurseError, match=r"the pool has 2 rows and 100 columns.*pass the transpose"):
        Moments().update(np.zeros((2, 100)))


@pytest.mark.parametrize("largest", [1e-200, 1e200])
def test_weights_whose_squares_overflow_are_refused(largest):
    with pytest.raises(UncurseError, match=r"the largest sample_weight is 1e.*; rescale the weights"):
        Moments().update([[0.0, 1.0], [1.0, 2.0]], sample_weight=[largest, 0.0])


@pytest.mark.parametrize("offset", [np.nan, np.inf, "a", None])
def test_offset_that_is_not_finite_is_refused(offset):
    with pytest.raises(UncurseError, match=r"logit_offset is .*; pass a finite number"):
        Moments().update([[0.0, 1.0]], logit_offset=offset)


def test_an_unknown_link_is_refused():
    with pytest.raises(UncurseError, match="link='cloglog' is unknown; choose one of logistic, identity, log, probit"):
        Moments("cloglog")


def test_moments_of_different_links_do_not_merge():
    a, b = Moments().update(pool_of(10)), Moments("probit").update(pool_of(10))
    with pytest.raises(
        UncurseError, match="cannot merge moments of the logistic and the probit link; use the same link"
    ):
        a.merge(b)
    assert a.rows == 10


def test_rows_with_another_number_of_replicas_are_refused_and_not_added():
    moments = Moments().update(pool_of(10, 2))
    before = moments.to_dict()
    message = "these rows have 3 replicas, the ones before 2; pass the same columns"
    with pytest.raises(UncurseError, match=message):
        moments.update(pool_of(10, 3))
    with pytest.raises(UncurseError, match=message):
        moments.merge(Moments().update(pool_of(10, 3)))
    assert moments.to_dict() == before


@pytest.mark.parametrize("ask", ["mean", "covariance"])
def test_empty_moments_have_no_mean_and_no_covariance(ask):
    with pytest.raises(UncurseError, match="these moments hold no rows; update them with scores first"):
        getattr(Moments(), ask)


def test_a_block_without_weight_makes_a_round_trip():
    scores = np.random.default_rng(0).normal(size=(400, 2))
    moments = Moments().update(scores, sample_weight=np.repeat([0.0, 1.0], 200))
    again = Moments.from_dict(moments.to_dict())
    np.testing.assert_array_equal(again.covariance, moments.covariance)
