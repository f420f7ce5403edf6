from contextlib import nullcontext
from types import SimpleNamespace

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from uncurse.errors import UncurseError
from uncurse.estimators import fit_replicas
from uncurse.estimators.resampling import Bootstrap, row_hashes, take_rows

# scikit-learn 1.6 uses an option that SciPy 1.17 deprecates.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = RNG.random(120) < 1 / (1 + np.exp(-X.sum(axis=1)))
FOREST = RandomForestClassifier(5, max_depth=3)


# ---------------------------------------------------------------------------- kinds of replica


@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (LogisticRegression(), "bootstrap"),
        (Ridge(), "bootstrap"),
        (FOREST, "bootstrap"),
        (GaussianNB(), "anchored"),
        (LinearRegression(), "anchored"),
        (KNeighborsClassifier(), "anchored"),
        (make_pipeline(StandardScaler(), FOREST), "bootstrap"),
        (FrozenEstimator(GaussianNB().fit(X[:60], Y[:60])), "anchored"),
    ],
    ids=repr,
)
def test_bootstraps_are_anchored_only_if_the_estimator_has_no_randomness_of_its_own(estimator, kind):
    fitted = fit_replicas(estimator, X, Y, random_state=0)
    assert (fitted.kind, len(fitted.models)) == (kind, 3)
    assert fit_replicas(estimator, X, Y, n_replicas=2, random_state=0).kind == "anchored"
    method = "predict_proba" if hasattr(fitted.served, "predict_proba") else "predict"
    test = RNG.normal(size=(200, 3))
    first, second, third = (getattr(model, method)(test) for model in fitted.models)
    assert (first != second).any()
    assert (second != third).any()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("estimator", [FOREST, MLPRegressor(hidden_layer_sizes=4, max_iter=30)], ids=repr)
def test_seeds_are_seeds(estimator):
    fitted = fit_replicas(estimator, X, Y, replicas="seeds", random_state=0)
    assert (fitted.kind, len(fitted.models)) == ("seeds", 3)


def test_each_bootstrap_has_its_own_seed():
    seeds = {model.random_state for model in fit_replicas(FOREST, X, Y, n_replicas=4, random_state=0).models}
    assert len(seeds) == 4


# ---------------------------------------------------------------------------- seeds


def test_nested_seeds_differ_between_replicas_and_the_served_model_keeps_its_own():
    pipeline = make_pipeline(FOREST).set_params(randomforestclassifier__random_state=7)
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


def test_without_random_state_bootstraps_differ_and_the_global_state_is_not_used():
    before = np.random.get_state()[1].copy()
    one, other = (fit_replicas(GaussianNB(), X, Y).others[0].theta_ for _ in range(2))
    assert (one != other).any()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_the_estimator_is_cloned():
    estimator = LogisticRegression()
    fit_replicas(estimator, X, Y, random_state=0)
    assert not hasattr(estimator, "coef_")
    assert estimator.random_state is None


def test_a_frozen_model_is_served_unchanged():
    model = GaussianNB().fit(X[:50], Y[:50])
    frozen = FrozenEstimator(model)
    fitted = fit_replicas(frozen, X, Y, n_replicas=3, random_state=0)
    assert fitted.served is frozen
    assert model.class_count_.sum() == 50
    assert all(type(other) is GaussianNB and other.class_count_.sum() > 80 for other in fitted.others)


# ---------------------------------------------------------------------------- bootstraps


def test_a_bootstrap_draws_each_row_poisson_times():
    bootstrap = Bootstrap.of(X, Y, None, None, stratified=True)
    times = np.array([bootstrap.draw([s]) for s in range(1, 401)])
    # 48,000 draws of a Poisson(1): the mean has standard error 1/√48000, the variance √(3/48000).
    assert abs(times.mean() - 1) < 4 / np.sqrt(48_000)
    assert abs(times.var() - 1) < 4 * np.sqrt(3 / 48_000)
    assert abs(np.corrcoef(times[0], times[1])[0, 1]) < 4 / np.sqrt(120)


def test_rows_that_are_drawn_at_most_once_are_half_of_all():
    bootstrap = Bootstrap.of(X, Y, None, None, stratified=True)
    times = np.array([bootstrap.draw([s], at_most_once=True) for s in range(1, 401)])
    assert set(np.unique(times)) == {0, 1}
    assert abs(times.mean() - 0.5) < 4 * 0.5 / np.sqrt(48_000)


def test_only_the_rows_of_a_fold_are_drawn():
    rows = np.arange(30, 90)
    times = Bootstrap.of(X, Y, None, None, stratified=True).draw([1], rows)
    assert set(np.flatnonzero(times)) <= set(rows)


def test_groups_are_drawn_together():
    groups = np.arange(120) // 4
    times = Bootstrap.of(X, Y, None, groups, stratified=True).draw([1]).reshape(30, 4)
    assert (times == times[:, :1]).all()
    assert len(set(times[:, 0])) > 2


