"""`fit_replicas`, and the bootstraps behind it."""

from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uncurse.errors import UncurseError
from uncurse.estimators import fit_replicas
from uncurse.estimators.replicas import Bootstrap, row_hashes, take_rows

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = RNG.random(120) < 1 / (1 + np.exp(-X.sum(axis=1)))
FOREST = RandomForestClassifier(5, max_depth=3)


# ---------------------------------------------------------------------------- kinds of replica


@pytest.mark.parametrize(
    "estimator",
    [
        FOREST,
        Ridge(),
        KNeighborsClassifier(),
        make_pipeline(StandardScaler(), FOREST),
        FrozenEstimator(GaussianNB().fit(X[:60], Y[:60])),
    ],
    ids=repr,
)
def test_models_of_bootstraps_differ(estimator):
    fitted = fit_replicas(estimator, X, Y, random_state=0)
    assert (fitted.kind, len(fitted.models)) == ("bootstrap", 3)
    method = "predict_proba" if hasattr(fitted.served, "predict_proba") else "predict"
    test = RNG.normal(size=(200, 3))
    first, second, third = (getattr(model, method)(test) for model in fitted.models)
    assert (first != second).any()
    assert (second != third).any()


def test_only_the_seeds_of_seeds_differ():
    fitted = fit_replicas(FOREST, X, Y, replicas="seeds", random_state=0)
    assert (fitted.kind, len(fitted.models)) == ("seeds", 3)
    for model in fitted.others:
        again = clone(FOREST).set_params(random_state=model.random_state).fit(X, Y)
        np.testing.assert_array_equal(model.predict_proba(X), again.predict_proba(X))
    assert len({model.random_state for model in fitted.models}) == 3


# ---------------------------------------------------------------------------- seeds


def test_nested_seeds_differ_between_replicas_and_the_served_model_keeps_its_own():
    pipeline = make_pipeline(clone(FOREST)).set_params(randomforestclassifier__random_state=7)
    fitted = fit_replicas(pipeline, X, Y, n_replicas=4, replicas="seeds", random_state=0)
    seeds = [model.get_params()["randomforestclassifier__random_state"] for model in fitted.models]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("replicas", ["seeds", "bootstrap"])
@pytest.mark.parametrize("state", [int, np.random.RandomState, np.random.default_rng], ids=["int", "legacy", "new"])
def test_random_state_makes_the_fit_reproducible(state, replicas):
    one, other = (fit_replicas(FOREST, X, Y, replicas=replicas, random_state=state(3)) for _ in range(2))
    for a, b in zip(one.models, other.models, strict=True):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


# ---------------------------------------------------------------------------- bootstraps


def test_a_bootstrap_draws_each_row_poisson_times():
    bootstrap = Bootstrap(X, Y, None, None, stratified=True)
    times = np.array([bootstrap.draw([s]) for s in range(1, 401)])
    # 48,000 draws of a Poisson(1): the mean has standard error 1/√48000, the variance √(3/48000).
    assert abs(times.mean() - 1) < 4 / np.sqrt(48_000)
    assert abs(times.var() - 1) < 4 * np.sqrt(3 / 48_000)
    assert abs(np.corrcoef(times[0], times[1])[0, 1]) < 4 / np.sqrt(120)


def test_every_class_is_in_every_bootstrap():
    y = np.arange(120) == 5  # a Poisson(1) is 0 with probability 0.37
    bootstrap = Bootstrap(X, y, None, None, stratified=True)
    assert all(bootstrap.draw([s])[5] for s in range(40))


# ---------------------------------------------------------------------------- rows


def containers():
    numbers = np.maximum(np.round(X, 1), 0)
    yield numbers
    yield numbers.tolist()
    yield numbers.astype(np.float32)
    yield sparse.csr_array(numbers)
    yield sparse.coo_matrix(numbers)
    columns = {"a": numbers[:, 0], "b": [f"city {i % 7}" for i in range(120)], "c": np.arange(120) % 2 == 0}
    for name in ("pandas", "polars"):
        if find_spec(name):
            yield import_module(name).DataFrame(columns)


