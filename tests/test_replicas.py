import io
import logging
import subprocess
import sys

import joblib
import numpy as np
import pytest
from scipy import sparse
from sklearn import config_context
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from uncurse.errors import UncurseError
from uncurse.estimators import replicas as module
from uncurse.estimators.replicas import _Groups, fit_replicas, row_hashes, take_rows

# scikit-learn 1.6 calls SciPy 1.17 the old way.
pytestmark = pytest.mark.filterwarnings(r"ignore:scipy.optimize. The `disp`:DeprecationWarning")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = RNG.random(120) < 1 / (1 + np.exp(-X.sum(axis=1)))
FOREST = RandomForestClassifier(5, max_depth=3)


# ---------------------------------------------------------------------------- what auto decides


@pytest.mark.parametrize(
    "estimator",
    [
        LogisticRegression(),
        LogisticRegression(solver="saga"),  # random, but converges
        LinearSVC(dual=False),
        Ridge(),
        DecisionTreeClassifier(),
        GaussianNB(),
        LinearRegression(),
        make_pipeline(StandardScaler(), LogisticRegression()),
        FrozenEstimator(LogisticRegression(solver="newton-cholesky").fit(X[:60], Y[:60])),  # they differ from it only
    ],
    ids=repr,
)
def test_auto_bootstraps_where_the_seed_changes_nothing(estimator):
    fitted = fit_replicas(estimator, X, Y, random_state=0)
    assert (fitted.replicate, fitted.regime) == ("bootstrap", "anchored")
    method = "predict_proba" if hasattr(fitted.served, "predict_proba") else "predict"
    assert len(fitted.models) == 2
    test = RNG.normal(size=(200, 3))
    assert (getattr(fitted.served, method)(test) != getattr(fitted.others[0], method)(test)).any()


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize(
    "estimator",
    [
        FOREST,
        MLPRegressor(hidden_layer_sizes=4, max_iter=30),
        make_pipeline(StandardScaler(), FOREST),
        FrozenEstimator(FOREST.fit(X, Y)),
    ],
    ids=repr,
)
def test_auto_takes_seeds_where_they_matter(estimator):
    fitted = fit_replicas(estimator, X, Y, n_replicas=3, random_state=0)
    assert (fitted.replicate, fitted.regime, len(fitted.models)) == ("seeds", "seeds", 3)


def test_auto_compares_a_sample_of_many_rows(monkeypatch):
    monkeypatch.setattr(module, "_PROBE_ROWS", 50)
    assert fit_replicas(LogisticRegression(), X, Y).replicate == "bootstrap"
    assert fit_replicas(FOREST, X, Y).replicate == "seeds"


def test_what_was_decided_is_logged(caplog):
    with caplog.at_level(logging.INFO, logger="uncurse"):
        fit_replicas(GaussianNB(), X, Y)
    assert caplog.messages == ["GaussianNB: 2 replicas by bootstrap"]


# ---------------------------------------------------------------------------- seeds


def test_every_nested_seed_differs_between_replicas_and_own_seeds_are_served():
    pipeline = make_pipeline(FOREST).set_params(randomforestclassifier__random_state=7)
    fitted = fit_replicas(pipeline, X, Y, n_replicas=4, replicate="seeds", random_state=0)
    seeds = [model.get_params()["randomforestclassifier__random_state"] for model in fitted.models]
    assert seeds[0] == 7
    assert len(set(seeds)) == 4


@pytest.mark.parametrize("replicate", ["seeds", "bootstrap"])
@pytest.mark.parametrize("state", [int, np.random.RandomState, np.random.default_rng], ids=["int", "legacy", "new"])
def test_random_state_settles_everything(state, replicate):
    one, other = (fit_replicas(FOREST, X, Y, replicate=replicate, random_state=state(3)) for _ in range(2))
    for a, b in zip(one.models, other.models, strict=True):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def test_without_a_random_state_bootstraps_differ_and_the_global_state_is_left_alone():
    before = np.random.get_state()[1].copy()
    one, other = (fit_replicas(GaussianNB(), X, Y).others[0].theta_ for _ in range(2))
    assert (one != other).any()
    np.testing.assert_array_equal(before, np.random.get_state()[1])


def test_the_estimator_itself_is_not_touched():
    estimator = LogisticRegression()
    fit_replicas(estimator, X, Y, random_state=0)
    assert not hasattr(estimator, "coef_")
    assert estimator.random_state is None


def test_a_frozen_model_is_served_as_it_is():
    model = GaussianNB().fit(X[:50], Y[:50])
    frozen = FrozenEstimator(model)
    fitted = fit_replicas(frozen, X, Y, replicate="bootstrap", n_replicas=3, random_state=0)
    assert fitted.served is frozen
    assert model.class_count_.sum() == 50
    assert all(type(other) is GaussianNB and other.class_count_.sum() > 80 for other in fitted.others)