def test_the_order_of_rows_does_not_change_a_bootstrap():
    order = RNG.permutation(120)
    one = Bootstrap.of(X, Y, None, None, stratified=True).draw([1])
    other = Bootstrap.of(X[order], Y[order], None, None, stratified=True).draw([1])
    np.testing.assert_array_equal(one[order], other)


def test_the_order_of_equal_rows_with_different_weights_does_not_change_a_bootstrap():
    constant, y, weights = np.ones((40, 1)), np.arange(40) % 2, np.arange(1.0, 41)
    order = RNG.permutation(40)
    one = Bootstrap.of(constant, y, weights, None, stratified=True).draw([1])
    other = Bootstrap.of(constant, y[order], weights[order], None, stratified=True).draw([1])
    np.testing.assert_array_equal(one[order], other)


def test_every_class_is_in_every_bootstrap():
    y = np.arange(120) == 5  # a Poisson(1) is 0 with probability 0.37
    bootstrap = Bootstrap.of(X, y, None, None, stratified=True)
    assert all(bootstrap.draw([s])[5] for s in range(40))


def test_weights_of_a_bootstrap_are_those_of_repeated_rows():
    fitted = fit_replicas(GaussianNB(), X, Y, random_state=0)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    drawn = Bootstrap.of(X, Y, None, None, stratified=True).draw([seed, 0, 1])
    repeated = GaussianNB().fit(np.repeat(X, drawn, axis=0), np.repeat(Y, drawn))
    np.testing.assert_allclose(fitted.others[0].theta_, repeated.theta_)


# ---------------------------------------------------------------------------- rows


def containers():
    X2 = np.round(X, 1)
    X2[:, 1] = np.maximum(X2[:, 1], 0)
    yield "list", X2, X2.tolist()
    yield "float32", np.round(X2), np.round(X2).astype(np.float32)
    yield "csr", X2, sparse.csr_array(X2)
    yield "coo", X2, sparse.coo_matrix(X2)
    for name in ("pandas", "polars"):
        if frames := _import(name):
            yield name, X2, frames.DataFrame({f"x{j}": X2[:, j] for j in range(3)})
            mixed = {"a": X2[:, 0], "b": np.arange(120), "c": np.arange(120) % 2 == 0}
            yield f"{name} mixed", np.column_stack(list(mixed.values())), frames.DataFrame(mixed)
            text = {"a": X2[:, 0], "b": [f"city {i % 7}" for i in range(120)]}
            yield f"{name} text", None, frames.DataFrame(text)


def _import(name):
    try:
        return __import__(name)
    except ImportError:
        return None


@pytest.mark.parametrize(("dense", "other"), [pytest.param(*rest, id=name) for name, *rest in containers()])
def test_bootstraps_do_not_depend_on_the_order_of_rows_in_any_container(dense, other):
    order = RNG.permutation(120)
    taken = take_rows(other, order)
    assert isinstance(taken, type(other)) or sparse.issparse(taken)
    one = Bootstrap.of(other, Y, None, None, stratified=True).draw([1])
    two = Bootstrap.of(taken, Y[order], None, None, stratified=True).draw([1])
    drawn, again = np.repeat(np.arange(120), one), np.repeat(np.arange(120), two)
    rows = take_rows(other, drawn)
    # Equal rows may exchange their counts.
    np.testing.assert_array_equal(
        np.sort(row_hashes(rows, Y[drawn])), np.sort(row_hashes(take_rows(taken, again), Y[order][again]))
    )
    rows = rows.toarray() if sparse.issparse(rows) else rows
    if dense is not None and not sparse.issparse(other):
        np.testing.assert_array_equal(row_hashes(dense, Y), row_hashes(other, Y))
    if dense is not None:
        np.testing.assert_allclose(np.asarray(rows).astype(float), dense[drawn], rtol=1e-6)


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
        np.arange("2026-01-01", "2026-02-01", dtype="datetime64[D]"),
        np.arange(24).reshape(2, 3, 4),
        RNG.normal(size=(100_000, 2)),
    ],
    ids=["numbers", "sparse", "text", "dicts", "ragged", "objects", "arrays", "dates", "cube", "many"],
)
def test_rows_that_differ_have_hashes_that_differ(rows):
    n = rows.shape[0] if hasattr(rows, "shape") else len(rows)
    hashes = row_hashes(rows, np.zeros(n))
    assert len(np.unique(hashes)) == n
    np.testing.assert_array_equal(row_hashes(take_rows(rows, np.arange(n)[::-1]), np.zeros(n)), hashes[::-1])


def test_hashes_depend_on_the_label():
    assert len(set(row_hashes(np.zeros((2, 1)), np.array(["a", "b"])))) == 2
    assert len(set(row_hashes(np.zeros((2, 1)), np.array([[0, 1], [1, 0]])))) == 2