@pytest.mark.parametrize("rows", list(containers()), ids=lambda rows: type(rows).__name__)
def test_bootstraps_do_not_depend_on_the_order_of_rows_in_any_container(rows):
    order = RNG.permutation(120)
    taken = take_rows(rows, order)
    weights = np.arange(1.0, 121) % 7 + 1  # which tell equal rows apart
    one = Bootstrap(rows, Y, weights, None, stratified=True).draw([1])
    other = Bootstrap(taken, Y[order], weights[order], None, stratified=True).draw([1])
    hashes, moved = row_hashes(rows, Y), row_hashes(taken, Y[order])
    # Equal rows may exchange their counts.
    same, again = np.lexsort([one, weights, hashes]), np.lexsort([other, weights[order], moved])
    np.testing.assert_array_equal(one[same], other[again])
    np.testing.assert_array_equal(hashes[order], moved)


@pytest.mark.parametrize(
    "rows",
    [
        np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [np.nan, 0.0], [0.0, np.nan]]),
        sparse.csr_array(np.eye(300)[:, ::-1]),
        ["a", "b", "ab", "", "é\ud800"],
        [{"a": 1}, {"b": 1}, {"a": 2}],
        [["a"], ["a", "b"], ["b"]],
        np.array([["a", 1], ["a", 2], ["b", 1]], dtype=object),
        [np.arange(5000), np.arange(1, 5001), np.r_[0:2500, 0:2501]],
        RNG.normal(size=(100_000, 2)),
    ],
    ids=["numbers", "sparse", "text", "dicts", "ragged", "objects", "arrays", "many"],
)
def test_rows_that_differ_have_hashes_that_differ(rows):
    n = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    hashes = row_hashes(rows, np.zeros(n))
    assert len(np.unique(hashes)) == n
    np.testing.assert_array_equal(row_hashes(take_rows(rows, np.arange(n)[::-1]), np.zeros(n)), hashes[::-1])


# ---------------------------------------------------------------------------- weights


def effective_rows(weights):
    return weights.sum() ** 2 / np.sum(weights**2)


def test_weights_are_scaled_to_sum_to_the_effective_number_of_rows():
    weights = np.where(np.arange(120) < 60, 1.0, 3.0)
    for scale in (1e-9, 1.0, 1e9):
        fitted = fit_replicas(GaussianNB(), X, Y, sample_weight=scale * weights, random_state=0)
        np.testing.assert_allclose(fitted.served.class_count_.sum(), effective_rows(weights))
        # A bootstrap has Poisson many rows: 4 standard deviations.
        rows = fitted.others[0].class_count_.sum()
        assert abs(rows - effective_rows(weights)) < 4 * np.sqrt(effective_rows(weights))


def test_weights_reach_the_last_step_of_nested_pipelines():
    weights = np.where(np.arange(120) < 60, 1.0, 3.0)
    nested = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), GaussianNB()))
    served = fit_replicas(nested, X, Y, sample_weight=weights).served
    np.testing.assert_allclose(served[-1][-1].class_count_.sum(), effective_rows(weights))
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, GaussianNB().set_fit_request(sample_weight=True))
        served = fit_replicas(pipeline, X, Y, sample_weight=weights).served
        np.testing.assert_allclose(served[-1].class_count_.sum(), effective_rows(weights))
        np.testing.assert_allclose(served[0].mean_, np.average(X, axis=0, weights=weights))


# ---------------------------------------------------------------------------- parallel fits


@pytest.mark.parametrize("estimator", [GaussianNB(), FOREST], ids=["deterministic", "random"])
def test_results_do_not_depend_on_n_jobs(estimator):
    one, two = (fit_replicas(estimator, X, Y, n_replicas=3, n_jobs=n, random_state=0) for n in (1, 2))
    for a, b in zip(one.models, two.models, strict=True):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


