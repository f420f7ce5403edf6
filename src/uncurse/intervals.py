"""How far predictions may still be off on what gets selected: intervals for the calibration error that is left."""

from __future__ import annotations

import numpy as np

from .evidence import Array, Joint
from .links import UncurseError, check_share


class Selected:
    """The cells of a pool that hold its top share, the last of them in part."""

    def __init__(self, joint: Joint, alpha: float) -> None:
        check_share(alpha)
        order = np.argsort(-joint.served, kind="stable")
        w = joint.weight[order]
        before = np.cumsum(w) - w
        part = np.clip(alpha * float(joint.weight.sum()) - before, 0.0, w)
        self.cells = order[part > 0]
        self.weight = part[part > 0]
        self.rows = alpha * joint.effective_rows
        self.share = self.weight / self.weight.sum()

    def mean(self, values: Array) -> float:
        """Over the selected rows."""
        return float(self.share @ values)

    def relative(self, p: Array, features: Array, covariance: Array) -> float:
        """Squared relative error of the mean of `p`, whose log odds are coefficients times `features`."""
        gradient = features @ (self.share * p * (1 - p)) / self.mean(p)
        return float(gradient @ covariance @ gradient)

    def scatter(self, p: Array, uncertain: Array) -> float:
        """Squared relative error of the true rate among so many rows, that differ in `p` and by what is not known."""
        variance = self.mean(np.square(p)) - self.mean(p) ** 2 + self.mean(uncertain)
        return float(variance / self.rows / self.mean(p) ** 2)


def interval_of(log_error: float, standard_error: float, quantile: float) -> tuple[float, float]:
    """From the logarithm of predicted over true, and its error, to an interval of the calibration error."""
    low, high = np.expm1(log_error - quantile * standard_error), np.expm1(log_error + quantile * standard_error)
    return float(low), float(high)


def normal_quantile(level: float) -> float:
    """Of a two-sided interval."""
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise UncurseError(f"level={level}; pass a probability between 0 and 1, such as 0.9")
    return float(ndtri(0.5 + level / 2))


__all__ = ["Selected", "interval_of", "normal_quantile"]
