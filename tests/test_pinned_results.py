"""Results of every method on fixed data, to eight digits: an unintended change of any constant shows here.

After an intended change, look at the differences and run ``python tests/test_pinned_results.py`` to store new results.
"""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from uncurse import VAD, Auto, Tower, calibrate, evaluate
from uncurse.calibration import CALIBRATORS

STORED = Path(__file__).with_name("pinned_results.json")
SERVED = np.array([-6.0, -4.0, -3.0, -2.2, -1.5, -0.8, 0.0, 1.0, 2.5])


def world(kind, rows, replicas, mean=-2.0, seed=0):
    rng = np.random.default_rng([seed, rows, replicas])
    heavy = rng.standard_t(4, rows) * 0.7
    truth = mean + (heavy if kind == "heavy" else rng.normal(0, 0.9, rows))
    noise = rng.uniform(0.1, 0.8, (rows, 1)) if kind in ("unequal", "heavy") else 0.4
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    if kind == "capped":
        scores = np.clip(scores, mean - 1.0, mean + 1.6)
        wild = rng.random((rows, replicas)) < 0.002
        scores[wild] = rng.choice([-300.0, 40.0, 2000.0], wild.sum())
    if kind == "steep":
        scores = 2.5 * scores + 1.0
    labels = rng.random(rows) < 1 / (1 + np.exp(-truth))
    return scores, labels, rng.exponential(size=rows), rng.integers(3, size=rows)


def numbers(method):
    record = method.record_
    found = [*getattr(method.map_, "default", method.map_)(SERVED).tolist()]
    found += [x for x in (record.lambda_, record.standard_error, record.center, record.noise_variance) if x is not None]
    found += [x for x in (record.line_probability, record.contrast) if x is not None]
    if record.labelled is not None or record.replicas != "snapshots":  # they have no intervals without labels
        found += [*method.interval(0.02), *method.interval(0.3, 0.5)]
    return found


