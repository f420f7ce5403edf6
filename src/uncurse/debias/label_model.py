"""P(y | all replicas), fitted on labelled rows: the second step of `Tower`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..calibration.spline import SmoothCurve, fit_smooth
from ..errors import UncurseError
from ..evidence.replica_cells import ReplicaCells, outlier_fences
from ..links import logistic, logit
from .free_shape import project
from .latent_scores import ReplicaModel

# Prior of the slope of the curve: scores are roughly log odds. Two hundred positives outweigh it.
_SLOPE = (1.0, 0.3)
# Scores are rescaled to log odds first if the labels show a slope outside ½ to 2 or a level off by 1.5, by more than
# four standard errors. The curve corrects smaller differences.
_FAR_SLOPE, _FAR_LEVEL, _FAR_ERRORS = 2.0, 1.5, 4.0
_MIN_POSITIVES = 20  # fewer do not determine a curve
_MASS_PRIOR = 0.5  # standard deviation of the extra log odds at a floor or a cap


@dataclass(frozen=True)
class Misfit:
    """Log odds of labels by served score, minus those that the curve of the denoised score implies."""

    direct: SmoothCurve
    implied: SmoothCurve
    ends: tuple[float, float]  # of the served scores; it is constant beyond them

    def __call__(self, served: Array) -> Array:
        """Return the difference at served logits."""
        x = np.clip(served, *self.ends)
        return self.direct(x) - self.implied(x)


@dataclass(frozen=True)
class LabelModel:
    """P(y | all replicas), fitted on labelled rows: `curve` gives the log odds by denoised score.

    `contrast` is the extra weight of the served score, relative to `contrast_level`, the mean gap of the labelled rows.
    `masses` holds served logit, cell width and extra log odds of each floor, cap or default value of the served score.
    """

    curve: SmoothCurve
    contrast: float
    contrast_level: float
    masses: tuple[tuple[float, float, float], ...]
    misfit: Misfit | None = None

    def probability(self, denoised: Array, cells: ReplicaCells) -> Array:
        """Return the probability of each cell."""
        log_odds = self.curve(denoised)
        if self.contrast:
            log_odds = log_odds - self.contrast * (cells.gap - self.contrast_level)
        if self.misfit is not None:
            log_odds = log_odds + self.misfit(cells.served)
        for served, width, extra in self.masses:
            log_odds = log_odds + extra * cells.at(served, width)
        return np.asarray(logistic(log_odds), np.float64)


def fit_scaling(labelled: ReplicaModel) -> tuple[float, float]:
    """Return slope and intercept that convert scores to log odds; (1, 0) unless labels show that they are far off."""
    (w, y), mean = labelled.cells.row_weights(), labelled.summary.mean
    center = float(w @ mean / w.sum())
    fences = outlier_fences(mean, w)
    z = np.clip(mean, *fences) - center
    try:
        fit = fit_logistic(np.stack([z, np.ones_like(z)]), w, y)
    except UncurseError:  # the scores separate the labels: do not rescale
        return 1.0, 0.0
    slope, level = fit.coefficients.tolist()
    slope_error = float(np.sqrt(fit.covariance[0, 0]))
    level_error = float(np.linalg.inv(fit.covariance)[1, 1] ** -0.5)  # at the labelled scores, not at z = 0
    if slope + 3 * slope_error < 0:
        raise UncurseError(f"labels fall as scores rise (slope {slope:.3g}); is the label, or the score, inverted?")
    far = not 1 / _FAR_SLOPE <= slope <= _FAR_SLOPE and abs(slope - 1) > _FAR_ERRORS * slope_error and slope > 0
    moved = abs(level - center) > max(_FAR_LEVEL, _FAR_ERRORS * level_error)
    if not far and not moved:
        return 1.0, 0.0
    slope = slope if far else 1.0
    return slope, float(level - slope * center)


def fit_labels(labelled: ReplicaModel, denoised: Array) -> LabelModel:
    """Fit P(y | all replicas) to the labelled rows."""
    cells, order = labelled.cells, np.argsort(denoised, kind="stable")
    w, y = (x[order] for x in cells.row_weights())
    # A floor or a cap hides noise: rows there differ from other rows with the same denoised score.
    masses = cells.served_masses.tolist()
    free = ~np.any([cells.at(served)[order] for served in masses], axis=0) if masses else np.ones(len(w), bool)
    if min(float(y[free].sum()), float((w - y)[free].sum())) < _MIN_POSITIVES:
        free = np.ones(len(w), bool)
    curve = fit_smooth(denoised[order][free], w[free], y[free], slope=_SLOPE)
    contrast = 0.0
    if labelled.kind.exchangeable:
        contrast = _contrast(curve(denoised[order]), -cells.gap[order], w, y)
    model = LabelModel(curve, contrast, cells.gap_level, ())
    if not labelled.kind.exchangeable:
        model = replace(model, misfit=_misfit(cells, model.probability(denoised, cells)))
    p = model.probability(denoised, cells)
    extra = []
    for served in masses:
        here = cells.at(served)
        weight, positives = (x[here] for x in cells.row_weights())
        level = np.ones((1, len(weight)))
        base = np.asarray(logit(p[here]), np.float64)
        fit = fit_logistic(level, weight, positives, offset=base, prior_precision=np.array([_MASS_PRIOR**-2]))
        extra.append((served, cells.width, float(fit.coefficients[0])))
    return replace(model, masses=tuple(extra))


def _misfit(cells: ReplicaCells, probability: Array) -> Misfit:
    """Compare labels with the predicted probabilities by served score.

    Bootstraps show the noise of the served score, not another estimate of the truth. How much a row's own noise says
    about its truth is uncertain. The comparison makes predictions right on the labelled rows, whatever that noise says.
    """
    order = np.argsort(cells.served, kind="stable")
    w, y = (x[order] for x in cells.row_weights())
    implied = project(cells, probability)
    # Few labels do not determine a slope: the prior is the slope of the implied curve.
    direct = fit_smooth(cells.served[order], w, y, slope=(implied.coefficients[1] / implied.spread, _SLOPE[1]))
    ends = direct.basis.knots[[0, -1]] * direct.spread + direct.center
    return Misfit(direct, implied, (float(ends[0]), float(ends[1])))


def _contrast(log_odds: Array, lead: Array, w: Array, y: Array) -> float:
    """Return the extra weight of the served score by one Newton step; 0 unless it is significant.

    The squared z must exceed 2 log(positives) + 4, more than the penalty of BIC, because the term is 0 for exchangeable
    replicas.
    """
    p = logistic(log_odds)
    information = w * p * (1 - p)
    c = lead - float(information @ lead / information.sum())
    total = float(information @ np.square(c))
    if total <= 1e-20 * float(information @ np.square(lead)):  # replicas that agree: the rest is rounding
        return 0.0
    value = float(c @ (y - w * p)) / total
    rarer = min(float(y.sum()), float((w - y).sum()))
    return value if value**2 * total > 2 * np.log(max(rarer, 3.0)) + 4 else 0.0
