"""A teacher shows how the pool differs from the labeled rows in what the served model misses."""

import numpy as np
import polars as pl
import pytest

from uncurse import Auto, ReplicaCalibrator, UncurseError, collect
from uncurse.evidence import Evidence
from uncurse.links import logistic

ROWS = 40_000


def draw(rng, shift, noise=0.2, rows=ROWS):
    """The served model knows `known`; of `missed`, which is lower in the pool by `shift`, only the teacher knows."""
    known, missed = rng.normal(-2, 0.8, rows), rng.normal(-shift, 0.5, rows)
    truth, scores = known + missed, known[:, None] + rng.normal(0, 0.3, (rows, 3))
    return truth, scores, truth + rng.normal(0, noise, rows), rng.random(rows) < logistic(truth)


def fit(shift, noise=0.2, *, taught=True, method=Auto):
    rng = np.random.default_rng(0)
    truth, pool, t_pool, _ = draw(rng, shift, noise)
    _, scores, t_labeled, y = draw(rng, 0.0, noise)
    teacher = (t_pool, t_labeled) if taught else None
    fitted = method(scale="logit", replicas="seeds").fit(
        pool, labeled=(scores, y), labels_from="elsewhere", teacher=teacher
    )
    top = pool[:, 0] > np.quantile(pool[:, 0], 0.95)
    return fitted, fitted.predict_proba(pool[top, 0]).mean() / logistic(truth[top]).mean() - 1


@pytest.mark.parametrize("method", [Auto, ReplicaCalibrator])
def test_a_shift_that_the_served_model_misses_is_corrected(method):
    without, wrong = fit(0.5, taught=False, method=method)
    fitted, error = fit(0.5, method=method)
    assert wrong > 0.25
    assert abs(error) < 0.08
    assert "the teacher (log loss " in fitted.reason_
    low, high = fitted.interval(0.05)
    assert low < error < high
    assert high - low > without.interval(0.05)[1] - without.interval(0.05)[0]


def test_without_a_shift_the_map_hardly_changes():
    (without, before), (_, after) = fit(0.0, taught=False), fit(0.0)
    assert abs(after - before) < 0.01 + abs(without.interval(0.05)[1]) / 4


def test_a_teacher_that_predicts_worse_is_not_used():
    (without, _), (fitted, _) = fit(0.5, noise=3.0, taught=False), fit(0.5, noise=3.0)
    x = np.linspace(-4, 1, 20)
    np.testing.assert_array_equal(fitted.predict_proba(x), without.predict_proba(x))
    assert "is not used" in fitted.reason_


def test_columns_of_a_log_give_the_same_map_as_arrays(tmp_path):
    rng = np.random.default_rng(1)
    logs = []
    for name, shift in (("pool", 0.5), ("labeled", 0.0)):
        _, s, t, y = draw(rng, shift, rows=5000)
        frame = pl.DataFrame({"s0": s[:, 0], "s1": s[:, 1], "s2": s[:, 2], "t": t, "y": y.astype(int)})
        label = "y" if name == "labeled" else None
        evidence = [
            collect(part, ["s0", "s1", "s2"], label=label, teacher="t") for part in (frame[:2000], frame[2000:])
        ]
        (tmp_path / name).write_text(evidence[0].merge(evidence[1]).to_json())
        logs.append((s, t, y, Evidence.load(tmp_path / name)))
    (s, t, _, pool), (sl, tl, y, labeled) = logs
    auto = Auto(scale="logit", replicas="seeds")
    x = np.linspace(-4, 0, 20)
    from_logs = auto.fit(pool, labeled=labeled, labels_from="elsewhere").predict_proba(x)
    from_arrays = auto.fit(s, labeled=(sl, y), labels_from="elsewhere", teacher=(t, tl)).predict_proba(x)
    np.testing.assert_allclose(from_logs, from_arrays, rtol=1e-9)
    without = auto.fit(s, labeled=(sl, y), labels_from="elsewhere").predict_proba(x)
    assert (np.abs(from_logs / without - 1) > 0.1).any()


def test_bad_input_is_named():
    rng = np.random.default_rng(2)
    _, s, t, y = draw(rng, 0.0, rows=500)
    auto = Auto(scale="logit", replicas="seeds")
    with pytest.raises(UncurseError, match="teacher is not for labels_from='winners'"):
        auto.fit(s, labeled=(s, y), labels_from="winners", teacher=(t, t))
    with pytest.raises(UncurseError, match="shape"):
        auto.fit(s, labeled=(s, y), labels_from="elsewhere", teacher=(t[:9], t))
    with pytest.raises(UncurseError, match="teacher needs labeled"):
        auto.fit(s, teacher=(t, t))
    with pytest.raises(UncurseError, match="teacher"):
        auto.fit(s, request=np.arange(500) // 5, labeled=(s, y), labels_from="elsewhere", teacher=(t, t))
