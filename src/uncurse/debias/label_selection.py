"""Did the served score select the labelled rows? If it did, its noise helped, and they are no sample of their own."""

from __future__ import annotations

import numpy as np

from .._types import Array
from ..calibration.logistic import fit_logistic
from ..errors import UncurseError
from ..evidence import Evidence, Moments
from ..validation import warn_user
from .latent_scores import ReplicaModel
from .replica_kinds import ReplicaKind

# On rows that the served score selected, it exceeds its replicas: by one standard deviation of the gap on the top 20%,
# by 0.15 on the top 90%. Chance does not reach five standard errors.
_LEAD, _CHANCE = 0.15, 5.0
# Slope and level of the labels by denoised score vary between models with this standard deviation. Odds of 4.5 to 1, a
# difference of 3 in squared standard deviations, decide that the served score selected the labelled rows.
_LINE_SPREAD, _CLEAR = 0.2, 3.0
# In standard deviations of the pool, winners of two candidates are 0.56 higher on average and have a spread of 0.83.
_HIGHER, _NARROWER = 0.5, 0.9


def selected_by_served(pool: Evidence, labelled: Evidence, models: tuple[ReplicaModel, ReplicaModel]) -> bool:
    """Detect whether the served score selected the labelled rows, and warn if it did or may have.

    `models` are those of pool and labelled rows.
    """
    kind = models[0].kind
    if kind.shows_selection:
        lead = served_lead(pool.moments, labelled.moments, kind)
        if lead:
            who = "served" if lead > 0 else "second column's"
            warn_user(
                f"on the labelled rows the {who} scores are {abs(lead):.2f} further above the other replicas than on "
                f"the pool, as if the {who} score had selected them; they are treated as selected from this pool (if "
                "nothing of the kind selected them, pass selected_by='other')"
            )
        return bool(lead)
    if any(model.identical for model in models):
        return False
    (low, spread), (high, own_spread) = (_mean_and_spread(model) for model in models)
    if high <= low:
        return False
    cause = _cause_in_labels(*models)
    if cause:
        warn_user(f"{cause}; they are treated as selected from this pool")
    elif high > low + _HIGHER * spread and own_spread < _NARROWER * spread:
        warn_user(
            f"the scores of the labelled rows are {high - low:.2f} higher than those of the pool and vary less, and "
            f"replicas of kind {kind.name!r} do not show whether the served score selected them: say it by "
            "selected_by='served' or 'other' (they are treated as a sample of their own)"
        )
    return bool(cause)


def served_lead(pool: Moments, labelled: Moments, kind: ReplicaKind) -> float:
    """Return the mean excess of the served score over the other replicas on labelled rows, minus that on the pool.

    The model that selected the labelled rows scores higher there, because its noise helped to select them. Models with
    different slopes also differ there if the labelled rows have higher or lower scores, and that part is subtracted.
    Return 0 if the rest is within chance or the kind of replica does not show it. With two columns the result is
    negative if the other one selected the rows.
    """
    if not kind.shows_selection:
        return 0.0
    size = labelled.n_replicas
    weights = np.full(size, -1 / (size - 1))
    weights[0] = 1.0
    spread = float(np.sqrt(max(weights @ labelled.covariance @ weights, 0.0)))
    chance = np.sqrt(1 / labelled.effective_rows + 1 / pool.effective_rows) * spread
    # Regress the excess on the mean of all columns, without the noise of that mean. If all columns have the same noise,
    # the noise of the mean is unrelated to that of the excess.
    mean = np.full(size, 1 / size)
    true_variance = float(mean @ pool.covariance @ mean) - float(kind.noise_variance(pool.covariance)) / size
    higher = float(mean @ (labelled.mean - pool.mean))
    by_slope = 0.0
    if true_variance > 0:
        by_slope = float(weights @ pool.covariance @ mean) / true_variance * higher
        excess = max(float(weights @ pool.covariance @ weights), 0.0)
        error = np.sqrt(excess / true_variance / pool.effective_rows) * higher
        chance = np.hypot(chance, error)
    lead = float(weights @ (labelled.mean - pool.mean))
    # Columns of unequal noise look as if their slopes differed. So the slopes may reduce a lead, but not create one.
    lead = min(lead, max(lead - by_slope, 0.0)) if lead > 0 else max(lead, min(lead - by_slope, 0.0))
    enough = max(_LEAD * spread, _CHANCE * float(chance)) + 1e-9 * float(np.sqrt(labelled.covariance[0, 0]))
    return lead if (abs(lead) if size == 2 else lead) > enough else 0.0


def denoised_as_pool(labelled: ReplicaModel, pool: ReplicaModel) -> Array:
    """Denoise rows that the served score selected: given all replicas, their truth is distributed as on the pool."""
    summary = pool.kind.summarize(labelled.cells, pool.summary.level)
    return labelled.posterior_logit(pool.latent, summary)[0]


def _cause_in_labels(pool: ReplicaModel, labelled: ReplicaModel) -> str:
    """Say why the served score seems to have selected the labelled rows; empty if it does not.

    Bootstraps vary about the served score, so they do not show which rows its noise helped to select. The labels do:
    selected rows vary less than the noise suggests, and have lower rates than their scores. So log odds of the labels
    have the wrong slope and level by denoised score, unless the scores are denoised as a part of the pool.
    """
    alone = _label_line(labelled, labelled.posterior_logit(labelled.latent)[0])
    if alone is None or alone[0] < _CLEAR:
        return ""
    as_part = _label_line(labelled, denoised_as_pool(labelled, pool))
    if as_part is None or alone[0] - as_part[0] < _CLEAR:
        return ""
    return (
        f"log odds of the labels rise by {alone[1]:.2f} per unit of the denoised score and are off by {alone[2]:+.2f} "
        f"if the labelled rows are a sample of their own; by {as_part[1]:.2f} and {as_part[2]:+.2f} if the served "
        "score selected them"
    )


def _mean_and_spread(model: ReplicaModel) -> tuple[float, float]:
    """Return mean and standard deviation of the served score."""
    served, weight = model.cells.served, model.cells.weight
    mean = np.average(served, weights=weight)
    return float(mean), float(np.sqrt(np.average(np.square(served - mean), weights=weight)))


def _label_line(model: ReplicaModel, denoised: Array) -> tuple[float, float, float] | None:
    """Fit a line of log odds by denoised score; return its distance from the identity, its slope and its level error.

    The distance is squared, in standard deviations. None if there are too few labels.
    """
    w, y = model.cells.row_weights()
    z = denoised - float(w @ denoised / w.sum())
    try:
        fit = fit_logistic(np.stack([z, np.ones_like(z)]), w, y, offset=denoised)
    except UncurseError:
        return None
    away = fit.coefficients
    distance = float(away @ np.linalg.solve(fit.covariance + _LINE_SPREAD**2 * np.eye(2), away))
    return distance, 1 + float(away[0]), float(away[1])