def test_text_can_be_bootstrapped():
    text = ["good fine", "fine", "good", "bad", "poor bad", "poor"] * 20
    fitted = fit_replicas(make_pipeline(CountVectorizer(), LogisticRegression()), text, [1, 1, 1, 0, 0, 0] * 20)
    assert fitted.others[0].predict(["good", "bad"]).tolist() == [1, 0]


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


def test_rows_of_weight_zero_change_nothing():
    weights = np.where(np.arange(120) < 60, 0.0, 2.0)
    with_zeros = fit_replicas(GaussianNB(), X, Y, sample_weight=weights, random_state=0)
    without = fit_replicas(GaussianNB(), X[60:], Y[60:], random_state=0)
    for a, b in zip(with_zeros.models, without.models, strict=True):
        np.testing.assert_allclose(a.theta_, b.theta_)


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


def test_weights_reach_a_search():
    weights = np.where(np.arange(120) % 2, 1.0, 3.0)
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2)
    served = fit_replicas(search, X, Y, sample_weight=weights).served
    np.testing.assert_allclose(served.best_estimator_.class_count_.sum(), effective_rows(weights))


def test_a_frozen_model_needs_no_support_for_weights():
    frozen = FrozenEstimator(KNeighborsClassifier(3).fit(X, Y))
    assert len(fit_replicas(frozen, X, Y, sample_weight=np.ones(120)).models) == 3


# ---------------------------------------------------------------------------- parallel fits


@pytest.mark.parametrize("estimator", [GaussianNB(), FOREST], ids=["deterministic", "random"])
def test_results_do_not_depend_on_n_jobs(estimator):
    one, two = (fit_replicas(estimator, X, Y, n_replicas=3, n_jobs=n, random_state=0) for n in (1, 2))
    for a, b in zip(one.models, two.models, strict=True):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def test_joblib_chooses_the_backend():
    with joblib.parallel_config(backend="threading", n_jobs=2):
        threads = fit_replicas(GaussianNB(), X, Y, n_replicas=3, random_state=0)
    expected = fit_replicas(GaussianNB(), X, Y, n_replicas=3, random_state=0)
    np.testing.assert_array_equal(threads.others[1].theta_, expected.others[1].theta_)


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (GaussianNB(), {"replicas": "jackknife"}, "replicas='jackknife' is unknown; choose one of bootstrap, seeds"),
        (GaussianNB(), {"groups": "company"}, r"groups='company'; pass the group of every row, such as X\['company'\]"),
        (GaussianNB(), {"n_replicas": 1}, "n_replicas=1; pass 2 or more"),
        (GaussianNB(), {"n_replicas": 2.5}, "n_replicas=2.5; pass an integer"),
        (GaussianNB(), {"replicas": "seeds"}, "GaussianNB has no random_state; use replicas='boot"),
        (LogisticRegression(), {"replicas": "seeds"}, "LogisticRegression does not depend on its random_state; use"),
        (
            KNeighborsClassifier(),
            {"sample_weight": np.ones(120)},
            "KNeighborsClassifier does not support sample_weight",
        ),
        (Ridge(), {"sample_weight": np.r_[1e3, np.ones(119)]}, "leaves 1.25 effective rows of 120, and a bootstrap n"),
        (GaussianNB(), {"n_jobs": 0}, "n_jobs=0; pass None, a number of processes"),
        (GaussianNB(), {"n_jobs": "x"}, "n_jobs='x'; pass None"),
        (GaussianNB(), {"random_state": "x"}, "'x' cannot be used to seed"),
        (
            GaussianNB,
            {},
            r"estimator is the class GaussianNB; pass a scikit-learn estimator, such as LogisticRegression\(\)",
        ),
        (5, {}, "estimator is a int; pass a scikit-learn estimator"),
        (SimpleNamespace(fit=None), {}, "estimator is a SimpleNamespace; pass a scikit-learn estimator"),
        (SimpleNamespace(get_params=None), {}, "estimator is a SimpleNamespace; pass a scikit-learn estimator"),
        (GaussianNB(), {"n_replicas": 2**63}, "n_replicas=9223372036854775808 is too large; pass at most 10,000"),
    ],
)
def test_errors_name_the_value_and_the_remedy(estimator, options, message):
    with pytest.raises(UncurseError, match=message):
        fit_replicas(estimator, X, Y, **options)


def test_weights_that_are_not_requested_are_an_error():
    with config_context(enable_metadata_routing=True), pytest.raises(UncurseError, match="does not request sample_wei"):
        fit_replicas(GaussianNB(), X, Y, sample_weight=np.ones(120))


