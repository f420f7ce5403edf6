"""The best of many noisy estimates, and how good it really is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike
from scipy.special import ndtr

from .._types import Array
from ..errors import UncurseError
from ..text import html_table, number
from ..validation import check_counts, check_flag, check_length, check_scores, check_share
from .posterior import Candidates, pool, posteriors
from .scores import Scores, codes_of

_DRAWS = 40  # of the prior, for the interval of an impact


@dataclass(frozen=True, repr=False)
class Winner:
    """The candidate with the best observed value, and what it is expected to be worth.

    Attributes
    ----------
    index : int
        Column of the winner in the matrix, or its place among the estimates.
    name, group : str
        Name of the winner and of its group; the group is empty without groups.
    observed, estimate : float
        Value that made it win, and its value corrected for selection: a posterior mean.
    probability_best : float
        Probability that no other candidate has a better true value.
    expected_loss : float
        Expected difference between the best true value and that of the winner.
    names, observations, estimates, probabilities : sequence
        Names, observed values, corrected values and probabilities to be best of all candidates.
    reason : str
        What the correction is based on, and whether the values were taken as rates.

    Examples
    --------
    >>> best = winner([0.12, 0.10, 0.11, 0.13], standard_error=[0.02] * 4, names=["a", "b", "c", "d"])
    >>> best.name, best.observed, round(best.estimate, 3)
    ('d', 0.13, 0.117)
    """

    index: int
    name: str
    group: str
    observed: float
    estimate: float
    probability_best: float
    expected_loss: float
    names: Sequence[str]
    observations: Array
    standard_errors: Array  # of the observations, without the shared error
    estimates: Array
    probabilities: Array
    place: int  # of the winner among these
    theta: Array  # grid of true values, ascending
    density: Array  # of the candidates on the grid
    shared_error: float  # standard error that all candidates have in common
    bounds: tuple[float, float]  # of true values
    taken: str  # whether the values were taken as rates, in a sentence

    @property
    def reason(self) -> str:
        """What the correction is based on, and whether the values were taken as rates."""
        count, lead = len(self.names), self.observed - float(self.observations.mean())
        luck = (self.observed - self.estimate) / lead if lead else 0.0
        if count == 1:
            return f"{self.name} is the only candidate, so nothing was selected. {self.taken}"
        if luck < 0.005:
            differ = f"differ by far more than their errors, so the value of {self.name} stands"
            return f"The {count} candidates {differ if lead else 'have the same value'}. {self.taken}"
        spread, error = float(self.observations.std(ddof=1)), float(np.median(self.standard_errors))
        return (
            f"The {count} candidates have a standard deviation of {spread:.3g} and an error of about {error:.3g} each. "
            f"About {min(luck, 1):.0%} of {self.name}'s lead over their mean is expected to be luck. {self.taken}"
        )

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return a credible interval for the true value of the winner.

        Parameters
        ----------
        level : float, default=0.9
            Probability that the interval contains the true value.

        Returns
        -------
        tuple of float
        """
        low, high = self.intervals(level)[self.place]
        return float(low), float(high)

    def intervals(self, level: float = 0.9) -> Array:
        """Return the credible intervals of all candidates.

        Parameters
        ----------
        level : float, default=0.9
            Probability that an interval contains the true value.

        Returns
        -------
        array of shape (n_candidates, 2)
        """
        ends = np.array([0.5 - check_share(level, "level") / 2, 0.5 + level / 2])
        error = max(self.shared_error, 0.3 * float(self.theta[1] - self.theta[0]))
        at = np.linspace(self.theta[0] - 3 * error, self.theta[-1] + 3 * error, 500)
        below = self.density @ ndtr((at - self.theta[:, None]) / error)
        return np.stack([np.interp(ends, row, at) for row in below]).clip(*self.bounds)

    def to_frame(self) -> pl.DataFrame:
        """Return a row for each candidate.

        Returns
        -------
        polars.DataFrame
            Columns candidate, observed, estimate, low, high (90% interval) and probability_best.
        """
        low, high = self.intervals().T
        columns = {"candidate": list(self.names), "observed": self.observations, "estimate": self.estimates}
        return pl.DataFrame({**columns, "low": low, "high": high, "probability_best": self.probabilities})

    def __repr__(self) -> str:
        observed, estimate, low, high = digits(self.observed, self.estimate, *self.interval())
        return (
            f"Winner({self.name}: observed {observed}, estimate {estimate}, 90% interval {low} to {high}, "
            f"probability best {self.probability_best:.2f})"
        )

    def _repr_html_(self) -> str:
        return html_table(cells_of(self.to_frame()), caption=self.reason)


