"""How the platform turns the served score of the chosen ad into a prediction: as it is, calibrated, or debiased."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array, Float
from uncurse.calibration import CALIBRATORS, calibrate
from uncurse.errors import UncurseError
from uncurse.links import logistic
from uncurse.methods import VAD, Auto, ReplicaCalibrator

Policy = Callable[[Array], Array]  # served log odds to predicted click rates; ranking does not change

#: Policies in the order of the tables. "truth" is not one: it knows the true rates.
POLICIES = ("as served", "multiplier", *CALIBRATORS, "vad", "platt + vad", "labels", "auto")
#: Policies that are compared unless others are named.
DEFAULT = ("as served", "multiplier", "platt", "isotonic", "vad", "platt + vad", "labels", "auto")


@dataclass(frozen=True)
class History:
    """What the platform knows: a sample of the candidate pool, and the ads that it has shown, with their clicks."""

    pool: Array  # (n, S) log odds of candidates by the served model and its replicas
    shown: Array  # (m, S) the same for ads that were shown
    clicks: NDArray[Any]  # (m,) whether they were clicked
    replicas: str = "seeds"  # how the replicas were trained, see `uncurse.VAD`
    labels_from: str = "elsewhere"  # what selected the ads that were shown, see `uncurse.Auto`


def fit_policy(name: str, history: History) -> Policy:
    """Fit one of `POLICIES` to what the platform knows; the landscape and the selected share are not among it."""
    shown, clicks = history.shown[:, 0], history.clicks
    if name == "as served":
        return as_served
    if name == "multiplier":
        factor = float(clicks.sum() / as_served(shown).sum())
        return lambda served: np.minimum(factor * as_served(served), 1.0)
    if name in CALIBRATORS:
        return calibrate(name, shown, clicks).at_logits
    options: Any = {"scale": "logit", "replicas": history.replicas}
    models: dict[str, Any] = {
        "vad": VAD(lambda_floor=0.0, **options),
        "platt + vad": VAD(calibrator="platt", lambda_floor=0.0, **options),
        "labels": ReplicaCalibrator(**options),
        "auto": Auto(**options),
    }
    labels: dict[str, Any] = {} if name == "vad" else {"labeled": (history.shown, clicks)}
    if name in ("labels", "auto"):
        labels["labels_from"] = history.labels_from
    policy: Policy = models[name].fit(history.pool, **labels).map_.at_logits
    return policy


def check_policies(names: Sequence[str], known: Sequence[str] = POLICIES) -> tuple[str, ...]:
    """Return names of policies, in capitals or not, each once; raise UncurseError for one that is not known."""
    chosen = [name.casefold() for name in names]
    for name in chosen:
        if name not in known:
            raise UncurseError(f"there is no policy {name!r}; use one of {', '.join(known)}")
    return tuple(dict.fromkeys(chosen))


def as_served(served: Float) -> Array:
    """Return click rates for log odds, as they are."""
    return logistic(served).astype(np.float64, copy=False)
