"""Simulated scores whose true log odds are known."""

import numpy as np
from scipy.special import expit, logit

from uncurse import top_share
from uncurse.evidence import LogSpec, from_arrays

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(61)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def rows_of(rows, replicas=3, *, seed=0, mean=-2.5, sd=0.8, noise=0.4, kind="seeds"):
    """Return truth, scores and labels; λ = sd² / (sd² + noise²), 0.8 by default."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(mean, sd, rows)
    scores = truth[:, None] + noise * rng.normal(size=(rows, replicas))
    if kind == "bootstrap":  # whose noise comes on top of that of the served score
        scores[:, 1:] += scores[:, :1] - truth[:, None]
    return truth, scores, (rng.random(rows) < expit(truth)).astype(int)


def evidence_of(scores, labels=None, *, segments=None, sample_weight=None, histograms=True, **spec):
    """Return the evidence of `from_arrays`, with the columns that `fit` names."""
    spec = LogSpec(tuple(f"column {i}" for i in range(np.shape(scores)[1])), **spec)
    return from_arrays(scores, labels, spec=spec, segments=segments, sample_weight=sample_weight, histograms=histograms)


def error_on_top(predict, truth, served, alpha, *segments):
    """Return the relative error of the mean prediction on the top share."""
    top = top_share(served, alpha)
    return float(predict(served[top], *segments).mean() / expit(truth[top]).mean() - 1)


def posterior_mean(x, variance=0.16, mean=-2.5, sd=0.8):
    """Return logit E[φ(t) | x] and the posterior variance of φ(t), where x is normal about t."""
    slope = sd**2 / (sd**2 + variance)
    l = (slope * x + (1 - slope) * mean)[:, None] + np.sqrt(slope * variance) * NODES
    p = expit(l) @ WEIGHTS
    return logit(p), expit(l) ** 2 @ WEIGHTS - p**2
