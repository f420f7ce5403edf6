"""Targets: replicas of scikit-learn estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from uncurse import UncursedClassifierCV, UncursedRegressorCV
from uncurse.estimators import fit_replicas

from ..checks import check_finite
from ..engine import Call, Fault, Refused, target


def draw_training(call: Call, classes: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Draw features, targets and weights."""
    rows, columns = call.one_of(2, 10, 30, 60, 100), call.one_of(1, 3)
    x = call.rng.normal(size=(rows, columns))
    if call.chance(0.1):
        x[:] = call.one_of(0.0, 1e4)
    signal = x.sum(axis=1) + call.rng.normal(size=rows)
    y = (signal > 0).astype(int) if classes else signal
    if call.chance(0.1):
        y = np.full_like(y, 1)
    return x, y, call.weights(rows)


def draw_estimator(call: Call, classes: bool) -> Any:
    """Draw a fast base model."""
    if classes:
        return call.option(None, LogisticRegression(), DecisionTreeClassifier(max_depth=2))
    return call.option(None, Ridge(), DecisionTreeRegressor(max_depth=2))


def run_estimator(call: Call, kind: type[Any], classes: bool) -> None:
    """Fit a debiased estimator and check its predictions."""
    x, y, weights = draw_training(call, classes)
    pool = call.rng.normal(size=(call.one_of(2, 50), x.shape[1]))
    options: dict[str, Any] = {"n_replicas": call.option(2, 3), "random_state": call.option(0, None, 3)}
    if call.chance(0.3):
        options["method"] = call.option("auto", "vad", *(("tower",) if classes else ()))
    if call.chance(0.3):
        options["replicas"] = call.option("seeds", "bootstrap")
    options["cv"] = call.option(None, 2, 3)
    model = call.call(kind, draw_estimator(call, classes), **options)
    predict = model.predict_proba if classes else model.predict
    if not call.broken:
        check_not_fitted(call, predict, x)
    try:
        call.call(model.fit, call.wrap(x), call.wrap(y), pool=call.option(None, pool), sample_weight=call.wrap(weights))
        check_finite("a prediction", call.call(predict, pool))
    except (ValueError, TypeError, OverflowError) as error:
        # scikit-learn's own checks of X, y and its estimators raise these.
        if "sklearn" not in innermost_file(error):
            raise


def check_not_fitted(call: Call, predict: Any, x: np.ndarray) -> None:
    """Check that an estimator refuses to predict before it is fitted."""
    try:
        call.call(predict, x)
    except (NotFittedError, Refused):
        return
    raise Fault("an estimator predicts before it is fitted")


def innermost_file(error: BaseException) -> str:
    """Return the file that raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else trace.tb_frame.f_code.co_filename


@target("estimators.UncursedClassifierCV", every=4)
def classifier(call: Call) -> None:
    run_estimator(call, UncursedClassifierCV, classes=True)


@target("estimators.UncursedRegressorCV", every=4)
def regressor(call: Call) -> None:
    run_estimator(call, UncursedRegressorCV, classes=False)


@target("estimators.fit_replicas", every=8)
def replicas(call: Call) -> None:
    x, y, weights = draw_training(call, classes=True)
    options = {"n_replicas": call.option(2, 3), "replicas": call.option("seeds", "bootstrap")}
    estimator = call.option(LogisticRegression(), DecisionTreeClassifier(max_depth=2))
    try:
        made = call.call(
            fit_replicas, estimator, x, call.wrap(y), sample_weight=call.wrap(weights), random_state=0, **options
        )
    except (ValueError, TypeError, OverflowError) as error:
        if "sklearn" not in innermost_file(error):
            raise
    else:
        if len(made.models) != options["n_replicas"]:
            raise Fault(f"{len(made.models)} models, not {options['n_replicas']}")


__all__: list[str] = []