# ---------------------------------------------------------------------------- the bootstrap


def test_a_bootstrap_draws_each_row_poisson_times():
    groups = _Groups.of(X, Y, None, stratified=True)
    times = np.array([np.bincount(groups.draw(0, s), minlength=120) for s in range(1, 401)])
    # 48,000 draws of a Poisson(1): the mean has standard error 1/√48000, the variance √(3/48000).
    assert abs(times.mean() - 1) < 4 / np.sqrt(48_000)
    assert abs(times.var() - 1) < 4 * np.sqrt(3 / 48_000)
    assert abs(np.corrcoef(times[0], times[1])[0, 1]) < 4 / np.sqrt(120)


def test_weights_equal_repetition():
    weights = RNG.integers(0, 4, 120)
    weighted = fit_replicas(GaussianNB(), X, Y, sample_weight=weights, n_replicas=3, random_state=0)
    repeated = fit_replicas(GaussianNB(), np.repeat(X, weights, 0), np.repeat(Y, weights), n_replicas=3, random_state=0)
    for a, b in zip(weighted.others, repeated.others, strict=True):
        np.testing.assert_array_equal(a.theta_, b.theta_)
    np.testing.assert_allclose(weighted.served.theta_, repeated.served.theta_)


def test_the_order_of_rows_does_not_matter_to_a_bootstrap():
    order = RNG.permutation(120)
    one = _Groups.of(X, Y, None, stratified=True).draw(0, 1)
    other = _Groups.of(X[order], Y[order], None, stratified=True).draw(0, 1)
    np.testing.assert_array_equal(one, order[other])


def test_every_class_is_in_every_bootstrap():
    y = np.arange(120) == 5  # a Poisson(1) misses it 37 times in 100
    groups = _Groups.of(X, y, None, stratified=True)
    assert all(y[groups.draw(0, s)].any() for s in range(40))


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


def _import(name):
    try:
        return __import__(name)
    except ImportError:
        return None


@pytest.mark.parametrize(("dense", "other"), [pytest.param(*rest, id=name) for name, *rest in containers()])
def test_rows_are_the_same_in_every_container(dense, other):
    np.testing.assert_array_equal(row_hashes(dense, Y), row_hashes(other, Y))
    rows = np.array([5, 5, 0, 119])
    taken = take_rows(other, rows)
    assert isinstance(taken, type(other)) or sparse.issparse(taken)
    taken = taken.toarray() if sparse.issparse(taken) else np.asarray(taken).astype(float)
    np.testing.assert_allclose(taken, dense[rows], rtol=1e-6)


@pytest.mark.parametrize(
    "rows",
    [
        np.array(
            [[0.0, 1.0], [1.0, 0.0], [2.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0], [np.nan, 0.0], [0.0, np.nan]]
        ),
        np.eye(3000)[:, ::-1],
        ["a", "b", "ab", "", "é\ud800"],
        [{"a": 1}, {"b": 1}, {"a": 2}],
        [["a"], ["a", "b"], ["b"]],
        np.array([["a", 1], ["a", 2], ["b", 1]], dtype=object),
        [np.arange(5000), np.arange(1, 5001), np.r_[0:2500, 0:2501]],
        np.arange("2026-01-01", "2026-02-01", dtype="datetime64[D]"),
        np.arange(24).reshape(2, 3, 4),
        RNG.normal(size=(100_000, 2)),
    ],
    ids=["numbers", "one-hot", "text", "dicts", "ragged", "objects", "arrays", "dates", "cube", "many"],
)
def test_rows_that_differ_have_hashes_that_differ(rows):
    hashes = row_hashes(rows, np.zeros(len(rows)))
    assert len(np.unique(hashes)) == len(rows)
    np.testing.assert_array_equal(row_hashes(take_rows(rows, np.arange(len(rows))[::-1]), hashes * 0.0), hashes[::-1])


def test_hashes_see_the_label_and_neither_the_sign_of_zero_nor_the_kind_of_nan():
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert len(set(row_hashes(nans[:, None], np.array(["a", "a"])))) == 1
    assert len(set(row_hashes(np.array([[0.0], [-0.0]]), np.zeros(2)))) == 1
    assert len(set(row_hashes(np.zeros((2, 1)), np.array(["a", "b"])))) == 2
    assert len(set(row_hashes(np.zeros((2, 1)), np.array([[0, 1], [1, 0]])))) == 2


def test_text_can_be_bootstrapped():
    text = ["good fine", "fine", "good", "bad", "poor bad", "poor"] * 20
    fitted = fit_replicas(make_pipeline(CountVectorizer(), LogisticRegression()), text, [1, 1, 1, 0, 0, 0] * 20)
    assert fitted.others[0].predict(["good", "bad"]).tolist() == [1, 0]