def fitted(kind, replicas, columns, rows):
    pool = world(kind, rows, columns, seed=1)
    scores, labels, weights, _ = world(kind, rows // 2, columns, mean=-1.7)
    sets = {"pool": pool, "labelled": (scores, labels), "weighted": (scores, labels, weights)}
    results = {}
    for name, make in {
        "vad": lambda: VAD(replicas=replicas, curvature=True, lambda_floor=0.05, intervals=True).fit(pool[0]),
        "free": lambda: VAD(replicas=replicas, shape="free").fit(pool[0]),
        "tandem": lambda: VAD(replicas=replicas, calibrator="isotonic", lambda_floor=0.05, intervals=True).fit(
            pool[0], labelled=sets["labelled"]
        ),
        "tower": lambda: Tower(replicas=replicas).fit(pool[0], labelled=sets["labelled"]),
        "tower, weights and groups": lambda: Tower(replicas=replicas).fit(
            pool[0], labelled=sets["weighted"], groups=pool[3], sample_weight=pool[2]
        ),
        "auto": lambda: Auto(replicas=replicas).fit(pool[0], labelled=sets["labelled"]),
        "auto without labels": lambda: Auto(replicas=replicas).fit(pool[0], sample_weight=pool[2]),
    }.items():
        try:
            method = make()
            results[name] = [method.record_.method, method.record_.reason, *numbers(method)]
            if "groups" in name:
                results[name] += [x for group in "012" for x in method.map_(SERVED, np.full(9, group)).tolist()]
        except ValueError as error:
            results[name] = [str(error)]
    return results


def calibrated():
    scores, labels, weights, _ = world("unequal", 3_000, 1)
    return {name: calibrate(name, scores[:, 0], labels, sample_weight=weights)(SERVED).tolist() for name in CALIBRATORS}


def evaluated():
    scores, labels, weights, _ = world("heavy", 2_000, 1)
    p = 1 / (1 + np.exp(-scores[:, 0]))
    results = {}
    for strategy in ("quantile", "uniform"):
        rows = evaluate(labels, p, [0.02, 0.3, 1.0], sample_weight=weights, strategy=strategy).rows
        estimates = [e for row in rows for e in (row.ratio, row.ece, row.mce, row.log_loss, row.brier)]
        results[strategy] = [x for e in estimates for x in (float(e), e.standard_error, e.floor or 0.0)]
    return results


def groups_and_lines():
    """`VAD` by group, with a given variance, and the straight lines of maps."""
    scores, labels, weights, groups = world("unequal", 4_000, 3, seed=5)
    by_group = VAD(replicas="bootstrap").fit(scores, groups=groups, sample_weight=weights)
    known = VAD(lambda_floor=0.01).fit(scores[:, 0], groups=groups, variance=0.2)
    tower = Tower(replicas="bootstrap").fit(scores + np.array([0.3, 0.0, -0.2]), labelled=(scores, labels))
    lines = [Auto(replicas="bootstrap").fit(scores).line(shares) for shares in ((0.01, 0.1), (0.2, 0.9))]
    return {
        "groups": [*by_group.group_lambda_.values(), *by_group.group_center_.values()],
        "groups of a given variance": [*known.group_lambda_.values(), *known.group_center_.values()],
        "levels that differ": numbers(tower),
        "lines": [x for line, loss in lines for x in (line.slope, line.intercept, loss)],
    }


def small_pools():
    """Pools and labelled sets of a few dozen rows, where limits on shares and degrees of freedom act."""
    results = {}
    for rows in (30, 60):
        scores, labels, _, _ = world("normal", rows, 2, seed=rows)
        tower = Tower().fit(scores, labelled=(scores, labels))
        results[f"tower of {rows}"] = [*tower.map_(SERVED).tolist(), *tower.interval(0.05), *tower.interval(1.0)]
        auto = Auto().fit(scores, labelled=(scores, labels))
        results[f"auto of {rows}"] = [auto.method_, auto.reason_, *auto.map_(SERVED).tolist(), *auto.interval(0.1)]
    return results


def snapshots():
    """Checkpoints that are less spread out than the served model, so that a slope is fitted between them."""
    scores, labels, _, _ = world("normal", 5_000, 3, seed=7)
    scores = scores * [1.0, 0.85, 0.7] + [0.0, 0.1, 0.2]
    methods = {
        "vad": VAD(replicas="snapshots", intervals=True).fit(scores),
        "free": VAD(replicas="snapshots", shape="free").fit(scores),
        "tower": Tower(replicas="snapshots").fit(scores, labelled=(scores, labels)),
    }
    return {name: numbers(method) for name, method in methods.items()}


def estimators():
    """Cross-fitted estimators with a pool that differs from the training rows."""
    from sklearn.linear_model import LogisticRegression

    from uncurse import UncursedClassifierCV

    rng = np.random.default_rng(3)
    X, pool = rng.normal(size=(700, 8)), rng.normal(0.3, 1.2, (900, 8))
    y = rng.random(700) < 1 / (1 + np.exp(-X[:, 0] + 1))
    results = {}
    for name, options in {
        "auto": {},
        "two folds": {"cv": 2, "n_replicas": 4},
        "vad": {"method": "vad", "cv": None},
    }.items():
        made = UncursedClassifierCV(LogisticRegression(C=100.0), random_state=1, **options).fit(X, y, pool=pool)
        results[name] = [*made.predict_proba(pool[:6])[:, 1].tolist(), *made.interval(0.1)]
    return results


CASES = {
    "groups and lines": groups_and_lines,
    "small pools": small_pools,
    "snapshots": snapshots,
    "estimators": estimators,
    "ensemble of three": lambda: fitted("unequal", "ensemble", 3, 3_000),
    "two seeds": lambda: fitted("normal", "seeds", 2, 4_000),
    "three seeds of unequal noise": lambda: fitted("unequal", "seeds", 3, 6_000),
    "two seeds with heavy tails": lambda: fitted("heavy", "seeds", 2, 10_000),
    "four bootstraps": lambda: fitted("normal", "bootstrap", 4, 3_000),
    "three anchored columns": lambda: fitted("unequal", "anchored", 3, 3_000),
    "floor, cap and outliers": lambda: fitted("capped", "seeds", 3, 12_000),
    "scores far from log odds": lambda: fitted("steep", "seeds", 2, 4_000),
    "few rows": lambda: fitted("normal", "seeds", 3, 120),
    "calibrators": calibrated,
    "metrics": evaluated,
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_results_are_the_stored_ones(case):
    stored = json.loads(STORED.read_text(encoding="utf-8"))[case]
    found = CASES[case]()
    assert set(found) == set(stored)
    for name, values in found.items():
        text = [x for x in values if isinstance(x, str)]
        assert text == [x for x in stored[name] if isinstance(x, str)], name
        pair = ([x for x in part if not isinstance(x, str)] for part in (values, stored[name]))
        np.testing.assert_allclose(*pair, rtol=1e-6, atol=1e-9, err_msg=name)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        results = {case: make() for case, make in CASES.items()}
    digits = json.dumps(results, default=str, indent=0)
    STORED.write_text(json.dumps(json.loads(digits, parse_float=lambda x: float(f"{float(x):.9g}"))) + "\n")
