"""Targets: the formulas of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np

from uncurse import theory

from ..checks import check_finite
from ..engine import Call, target
from .foundations import LINKS


def numbers(call: Call, low: float, high: float) -> Any:
    """Draw a number or a short array of numbers in [low, high], rarely of extreme size."""
    if call.chance(0.5):
        return call.one_of(call.number(low, high), call.number(low, high), call.number(low, high), 0.0, 1e300, 1e-300)
    return call.wrap(call.rng.uniform(low, high, call.one_of(1, 2, 5)))


@target("theory.best_of", every=2)
def best_of(call: Call) -> None:
    options = {"truth": call.number(0.01, 0.99), "deviation": call.number(0.0, 0.5)}
    check_finite("the mean", call.call(theory.best_of, call.one_of(call.count(1, 10), call.count(1, 10**6)), **options))


@target("theory.gaussianity")
def gaussianity(call: Call) -> None:
    result = call.call(theory.gaussianity, call.wrap(call.scores(call.rows())))
    check_finite("a statistic", [result.mean, result.sd, result.distance, result.p_value])


@target("theory.selected_mean")
def selected_mean(call: Call) -> None:
    arguments = (call.option(*LINKS), numbers(call, -5, 2), numbers(call, 0.0, 3), call.number(0.001, 1.0))
    check_finite("the mean", call.call(theory.selected_mean, *arguments))


@target("theory.selected_slope")
def selected_slope(call: Call) -> None:
    arguments = (call.option(*LINKS), numbers(call, -5, 2), numbers(call, 0.0, 3), call.number(0.001, 1.0))
    check_finite("the slope", call.call(theory.selected_slope, *arguments))


@target("theory.selected_truth")
def selected_truth(call: Call) -> None:
    options = {"mean": numbers(call, -5, 2), "signal": numbers(call, 0.0, 3), "residual": numbers(call, 0, 3)}
    check_finite(
        "the mean", call.call(theory.selected_truth, call.option(*LINKS), **options, alpha=call.number(0.001, 1.0))
    )


@target("theory.maximization_bias")
def maximization_bias(call: Call) -> None:
    options = {"mean": numbers(call, -5, 2), "spread": numbers(call, 0.0, 3), "signal": numbers(call, 0.0, 3)}
    if call.chance(0.5):
        options["shrinkage"] = numbers(call, 0.0, 1.0)
    made = call.call(theory.maximization_bias, call.option(*LINKS), **options, alpha=call.number(0.001, 1.0))
    check_finite("the bias", made)


@target("theory.lemma1_bounds", every=4)
def lemma1_bounds(call: Call) -> None:
    options = {
        "mean_range": call.option((-3.0, -1.0), (0.0, 0.0), (call.number(-3, 0), call.number(0, 3))),
        "spread_range": call.option((0.1, 1.0), (1.0, 1.0), (call.number(0, 1), call.number(1, 2))),
        "alpha": call.number(0.001, 0.05),
        "probability": call.number(0.5, 1.0),
    }
    check_finite("a bound", call.call(theory.lemma1_bounds, call.option(*LINKS), **options))


@target("theory.score_geometry")
def score_geometry(call: Call) -> None:
    d = call.one_of(1, 2, 5)
    root = call.rng.normal(size=(d, d))
    sigma = call.one_of(root @ root.T, np.eye(d), np.zeros((d, d)), root)
    beta_hat = call.one_of(call.rng.normal(size=d), call.rng.normal(size=(3, d)), np.zeros(d))
    options = {"beta": call.rng.normal(size=d), "mu": call.rng.normal(size=d), "sigma": sigma}
    made = call.call(theory.score_geometry, call.wrap(beta_hat), **{k: call.wrap(v) for k, v in options.items()})
    check_finite("the geometry", [made.mean, made.spread, made.signal, made.residual, made.true_mean])


__all__: list[str] = []
