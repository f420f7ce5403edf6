"""How the platform turns the served score of the chosen ad into a prediction: as it is, calibrated, or debiased."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse._types import Array
from uncurse.calibration import CALIBRATORS, fit_calibrator
from uncurse.debias import VAD, Auto, Tower
from uncurse.errors import UncurseError
from uncurse.evidence import Cells
from uncurse.links import logistic

Policy = Callable[[Array], Array]  # served log odds to predicted click rates; ranking does not change

#: Policies in the order of the tables. "truth" is not one: it knows the true rates.
POLICIES = ("as served", "multiplier", *CALIBRATORS, "vad", "platt + vad", "tower", "auto")
#: Policies that are compared unless others are named.
DEFAULT = ("as served", "multiplier", "platt", "isotonic", "vad", "platt + vad", "tower", "auto")


@dataclass(frozen=True)
class History:
    """What the platform knows: a sample of the candidate pool, and the ads that it has shown, with their clicks."""

    pool: Array  # (n, S) log odds of candidates by the served model and its replicas
    shown: Array  # (m, S) the same for ads that were shown
    clicks: NDArray[Any]  # (m,) whether they were clicked
    replicas: str = "seeds"  # how the replicas were trained, see `uncurse.VAD`


def fit_policy(name: str, history: History) -> Policy:
    """Fit one of `POLICIES` to what the platform knows; the landscape and the selected share are not among it.

    Examples
    --------
    >>> fit_policy("as served", History(np.zeros((2, 2)), np.zeros((2, 2)), np.array([0, 1])))(np.zeros(1))
    array([0.5])
    """
    shown, clicks = history.shown[:, 0], history.clicks
    if name == "as served":
        return as_served
    if name == "multiplier":
        factor = float(clicks.sum() / as_served(shown).sum())
        return lambda served: np.minimum(factor * as_served(served), 1.0)
    if name in CALIBRATORS:
        return fit_calibrator(name, Cells().update(shown, clicks)).at_logits
    labelled, kind = (history.shown, clicks), history.replicas
    if name == "vad":
        return VAD(lambda_floor=0.0, replicas=kind).fit(history.pool).map_.at_logits
    if name == "platt + vad":
        tandem = VAD(calibrator="platt", lambda_floor=0.0, replicas=kind)
        return tandem.fit(history.pool, labelled=labelled).map_.at_logits
    if name == "tower":
        return Tower(replicas=kind).fit(history.pool, labelled=labelled).map_.at_logits
    if name == "auto":
        return Auto(replicas=kind).fit(history.pool, labelled=labelled).map_.at_logits
    raise UncurseError(f"there is no policy {name!r}; use one of {', '.join(POLICIES)}")


def check_policies(names: Sequence[str], known: Sequence[str] = POLICIES) -> tuple[str, ...]:
    """Return names of policies, in capitals or not, each once; raise UncurseError for one that is not known."""
    chosen = [name.casefold() for name in names]
    for name in chosen:
        if name not in known:
            raise UncurseError(f"there is no policy {name!r}; use one of {', '.join(known)}")
    return tuple(dict.fromkeys(chosen))


def as_served(served: Array) -> Array:
    """Return click rates for log odds, as they are."""
    return logistic(served).astype(np.float64, copy=False)
