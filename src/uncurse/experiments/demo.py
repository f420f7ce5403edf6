"""A small world with known truth, for `uncurse demo`: train, score a pool, keep the best, look at what is left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.linear_model import LogisticRegression

from ..estimators import VADClassifier
from ..evidence import Array
from ..links import Float, logistic
from ..selection import top_share

FEATURES = 160
SHOWN, CANDIDATES = 32_000, 200_000  # rows with labels, from earlier winners; and candidates to choose from
ALPHAS = (0.01, 0.02, 0.05, 0.1, 1.0)


@dataclass(frozen=True)
class Outcome:
    """What was predicted for the selected candidates, before and after, and what is true of them."""

    alpha: float
    truth: float
    before: float
    after: float

    @property
    def error_before(self) -> float:
        """Σf / Σp − 1 of the served scores."""
        return self.before / self.truth - 1

    @property
    def error_after(self) -> float:
        """The same of the debiased ones."""
        return self.after / self.truth - 1


def run(seed: int = 0) -> tuple[VADClassifier, list[Outcome]]:
    """Make the world, fit, select.

    >>> classifier, outcomes = run(seed=1)
    >>> abs(outcomes[0].error_after) < abs(outcomes[0].error_before) / 2
    True
    """
    rng = np.random.default_rng(seed)
    weights = rng.normal(0, 0.6 / np.sqrt(FEATURES), FEATURES)
    shift = 0.5 * weights / np.linalg.norm(weights)  # what was shown before is better than what is there

    def draw(rows: int, mean: Array) -> tuple[Float, Array]:
        x = rng.standard_normal((rows, FEATURES), dtype=np.float32) + mean.astype(np.float32)
        return x, logistic(x @ weights - 2.7).astype(np.float64)

    X, p = draw(SHOWN, shift)
    clicks = rng.random(SHOWN) < p
    candidates, truth = draw(CANDIDATES, np.zeros(FEATURES))
    classifier = VADClassifier(LogisticRegression(C=1e6, max_iter=1000), curvature=True, random_state=seed)
    classifier.fit(X, clicks, pool=candidates)
    before = classifier.estimator_.predict_proba(candidates)[:, 1]
    after = classifier.predict_proba(candidates)[:, 1]
    outcomes = []
    for alpha in ALPHAS:
        chosen = top_share(before, alpha)
        outcomes.append(
            Outcome(alpha, float(truth[chosen].mean()), float(before[chosen].mean()), float(after[chosen].mean()))
        )
    return classifier, outcomes


__all__ = ["ALPHAS", "Outcome", "run"]