@dataclass(frozen=True)
class Impact:
    """Sum or mean of the values of several winners.

    Attributes
    ----------
    observed, estimate : float
        Sum or mean of the observed and of the corrected values.
    standard_error : float
        Standard error of the corrected one, with the uncertainty of the prior that the groups have in common.
    """

    observed: float
    estimate: float
    standard_error: float

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return a credible interval for the sum or mean of the true values.

        Parameters
        ----------
        level : float, default=0.9
            Probability that the interval contains it.

        Returns
        -------
        tuple of float
        """
        half = NormalDist().inv_cdf(0.5 + check_share(level, "level") / 2) * self.standard_error
        return self.estimate - half, self.estimate + half


class Winners(list[Winner]):
    """The winner of each group, in the order in which the groups appear.

    Examples
    --------
    >>> tests = winner([0.5, 0.2, 0.1, 0.4], standard_error=[0.2] * 4, groups=["x", "x", "y", "y"])
    >>> [(best.group, best.index) for best in tests]
    [('x', 0), ('y', 3)]
    """

    def __init__(
        self, winners: Sequence[Winner], prior: Array, evidence: Array, means: Array, variances: Array
    ) -> None:
        super().__init__(winners)
        self._prior = prior  # weights of the priors
        self._evidence, self._means, self._variances = evidence, means, variances  # groups × priors

    def impact(self, shipped: Sequence[str] | None = None) -> Impact:
        """Add up the effects of winners that were shipped.

        Parameters
        ----------
        shipped : sequence of str, optional
            Their groups; by default all groups.

        Returns
        -------
        Impact
        """
        place = {best.group: i for i, best in enumerate(self)}
        unknown = [str(name) for name in shipped or () if str(name) not in place]
        if unknown:
            raise UncurseError(f"shipped holds {unknown[0]!r}, which is no group; pass names of groups")
        rows = list(place.values()) if shipped is None else [place[str(name)] for name in shipped]
        rng, sums, within = np.random.default_rng(0), [], []
        for draw in range(_DRAWS):  # the prior that other groups would have shown: a Bayesian bootstrap of groups
            count = rng.exponential(size=len(self)) if draw else np.ones(len(self))
            weights = pool(self._evidence, self._prior, count)[rows]
            mean = (weights * self._means[rows]).sum(1)
            sums.append(mean.sum())
            within.append((weights * (self._variances[rows] + (self._means[rows] - mean[:, None]) ** 2)).sum())
        error = float(np.sqrt(np.mean(within) + np.var(sums)))
        return Impact(sum(self[row].observed for row in rows), float(sums[0]), error)

    def mean(self) -> Impact:
        """Return the mean values of the winners.

        Returns
        -------
        Impact
        """
        total, count = self.impact(), len(self)
        return Impact(total.observed / count, total.estimate / count, total.standard_error / count)

    @property
    def reason(self) -> str:
        """What the correction is based on, and whether the values were taken as rates."""
        single = sum(len(best.names) == 1 for best in self)
        alone = f" Groups with one candidate, where nothing was selected: {single:,}." if single else ""
        return (
            f"The {len(self):,} groups share the distribution of their true values, and each group has its own center."
            f"{alone} {self[0].taken}"
        )

    def __repr__(self) -> str:
        mean = self.mean()
        observed, estimate, low, high = digits(mean.observed, mean.estimate, *mean.interval())
        return (
            f"Winners({len(self):,} groups: mean observed {observed}, estimate {estimate}, "
            f"90% interval {low} to {high})"
        )

    def to_frame(self) -> pl.DataFrame:
        """Return a row for each group.

        Returns
        -------
        polars.DataFrame
            Columns group, winner, observed, estimate, low, high (90% interval), probability_best and expected_loss.
        """
        keys = ("group", "winner", "observed", "estimate", "low", "high", "probability_best", "expected_loss")
        rows = [
            (w.group, w.name, w.observed, w.estimate, *w.interval(), w.probability_best, w.expected_loss) for w in self
        ]
        return pl.DataFrame(rows, schema=keys, orient="row")

    def _repr_html_(self) -> str:
        return html_table(cells_of(self.to_frame()), caption=self.reason)


def digits(observed: float, estimate: float, low: float, high: float) -> list[str]:
    """Return numbers as text, with as many decimals as the interval from low to high needs."""
    decimals = max(0, 3 - math.ceil(math.log10(max(high - low, 1e-12))))
    return [f"{value:,.{decimals}f}" for value in (observed, estimate, low, high)]


def cells_of(frame: pl.DataFrame) -> list[list[str]]:
    """Return the names of the columns, and the rows as text."""
    return [frame.columns, *([x if isinstance(x, str) else number(x) for x in row] for row in frame.rows())]


def winner(
    scores: ArrayLike | Scores | Any,
    *,
    trials: ArrayLike | None = None,
    standard_error: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    names: Sequence[str] | None = None,
    clusters: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    higher_is_better: bool = True,
) -> Winner | Winners:
    """Pick the best of many noisy estimates, and correct its value for having been picked.

    The true values of the candidates are draws of an unknown distribution, whose shape, place and width are integrated
    out. Errors that all candidates share do not select, so they are not corrected; they widen the interval.

    Parameters
    ----------
    scores : array of shape (n_items, n_candidates) or (n_candidates,), frame or Scores
        Score of each candidate on each item; NaN where an item was not scored. A frame has a column for each candidate;
        see `uncurse.winners` for other formats. With `trials`, one number of successes for each candidate; with
        `standard_error`, one estimate for each candidate.
    trials : array of shape (n_candidates,) or int, optional
        Trials of each candidate, such as the visitors of a variant. The values are the rates successes / trials.
    standard_error : array of shape (n_candidates,) or float, optional
        Standard errors of the estimates. Estimates between 0 and 1 are taken as rates if their squared errors rise with
        rate × (1 − rate) within groups: these errors are too small where a rate is low by chance, which is corrected.
        Other estimates, such as percentages or differences, are not; `reason` says which. Prefer `trials` for rates.
    groups : array of shape (n_candidates,), optional
        Group of each candidate, such as the test of a variant. Each group has a winner, and all groups share the shape
        and the width of the distribution of true values.
    names : sequence of str, optional
        Names of the candidates; by default the columns of the frame, or numbers.
    clusters : array of shape (n_items,), optional
        Clusters of items whose errors are related, such as users.
    sample_weight : array of shape (n_items,), optional
        Weights of the items.
    higher_is_better : bool, default=True
        False if the best score is the lowest one, such as a loss.

    Returns
    -------
    Winner or Winners
        With `groups`, one winner for each group, in the order of first appearance.

    Examples
    --------
    >>> import numpy as np
    >>> right = np.random.default_rng(0).random((200, 8)) < 0.7  # eight prompts that are equally good
    >>> best = winner(right)
    >>> best.observed, round(best.estimate, 3), best.interval(0.9)[0] < 0.7 < best.interval(0.9)[1]
    (0.715, 0.687, True)
    >>> winner([120, 90, 100], trials=2000, names=["a", "b", "c"])
    Winner(a: observed 0.0600, estimate 0.0565, 90% interval 0.0487 to 0.0664, probability best 0.73)
    """
    direction = 1.0 if check_flag(higher_is_better, "higher_is_better") else -1.0
    if of_items := trials is None and standard_error is None:
        table = Scores.of(scores, names=names, clusters=clusters, sample_weight=sample_weight, groups=groups)
        listed, groups = table.names, table.groups
        direction *= 1.0 if table.higher_is_better else -1.0
    else:
        if clusters is not None or sample_weight is not None:
            raise UncurseError("clusters and sample_weight are for scores of items, without trials and standard_error")
        values, variance, rates = _estimates(scores, trials, standard_error, groups)
        listed = list(map(str, range(len(values)) if names is None else names))
        check_length(np.asarray(listed), len(values), "names")
    count = len(listed)
    labels, codes = codes_of(np.zeros(count) if groups is None else groups, count, "groups")
    order = np.argsort(codes, kind="stable")
    if of_items:
        candidates, shared = table.candidates(codes, direction)
    else:
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes))])
        bounds = (min(0.0, direction), max(0.0, direction)) if rates else None
        candidates = Candidates(direction * values[order], variance[order], starts, bounds)
        shared = np.zeros(len(labels))
    limits, taken = (-np.inf, np.inf), "not taken as rates"
    if candidates.bounds is not None:
        limits, taken = (0.0, 1.0), "taken as rates"
        if not of_items:
            taken += f" of about {1 / np.median(candidates.variance):,.0f} trials each"
    prior, parts = posteriors(candidates)
    found: list[Any] = [None] * len(labels)
    evidence, means, variances = np.empty((3, len(labels), len(prior)))
    errors = np.sqrt(candidates.variance_at(candidates.values[:, None], np.arange(count))[:, 0])
    turn = slice(None, None, int(direction))
    for part in parts:
        evidence[part.groups], variances[part.groups] = part.evidence, part.variances
        means[part.groups] = direction * part.means
        for i, group in enumerate(part.groups):
            own = slice(candidates.starts[group], candidates.starts[group + 1])
            observed, original = candidates.values[own], order[own]
            place = int(observed.argmax())
            theta, density = direction * part.theta[i][turn], part.density[i][:, turn]
            # Candidates far below the best one are cut off from the grid, and keep their observed values.
            estimates = np.where(observed < part.theta[i][0], direction * observed, density @ theta)
            index, best = int(original[place]), part.best[i]
            found[group] = Winner(
                index, listed[index], "" if groups is None else labels[group], float(direction * observed[place]),
                float(estimates[place]), float(best[place]), float(part.loss[i]), [listed[j] for j in original],
                direction * observed, errors[own], estimates, best, place, theta, density, float(shared[group]),
                limits, f"The values are {taken}.",
            )  # fmt: skip
    return found[0] if groups is None else Winners(found, prior, evidence, means, variances)


def _estimates(estimates: Any, trials: Any, standard_error: Any, groups: ArrayLike | None) -> tuple[Array, Array, bool]:
    """Return rates, 1 / trials and True; or other estimates, the variances of their errors and False.

    Errors of rates show in their sizes: within groups, they rise and fall with the estimates. A lucky rate near 1 has a
    small error, and near 0 a large one.
    """
    if trials is not None and standard_error is not None:
        raise UncurseError("trials and standard_error both describe the errors; pass one of them")
    name, given = ("standard_error", standard_error) if trials is None else ("trials", trials)
    values = check_scores(estimates, "value", name="estimates" if trials is None else "successes").astype(np.float64)
    given = np.full(len(values), given) if np.ndim(given) == 0 else given
    errors = check_scores(given, "value", name=name).astype(np.float64)
    if trials is not None:
        check_counts(values, errors, len(values), "successes")
        return values / errors, 1 / errors, True
    check_length(errors, len(values), name)
    if errors.min() <= 0:
        raise UncurseError(
            f"{name}[{errors.argmin()}] is {errors.min():g}; pass numbers above 0, or successes and trials"
        )
    variance = errors**2
    if values.min() < 0 or values.max() > 1:
        return values, variance, False
    own = values * (1 - values)
    binomial = np.maximum(own, 0.7 * errors)  # also where no trial succeeded, or all did
    _, codes = codes_of(np.zeros(len(values)) if groups is None else groups, len(values), "groups")
    x, y = (part - (np.bincount(codes, part) / np.bincount(codes))[codes] for part in np.log([binomial, variance]))
    if x @ y <= 0.5 * (x @ x):
        return values, variance, False
    wrong = np.flatnonzero((variance > own) & (own > 0))
    if wrong.size:
        at = wrong[0]
        raise UncurseError(
            f"standard_error[{at}] is {errors[at]:g}, but that of a single trial at a rate of {values[at]:g} is "
            f"{own[at] ** 0.5:.3g}; pass standard errors in the unit of the rates, or successes and trials"
        )
    return values, variance / binomial, True
