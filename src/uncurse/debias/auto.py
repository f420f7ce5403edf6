"""Choose the method from what is there, and say why: labels or none, how many replicas, what they show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration import fit_logistic
from ..errors import UncurseError
from ..evidence import Evidence, Joint
from ..links import logistic
from ..maps import Affine, ScoreMap, compose
from .free_shape import SHARES, Distilled
from .tower import LabelledReplicas, Tower
from .uncertainty import Selected, left_on_top
from .vad import VAD

_NOTHING = 0.002  # a smaller correction than this everywhere is none
_WASTE = 0.15  # by so much may labels that mislead by chance raise the mean squared error of the label-free map


@dataclass(frozen=True)
class Auto:
    """The method that was chosen: `method_`, why: `reason_`, and its score map."""

    method_: str
    reason_: str
    map_: ScoreMap
    fitted: VAD | Tower | None
    _reference: Tower | Distilled | None

    def predict_proba(self, served: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Predictions for served scores of shape (n,)."""
        if groups is None:
            return self.map_(served)
        if self.fitted is None:
            return self.map_(served)
        return self.fitted.predict_proba(served, groups)

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Where the calibration error left on the top share `alpha` of such a pool lies, with probability `level`."""
        if self._reference is None:
            raise UncurseError("identical replicas show no noise, so nothing can be said of the error left")
        return left_on_top(getattr(self.map_, "whole", self.map_), self._reference, alpha, level)

    def __repr__(self) -> str:
        return f"Auto: {self.method_} ({self.reason_})"


def fit_auto(
    pool: ArrayLike | Evidence,
    *,
    labelled: LabelledReplicas | None = None,
    scale: str = "logit",
    replicas: str = "seeds",
    negative_rate: float | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> Auto:
    """Fit what the evidence calls for, from doing nothing to `Tower`.

    Without labels it is VAD with curvature, or its free shape where replicas show that one λ will not do. Labels are
    first asked whether they contradict that map: it needs none, so it has no noise of theirs. Where they do, beyond
    what chance is allowed (at most as much as BIC would, less where a switch has little to lose), `Tower` takes their
    word. Where no replica shows noise that matters, scores stay.

    Parameters
    ----------
    pool, labelled, groups, sample_weight
        As for `Tower.fit`, arrays or `Evidence`.
    scale, replicas, negative_rate
        As for `Tower`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> pool = rng.normal(-2, 0.8, 50_000)[:, None] + rng.normal(0, 0.3, (50_000, 3))
    >>> fit_auto(pool).method_
    'vad with curvature'
    """
    arguments: dict[str, Any] = {"scale": scale, "replicas": replicas, "negative_rate": negative_rate}
    tower = Tower(**arguments)
    base = _label_free(pool, arguments, groups, sample_weight)
    if labelled is None:
        return base
    tower.fit(pool, labelled=labelled, groups=groups, sample_weight=sample_weight)
    doubt, allowed, rarer = _contradiction(base, tower, arguments)
    if doubt <= allowed:
        reason = (
            f"{base.reason_}; the labels ({rarer:,.0f} of the rarer kind) do not contradict it: "
            f"deviance {doubt:.1f}, of which chance is allowed {allowed:.1f}"
        )
        return Auto(base.method_, reason, base.map_, base.fitted, base._reference)
    reason = (
        f"the labels contradict the scores even after noise is taken off (deviance {doubt:.1f}, of which "
        f"chance is allowed {allowed:.1f}), so they are calibrated"
    )
    return Auto("tower", reason, tower.map_, tower, tower)


def _label_free(
    pool: Any, arguments: dict[str, Any], groups: ArrayLike | None, sample_weight: ArrayLike | None
) -> Auto:
    vad = VAD(curvature=True, lambda_floor=0.0, **arguments).fit(pool, groups=groups, sample_weight=sample_weight)
    identity = compose(Affine(1.0, vad._offset), scale=arguments["scale"])
    if vad.noise_variance_ <= 1e-12 * vad.score_variance_:
        return Auto("nothing", "the replicas are identical, so no noise shows", identity, None, None)
    free = vad._distilled()
    straight = vad._taken_at_its_word(free)
    vad._reference = straight
    if max(_correction(straight, alpha) for alpha in SHARES) < 2:
        reason = "the correction would be smaller than what it is known to"
        return Auto("nothing", reason, identity, None, straight)
    if straight is not free:
        reason = f"one λ = {vad.lambda_:.3f} describes the replicas"
        return Auto("vad with curvature", reason, vad.map_, vad, straight)
    if groups is not None or (isinstance(pool, Evidence) and pool.groups):
        reason = "one λ for each group; the shape of noise is not looked at by group"
        return Auto("vad with curvature", reason, vad.map_, vad, free)
    shaped = VAD(shape="free", **arguments).fit(pool, sample_weight=sample_weight)
    reason = (
        f"noise differs from row to row or tails are heavy: one λ = {vad.lambda_:.3f} does not describe the replicas"
    )
    return Auto("free", reason, shaped.map_, shaped, free)


def _correction(reference: Distilled, alpha: float) -> float:
    """What taking noise off changes on the top share, in standard errors or in halves of a permille."""
    top = Selected(reference.joint, alpha)
    served = reference.joint.served[top.cells]
    after, before = (top.mean(logistic(l)) for l in (reference.odds(served), served))
    return abs(float(np.log(before / after))) / max(reference.map_error(alpha), _NOTHING / 2)


def _contradiction(base: Auto, tower: Tower, arguments: dict[str, Any]) -> tuple[float, float, float]:
    """Deviance of labels about the same label-free method on the labelled rows, what chance may be, and the rarer.

    The method is fitted to the labelled rows' own replicas, for theirs is another distribution.
    """
    joint = tower._labelled
    label = joint.label
    assert label is not None
    worth = joint.worth
    w, y = joint.weight * worth, label * worth
    rarer = min(float(y.sum()), float((w - y).sum()))
    allowed = min(2 * float(np.log(max(rarer, 3.0))), _allowed(base, tower))
    if tower._scale != (1.0, 0.0):
        return np.inf, allowed, rarer
    if base.method_ == "nothing" or base._reference is None:
        l = joint.served
    elif tower._chosen:  # by the served score from this pool, so the pool's map is theirs too
        l = base._reference.odds(joint.served)
    elif base.method_ == "free":
        l = Distilled.by_mixture(joint, arguments["replicas"]).odds(joint.served)
    else:
        l = _straight_odds(joint, arguments["replicas"])
    try:
        line = fit_logistic(np.stack([l, np.ones_like(l)]), w, y).coefficients
    except UncurseError:
        return 0.0, np.inf, rarer
    fitted = line @ np.stack([l, np.ones_like(l)])

    def likelihood(l: Array) -> float:
        return float(y @ l - w @ np.logaddexp(0.0, l))

    return 2 * (likelihood(fitted) - likelihood(l)), allowed, rarer


def _allowed(base: Auto, tower: Tower) -> float:
    """The deviance c below which labels are taken to speak by chance: less where a switch has little to lose.

    If the label-free map is right, a switch costs Tower's squared error, ρ² times its own, and chance exceeds c with
    two degrees of freedom at a cost of ρ² (1 + c/2) exp(−c/2): that much is kept to a share of what it has anyway.
    """
    if base._reference is None or base.method_ == "nothing":
        return np.inf
    stake = max((tower.log_error(alpha) / base._reference.log_error(alpha)) ** 2 for alpha in SHARES)
    half = 1.0
    for _ in range(50):
        half = float(np.log(max(stake, 1.0) / _WASTE * (1 + half)))
    return 2 * half


def _straight_odds(joint: Joint, replicas: str) -> Array:
    """VAD with curvature from joint counts."""
    from .latent_scores import seen
    from .shrinkage import curved

    data = seen(joint, replicas)
    w = joint.weight / joint.weight.sum()
    center = float(w @ joint.served)
    variance = float(w @ np.square(joint.served - center))
    noise = float(w @ data.variance)
    slope = max(1 - noise / variance, 0.0)
    return np.asarray(curved(slope, center, noise, "logistic").transform(joint.served))


__all__ = ["Auto", "fit_auto"]