# ---------------------------------------------------------------------------- draws


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_bootstrap_holds_at_least_half_of_the_expected_weight(at_most_once):
    weights = np.r_[np.full(5, 30.0), np.ones(20)]
    units = Bootstrap(X[:25], Y[:25], weights, None, stratified=False)
    least = weights.sum() / (4 if at_most_once else 2)
    drawn = np.array([weights @ units.draw([seed], at_most_once=at_most_once) for seed in range(300)])
    assert drawn.min() >= least
    assert drawn.min() < 1.1 * least  # a seventh of all draws is lighter, without this rule


def test_a_class_that_is_hardly_ever_drawn_is_an_error():
    # The one row of each of 40 classes: a chance of (1 − 1/e)^40 = 1e-8 to draw all.
    units = Bootstrap(np.arange(40)[:, None], np.arange(40), None, None, stratified=True)
    with pytest.raises(UncurseError, match="none of 1000 bootstraps contains every class: the rarest has 1 rows"):
        units.draw([0])


def test_the_served_model_gets_a_seed_only_if_there_is_one():
    assert fit_replicas(FOREST, X, Y, random_state=0).served.random_state is not None
    assert fit_replicas(FOREST, X, Y).served.random_state is None


def test_the_global_random_state_is_not_used():
    before = np.random.get_state()[1].copy()
    one, other = (fit_replicas(GaussianNB(), X, Y).others[0].theta_ for _ in range(2))
    assert (one != other).any()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


# ---------------------------------------------------------------------------- errors

ONES = np.ones(120)


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (GaussianNB(), {"replicas": "jackknife"}, "replicas='jackknife'"),
        (GaussianNB(), {"groups": "company"}, "groups='company'"),
        (GaussianNB(), {"n_replicas": 1}, "n_replicas=1"),
        (GaussianNB(), {"n_replicas": 2.5}, "n_replicas=2.5"),
        (GaussianNB(), {"n_replicas": 2**63}, "n_replicas=9223372036854775808"),
        (GaussianNB(), {"replicas": "seeds"}, "GaussianNB has no random_state"),
        (LogisticRegression(), {"replicas": "seeds"}, "LogisticRegression does not depend on its random_state"),
        (KNeighborsClassifier(), {"sample_weight": ONES}, "KNeighborsClassifier takes no sample_weight"),
        (Ridge(), {"sample_weight": np.r_[1e3, np.ones(119)]}, "1.25 effective rows of 120"),
        (GaussianNB(), {"n_jobs": 0}, "n_jobs=0"),
        (GaussianNB(), {"n_jobs": "x"}, "n_jobs='x'"),
        (GaussianNB(), {"random_state": "x"}, "'x' cannot be used to seed"),
        (GaussianNB(), {"y": Y[:-1]}, "inconsistent numbers of samples"),
        (GaussianNB(), {"y": None}, "y is None"),
        (GaussianNB(), {"X": 5}, "Expected sequence or array-like"),
        (GaussianNB(), {"X": np.full((120, 3), np.nan)}, "model cannot be fitted: .*NaN"),
        (GaussianNB, {}, "estimator is the class GaussianNB"),
        (5, {}, "estimator is a int"),
        (SimpleNamespace(fit=None), {}, "estimator is a SimpleNamespace"),
    ],
)
def test_errors_name_the_value(estimator, options, message):
    with pytest.raises(UncurseError, match=message):
        fit_replicas(estimator, **{"X": X, "y": Y, **options})


def test_weights_that_are_not_requested_are_an_error():
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UncurseError, match="GaussianNB takes no sample_weight"):
            fit_replicas(GaussianNB(), X, Y, sample_weight=ONES)
        requested = make_pipeline(StandardScaler(), GaussianNB().set_fit_request(sample_weight=True))
        with pytest.raises(UncurseError, match=r"the model cannot be fitted: .*StandardScaler"):
            fit_replicas(requested, X, Y, sample_weight=ONES)
