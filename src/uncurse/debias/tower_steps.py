"""The steps of `Tower`, each a function of joint counts: scale, distribution, contrast, projection, groups."""

from __future__ import annotations

import warnings

import numpy as np

from .._types import Array
from ..calibration import fit_logistic
from ..calibration.spline import SmoothCurve, fit_smooth
from ..errors import UncurseError
from ..evidence import Joint
from ..links import logistic
from .latent_scores import Mixture, Seen, seen


def scale_of(labelled: Joint, replicas: str) -> tuple[float, float]:
    """Slope and start that make these scores log odds, where labels show beyond doubt that they are far from it."""
    data, y = seen(labelled, replicas), labelled.label
    assert y is not None  # checked
    worth = labelled.worth
    w, y = labelled.weight * worth, y * worth
    center = float(w @ data.mean / w.sum())
    spread = float(np.sqrt(w @ np.square(data.mean - center) / w.sum()))
    z = (data.mean - center) / spread
    try:
        tilt, level = fit_logistic(np.stack([z, np.ones_like(z)]), w, y).coefficients
    except UncurseError:  # separated by the scores, or too few: they are taken as they are
        return 1.0, 0.0
    p = logistic(tilt * z + level)
    bend = w * p * (1 - p)
    error = float(1 / np.sqrt(bend @ np.square(z - bend @ z / bend.sum())))
    if tilt + 3 * error < 0:
        raise UncurseError(
            f"labels fall as scores rise (slope {tilt / spread:.3g}); is the label, or the score, turned round?"
        )
    slope = float(tilt / spread)
    far = (slope < 0.5 or slope > 2) and abs(tilt - spread) > 4 * error and slope > 0
    moved = abs(level - center) > 1.5 and abs(level - center) > 4 / np.sqrt(float(bend.sum()))
    if not far and not moved:
        return 1.0, 0.0
    if not far:
        slope = 1.0
    return slope, float(level - slope * center)


def mixture_of(joint: Joint, replicas: str) -> Mixture | None:
    """None where replicas are identical: there is no noise to take off."""
    data = seen(joint, replicas)
    noise = float(data.weight @ data.variance)
    spread = float(np.ptp(data.mean))
    if noise <= 1e-12 * spread**2:
        warnings.warn("the replicas are identical, so no noise shows; was the seed changed?", UserWarning, stacklevel=3)
        return None
    return Mixture.fit(joint, replicas)


def told_by(prior: Mixture | None, data: Seen) -> tuple[Array, Array]:
    """Log odds that each cell's replicas tell, and the variance left; without a prior their mean, and none."""
    return (data.mean, np.zeros(len(data.mean))) if prior is None else prior.told(data)


def moves_of(before: Array, after: Array, weight: Array) -> tuple[Array, Array]:
    """Where labelled rows stand, and how far they have moved on average, in 64 bins of equal weight."""
    order = np.argsort(before, kind="stable")
    w = weight[order]
    starts = np.unique(np.searchsorted(np.cumsum(w), np.arange(64) / 64 * w.sum()))
    total = np.add.reduceat(w, starts)
    place, step = (np.add.reduceat(w * column[order], starts) / total for column in (after, after - before))
    rise = np.concatenate([[True], np.diff(place) > 0])
    return place[rise], step[rise]


def project(joint: Joint, taught: Array) -> SmoothCurve:
    """The curve of taught probabilities over the served score."""
    order = np.argsort(joint.served, kind="stable")
    worth = joint.worth
    w = joint.weight[order] * worth
    return fit_smooth(joint.served[order], w, w * taught[order], scatter=True)


def contrast_of(l: Array, away: Array, w: Array, y: Array) -> float:
    """How much more the served score counts than the others, by one step of Newton, and only beyond doubt."""
    p = logistic(l)
    bend = w * p * (1 - p)
    c = away - float(bend @ away / bend.sum())
    information = float(bend @ np.square(c))
    if information <= 0:
        return 0.0
    value = float(c @ (y - w * p)) / information
    doubt = value**2 * information  # a squared z
    rarer = min(float(y.sum()), float((w - y).sum()))
    return value if doubt > 2 * np.log(max(rarer, 3.0)) + 4 else 0.0


def group_move(l: Array, z: Array, w: Array, taught: Array, rows: float) -> tuple[Array, Array]:
    """Level and tilt that carry the whole's curve to a group's, and their standard errors."""
    features = np.stack([np.ones_like(z), z])
    w = w * (rows / w.sum())
    b = np.zeros(2)
    hessian = np.eye(2)
    for _ in range(20):
        p = logistic(l + b @ features)
        hessian = (features * (w * p * (1 - p))) @ features.T + 1e-9 * np.eye(2)
        step = np.linalg.solve(hessian, features @ (w * (taught - p)))
        b = b + np.clip(step, -1, 1)
        if np.abs(step).max() < 1e-9:
            break
    p = logistic(l + b @ features)
    scale = float(w @ np.square(taught - p)) / max(float(w @ (p * (1 - p))), 1e-300)
    return b, np.sqrt(np.maximum(np.diagonal(np.linalg.inv(hessian)) * scale, 1e-12))


__all__ = ["contrast_of", "group_move", "mixture_of", "moves_of", "project", "scale_of", "told_by"]