@pytest.mark.parametrize("requested", [False, True])
def test_the_error_names_the_parts_of_a_pipeline_that_take_weights(requested):
    rows, weights = np.column_stack([X[:, :2], X[:, 2].round()]), np.where(Y, 3.0, 1.0)
    with config_context(enable_metadata_routing=True):
        scaler, model = StandardScaler(), LogisticRegression()
        if requested:
            model.set_fit_request(sample_weight=True)
        columns = make_column_transformer((scaler, [0, 1]), (OneHotEncoder(handle_unknown="ignore"), [2]))
        pipeline = make_pipeline(columns, model)
        start = "the model cannot be fitted: .* Call" if requested else "Pipeline does not request sample_weight; call"
        remedy = r"set_fit_request\(sample_weight=True\) on LogisticRegression, and with False on StandardScaler, "
        with pytest.raises(UncurseError, match=f"^{start} {remedy}which would take weights too$"):
            fit_replicas(pipeline, rows, Y, sample_weight=weights)
        model.set_fit_request(sample_weight=True)
        scaler.set_fit_request(sample_weight=False)
        fitted = fit_replicas(pipeline, rows, Y, sample_weight=weights, random_state=0)
    assert fitted.served[-1].intercept_ > clone(pipeline).fit(rows, Y)[-1].intercept_ + 0.5


def test_a_pipeline_whose_model_takes_no_weights_does_not_support_them():
    with config_context(enable_metadata_routing=True), pytest.raises(UncurseError, match="Pipeline does not support"):
        fit_replicas(make_pipeline(StandardScaler(), KNeighborsClassifier()), X, Y, sample_weight=np.ones(120))


def test_lengths_that_differ_are_an_error():
    with pytest.raises(UncurseError, match="inconsistent numbers of samples"):
        fit_replicas(GaussianNB(), X, Y[:-1])
    with pytest.raises(UncurseError, match="y is None; pass a target"):
        fit_replicas(GaussianNB(), X, None)
    with pytest.raises(UncurseError, match="Expected sequence or array-like"):
        fit_replicas(GaussianNB(), 5, Y)


class Predicting:
    """A model with given predictions."""

    def __init__(self, values):
        self.values = np.asarray(values, float)

    def predict_proba(self, rows):
        return self.values[np.asarray(rows, int)[:, 0]]


@pytest.mark.parametrize(("heavy", "refused"), [(45.0, False), (50.0, True)])
def test_a_bootstrap_needs_five_effective_rows(heavy, refused):
    weights = np.r_[heavy, np.ones(59)]
    effective = effective_rows(weights)
    assert (effective < 5) == refused
    with pytest.raises(UncurseError, match="a bootstrap needs 5") if refused else nullcontext():
        Bootstrap.of(X[:60], Y[:60], weights, None, stratified=False)


def test_few_rows_need_half_of_them_to_be_effective():
    for heavy, refused in ((2.0, False), (20.0, True)):
        weights = np.array([heavy, 1.0, 1.0, 1.0])
        assert (effective_rows(weights) < 2) == refused
        with pytest.raises(UncurseError, match="effective rows of 4") if refused else nullcontext():
            Bootstrap.of(X[:4], Y[:4], weights, None, stratified=False)


@pytest.mark.parametrize("at_most_once", [False, True])
def test_a_bootstrap_holds_at_least_half_of_the_expected_weight(at_most_once):
    weights = np.r_[np.full(5, 30.0), np.ones(20)]
    units = Bootstrap.of(X[:25], Y[:25], weights, None, stratified=False)
    least = weights.sum() / (4 if at_most_once else 2)
    drawn = np.array([weights @ units.draw([seed], at_most_once=at_most_once) for seed in range(300)])
    assert drawn.min() >= least
    assert drawn.min() < 1.1 * least  # a seventh of all draws is lighter, without this rule


def test_a_class_that_is_hardly_ever_drawn_is_an_error():
    # The one row of each of 40 classes: a chance of (1 − 1/e)^40 = 1e-8 to draw all.
    units = Bootstrap.of(np.arange(40)[:, None], np.arange(40), None, None, stratified=True)
    with pytest.raises(UncurseError, match="none of 1000 bootstraps contains every class: the rarest has 1 rows"):
        units.draw([0])
    # Every class has a chance of 63% here, and both 40%: another draw succeeds.
    both = Bootstrap.of(np.arange(2)[:, None], np.arange(2), None, None, stratified=True)
    assert all((both.draw([seed]) > 0).all() for seed in range(20))


def test_the_served_model_gets_a_seed_only_if_there_is_one():
    forest = RandomForestClassifier(5, max_depth=3)
    assert fit_replicas(forest, X, Y, random_state=0).served.random_state is not None
    assert fit_replicas(forest, X, Y).served.random_state is None
    own = fit_replicas(RandomForestClassifier(5, max_depth=3, random_state=7), X, Y, random_state=0)
    assert own.served.random_state == 7
