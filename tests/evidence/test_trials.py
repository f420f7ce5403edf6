"""Counts as labels: a row of y successes in n trials is y rows with label 1 and n − y rows with label 0."""

import numpy as np
import polars as pl
import pytest

from uncurse import Evidence, UncurseError, calibrate, collect, evaluate
from uncurse.evidence import from_arrays
from uncurse.links import logistic


def counts(rows=300, seed=0):
    """Return scores, successes, trials, weights and segments, and the number and label of each row per trial."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-1.0, 0.8, (rows, 1))
    scores = truth + rng.normal(0, 0.4, (rows, 3))
    trials = rng.integers(1, 60, rows)
    successes = rng.binomial(trials, logistic(truth[:, 0]))
    place = np.repeat(np.arange(rows), trials)
    first = np.repeat(np.cumsum(trials) - trials, trials)
    label = np.arange(len(place)) - first < successes[place]
    return scores, successes, trials, rng.integers(0, 4, rows) / 2, rng.choice(["a", "b"], rows), place, label


def assert_close(one, other):
    """Compare plain data, numbers up to rounding."""
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            assert_close(one[name], other[name])
    elif isinstance(one, list) and one and isinstance(one[0], int | float):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)
    elif isinstance(one, list):
        [assert_close(*pair) for pair in zip(one, other, strict=True)]
    else:
        assert one == (pytest.approx(other, rel=1e-9, abs=1e-12) if isinstance(one, float) else other)


def same_columns(evidence):
    content = evidence.to_dict()
    parts = [content, *content["segments"].values()]
    return [{name: part[name] for name in ("moments", "served", "replicas")} for part in parts]


@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_with_trials_is_as_many_rows(weighted):
    scores, y, n, w, segment, place, label = counts()
    weights = [w, w[place]] if weighted else [None, None]
    found = from_arrays(scores, y, trials=n, sample_weight=weights[0], segments=segment)
    expected = from_arrays(scores[place], label, sample_weight=weights[1], segments=segment[place])
    assert found.rows == expected.rows == n.sum()
    assert_close(same_columns(found), same_columns(expected))
    again = Evidence.from_dict(found.to_dict())
    assert again.spec.trials == "trials"


@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_and_calibrators_count_each_trial(weighted):
    scores, y, n, w, _, place, label = counts()
    one, many = ({"sample_weight": w}, {"sample_weight": w[place]}) if weighted else ({}, {})
    p, shares = logistic(scores[:, 0]), [0.05, 0.3, 1.0]
    assert_close(evaluate(y, p, shares, trials=n, **one).to_dict(), evaluate(label, p[place], shares, **many).to_dict())
    for method in ("platt", "isotonic", "histogram", "spline"):
        found = calibrate(method, scores[:, 0], y, trials=n, **one)
        expected = calibrate(method, scores[place, 0], label, **many)
        np.testing.assert_allclose(found(scores[:, 0]), expected(scores[:, 0]), rtol=1e-6)


def test_rows_without_trials_are_left_out_on_request():
    log = pl.DataFrame({"s": [0.0, 1.0, 2.0], "clicks": [1, 2, None], "shown": [2, None, 3]})
    with pytest.warns(UserWarning, match="1 rows have no (clicks|shown)"):
        assert collect(log, "s", label="clicks", trials="shown", missing="drop").rows == 2
    with pytest.raises(UncurseError, match="column 'clicks', row 2 is missing; leave out rows"):
        collect(log, "s", label="clicks", trials="shown")


@pytest.mark.parametrize(
    ("clicks", "shown", "message"),
    [
        (0, 0, r"shown.*1.* is 0; .*leave out rows without trials"),
        (0, -3, r"shown.*1.* is -3; "),
        (1, 2.5, r"shown.*1.* is 2.5; trials are whole numbers"),
        (1, float("inf"), r"shown.*1.* is inf; "),
        (5, 4, r"clicks.*1.* is 5 of 4 trials; .*repair the row"),
        (-1, 4, r"clicks.*1.* is -1 of 4"),
        (0.5, 4, r"clicks.*1.* is 0.5 of 4 trials; successes are whole numbers"),
    ],
)
def test_counts_that_cannot_be_are_refused(clicks, shown, message):
    scores, y, n = np.zeros((2, 2)), [1.0, clicks], [2.0, shown]
    log = pl.DataFrame({"s0": scores[:, 0], "clicks": y, "shown": n})
    with pytest.raises(UncurseError, match=message):
        collect(log, "s0", label="clicks", trials="shown")
    for name, refused in (
        ("labels", lambda: from_arrays(scores, y, trials=n)),
        ("labels", lambda: calibrate("platt", scores[:, 0], y, trials=n)),
        ("y", lambda: evaluate(y, scores[:, 0], trials=n)),
    ):
        with pytest.raises(UncurseError, match=message.replace("shown", "trials").replace("clicks", name)):
            refused()


def test_trials_need_the_column_of_successes():
    with pytest.raises(UncurseError, match="trials='shown' needs a label"):
        collect(pl.DataFrame({"s": [0.0], "shown": [1]}), "s", trials="shown")
    with pytest.raises(UncurseError, match="trials need labels"):
        from_arrays(np.zeros((2, 2)), trials=[1, 2])
    with pytest.raises(UncurseError, match=r"trials has shape \(1,\)"):
        evaluate([1, 0], [0.5, 0.5], trials=[1])