# ---------------------------------------------------------------------------- weights


def test_weights_reach_the_last_step_of_nested_pipelines():
    weights = np.where(np.arange(120) < 60, 1.0, 3.0)
    nested = make_pipeline(StandardScaler(), make_pipeline(StandardScaler(), GaussianNB()))
    served = fit_replicas(nested, X, Y, sample_weight=weights).served
    assert served[-1][-1].class_count_.sum() == weights.sum()
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        pipeline = make_pipeline(scaler, GaussianNB().set_fit_request(sample_weight=True))
        served = fit_replicas(pipeline, X, Y, sample_weight=weights).served
        assert served[-1].class_count_.sum() == weights.sum()
        np.testing.assert_allclose(served[0].mean_, np.average(X, axis=0, weights=weights))


def test_weights_reach_a_search():
    search = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-3]}, cv=2)
    served = fit_replicas(search, X, Y, sample_weight=np.full(120, 2.0)).served
    assert served.best_estimator_.class_count_.sum() == 240


def test_a_frozen_model_needs_no_support_for_weights():
    frozen = FrozenEstimator(KNeighborsClassifier(3).fit(X, Y))
    assert len(fit_replicas(frozen, X, Y, sample_weight=np.ones(120)).models) == 2


# ---------------------------------------------------------------------------- parallel, quiet


@pytest.mark.parametrize("estimator", [GaussianNB(), FOREST], ids=["bootstrap", "seeds"])
def test_two_jobs_give_what_one_gives(estimator):
    one, two = (fit_replicas(estimator, X, Y, n_replicas=3, n_jobs=n, random_state=0) for n in (1, 2))
    for a, b in zip(one.models, two.models, strict=True):
        np.testing.assert_array_equal(a.predict_proba(X), b.predict_proba(X))


def test_the_backend_is_joblib_s():
    with joblib.parallel_config(backend="threading", n_jobs=2):
        threads = fit_replicas(GaussianNB(), X, Y, n_replicas=3, random_state=0)
    expected = fit_replicas(GaussianNB(), X, Y, n_replicas=3, random_state=0)
    np.testing.assert_array_equal(threads.others[1].theta_, expected.others[1].theta_)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_shown_on_a_terminal_only_and_only_if_it_takes_long(monkeypatch, capsys):
    fit_replicas(GaussianNB(), X, Y)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", Terminal())
    fit_replicas(GaussianNB(), X, Y)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setattr(module, "_DELAY", 0.0)
    fit_replicas(FOREST, X, Y, progress=False)
    assert sys.stderr.getvalue() == ""
    monkeypatch.setenv("TERM", "xterm")
    fit_replicas(FOREST, X, Y, n_replicas=4)
    assert "fitting 4 replicas of RandomForestClassifier" in sys.stderr.getvalue()
    assert capsys.readouterr().out == ""


def test_rich_is_not_needed_before_a_bar_is_shown():
    code = "import sys; sys.modules.update({'rich': None, 'rich.progress': None}); import uncurse.estimators"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("estimator", "options", "message"),
    [
        (GaussianNB(), {"replicate": "jackknife"}, "replicate='jackknife' is unknown; choose one of auto, seeds, boot"),
        (GaussianNB(), {"n_replicas": 1}, "n_replicas=1; pass 2 or more"),
        (GaussianNB(), {"n_replicas": 2.5}, "n_replicas=2.5; pass 2 or more"),
        (GaussianNB(), {"replicate": "seeds"}, "GaussianNB has no random_state to replicate by; use replicate='boot"),
        (LogisticRegression(), {"replicate": "seeds"}, "LogisticRegression is the same whatever its random_state"),
        (
            GaussianNB(),
            {"sample_weight": np.full(120, 1 / 120)},
            "sums to 1 over 120 rows.* rescale the weights to sum",
        ),
        (KNeighborsClassifier(), {"sample_weight": np.ones(120)}, "KNeighborsClassifier takes no sample_weight; leave"),
        (GaussianNB(), {"sample_weight": np.where(Y, 1.0, 1e-9)}, "none of 1000 bootstraps held every class: the rare"),
    ],
)
def test_errors_name_the_value_and_the_remedy(estimator, options, message):
    with pytest.raises(UncurseError, match=message):
        fit_replicas(estimator, X, Y, **options)


def test_weights_that_are_not_requested_are_an_error():
    with config_context(enable_metadata_routing=True), pytest.raises(UncurseError, match="does not ask for sample_wei"):
        fit_replicas(GaussianNB(), X, Y, sample_weight=np.ones(120))


def test_lengths_that_differ_are_an_error():
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        fit_replicas(GaussianNB(), X, Y[:-1])
