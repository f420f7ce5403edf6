"""Kinds of replica: how the score columns of a pool are related, and the noise variance V that follows.

The end of the file checks that scores are log odds, and that columns are replicas of the kind that was named.

To add a kind, write a subclass of `ReplicaKind`, list it in `KINDS`, and add its name to `--replicas` in `cli/fit.py`.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .._types import Array
from ..errors import UncurseError
from ..evidence import Evidence, Moments
from ..evidence.histogram import ReplicaTable
from ..validation import check_choice, warn_user

_SLOPES = (0.5, 2.0)  # a snapshot whose scores vary less than half as much is another model
_IDENTICAL = 1e-12  # sums of squares of identical columns differ by rounding
# On rows that the served score selected, it exceeds its replicas: by one standard deviation of the gap on the top 20%,
# by 0.15 on the top 90%. Chance does not reach five standard errors.
_LEAD, _CHANCE = 0.15, 5.0


#: What methods say of replicas that do not differ.
NO_NOISE = "the replicas are identical, so they show no noise"


class Spread(NamedTuple):
    """Squared deviations of a row, of a cell, or their means over a pool: the input of the formulas of V."""

    served: Any  # of the served score from its mean
    gap: Any  # of the mean of the other columns minus the served score, from its mean
    within: Any  # variance of the other columns about their mean (ddof 1); 0 for a single one
    slope: Any  # of the gap on the served score, over the pool
    columns: int


class ReplicaSummary(NamedTuple):
    """Mean and variance of the replicas of each cell, each replica corrected for its own level."""

    mean: Array  # over the models that estimate the truth
    variance: Array
    weight: Array
    models: int  # in the mean: its noise is σ²/models
    freedom: int  # of the variance
    level: float  # mean of `mean` minus that of the served score
    served_models: int = 1  # in the served score: its noise is σ²/served_models


# Trees and other flexible models under-predict the winners by a fifth of the rate, however much they over-fit. Their
# bootstraps fall behind the served score: the slope of the gap on it is −0.05 to −0.4. Chosen on four logs and two
# simulated worlds, eight models.
_UNDER_FIT, _BY_SLOPE = 0.2, 6.0


class ReplicaKind:
    """How the columns are related; column 0 is the served score."""

    name: ClassVar[str]
    too_few: ClassVar[str] = "column 0 is the served model, each bootstrap another column"
    #: Whether the served column is distributed like the others, so that the mean of all is a better score.
    exchangeable: ClassVar[bool] = False
    #: Whether column 0 holds the served score.
    served_is_a_column: ClassVar[bool] = True
    #: What `Auto` says if the labels show noise that the replicas do not.
    if_noise_is_hidden: ClassVar[str] = "the scores vary more than the labels support, and the replicas do not show it"
    #: Typical error of a label-free correction, as a share of it. Bootstraps vary more than the model itself if rows
    #: are few for its parameters, and less if it memorizes rows. A penalty may have done the correction already.
    correction_error: ClassVar[float] = 0.0
    #: Whether a served score that exceeds the others on some rows shows that it selected these rows.
    shows_selection: ClassVar[bool] = False
    #: Why there are no intervals without labels; empty if the replicas show how training again moves predictions.
    no_interval: ClassVar[str] = ""

    def columns(self, moments: Moments) -> tuple[Array, Array]:
        """Return means and covariances of the columns, the served score in column 0."""
        return moments.mean, moments.covariance

    def table_of(self, evidence: Evidence, name: str, level: int = 0) -> ReplicaTable:
        """Return the replicas of evidence, on a grid of this level or coarser; errors call the rows `name`."""
        self.check_columns(len(evidence.spec.scores))
        if evidence.replicas is None:
            raise UncurseError(f"the evidence of the {name} has no histogram of replicas; pass histograms=True")
        return self.table(evidence.replicas.coarsened(level).table())

    def table(self, columns: ReplicaTable) -> ReplicaTable:
        """Return a table with the served score in column 0, from the columns of the log."""
        return columns

    def noise(self, spread: Spread) -> Any:
        """Return the noise variance V of the served score: the one formula of this kind."""
        raise NotImplementedError

    def noise_variance(self, covariance: Array) -> Array:
        """Return V from covariances (ddof 0) of `columns`, of shape (..., S, S)."""
        size = covariance.shape[-1]
        served, both = covariance[..., 0, 0], covariance[..., 0, 1:].mean(axis=-1)
        others, within = covariance[..., 1:, 1:].mean(axis=(-2, -1)), np.zeros_like(served)
        if size > 2:
            within = (np.trace(covariance[..., 1:, 1:], axis1=-2, axis2=-1) - (size - 1) * others) / (size - 2)
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(served > 0, both / served - 1, 0.0)
        spread = Spread(served, others + served - 2 * both, within, slope, size)
        return np.asarray(np.maximum(self.noise(spread), 0.0))

    def differences(self, columns: int) -> int:
        """Return the number of independent differences between replicas behind V."""
        return max(columns - (1 if self.exchangeable else 2), 1)

    def summarize(self, table: ReplicaTable, level: float | None = None) -> ReplicaSummary:
        """Summarize the replicas of each cell; `level` is that of a larger set that the rows are part of."""
        raise NotImplementedError

    def level_variance(self, levels: Array) -> tuple[float, int]:
        """Return the variance of the mean logit of the predictions, and its degrees of freedom.

        It is estimated from `levels`, the differences between the mean logits of replicas. Predictions follow the mean
        of the columns; only with bootstraps they follow the served column, whose variance is that of a bootstrap.
        """
        members = levels if self.exchangeable else levels[1:]
        if len(members) == 1:
            return float(np.square(members[0])), 1
        averaged = len(members) if self.exchangeable or not self.served_is_a_column else 1
        return float(np.var(members, ddof=1)) / averaged, len(members) - 1

    def under_fit(self, table: ReplicaTable) -> float:
        """Return by how much such a model usually under-predicts its top, which replicas do not show."""
        return 0.0

    def check_columns(self, count: int) -> None:
        """Raise UncurseError if there are too few score columns."""
        if count < 2:
            raise UncurseError(f"there is one score column and replicas={self.name!r} needs two; {self.too_few}")


class Seeds(ReplicaKind):
    """Models that differ only by their seed; the served one is one of them."""

    name = "seeds"
    too_few = "train the model once more with another seed"
    exchangeable = True
    shows_selection = True
    if_noise_is_hidden = (
        "the replicas agree more closely than the labels do; replicas by seed do not show the noise of data"
    )

    def noise(self, spread: Spread) -> Any:
        """Return the variance across the centered columns, which is (tr C − 1ᵀC1/S) / (S − 1) over a pool."""
        size = spread.columns
        return ((size - 2) * spread.within + (size - 1) / size * spread.gap) / (size - 1)

    def summarize(self, table: ReplicaTable, level: float | None = None) -> ReplicaSummary:
        """Return mean and variance of all columns."""
        size = table.n_replicas
        share = (size - 1) / size
        gap_level = table.gap_level if level is None else level / share
        variance = Seeds.noise(self, Spread(None, table.gap_squared(gap_level), table.spread, None, size))
        mean = table.served + share * table.gap
        return ReplicaSummary(mean, variance, table.weight, size, size - 1, share * gap_level)


class Bootstrap(ReplicaKind):
    """Column 0 is trained on all rows, and each other column on its own bootstrap sample.

    V is the variance between the bootstraps. If their mean rises more steeply than the served score, as that of models
    with many parameters for few rows does, the served score is as much too steep, and that part is added. With a single
    bootstrap V is the variance of its difference from the served score. If it rises less steeply, as trees do that see
    fewer different rows, the difference is taken from the line: the slope is no noise.
    """

    name = "bootstrap"
    correction_error = 0.5

    def noise(self, spread: Spread) -> Any:
        """Return the variance between the bootstraps, and the square of what they add to the slope."""
        if spread.columns == 2:
            return spread.gap - np.square(np.minimum(spread.slope, 0.0)) * spread.served
        return spread.within + np.square(np.maximum(spread.slope, 0.0)) * spread.served

    def summarize(self, table: ReplicaTable, level: float | None = None) -> ReplicaSummary:
        """Return the served score, and the variance of the bootstraps."""
        level = table.gap_level if level is None else level
        served, slope = _served_and_slope(table)
        # About the line if it falls: then no slope is left to take off.
        gap = table.gap_squared(level + min(slope, 0.0) * served)
        spread = Spread(np.square(served), gap, table.spread, max(slope, 0.0), table.n_replicas)
        freedom = self.differences(table.n_replicas)
        return ReplicaSummary(table.served, self.noise(spread), table.weight, 1, freedom, 0.0)

    def under_fit(self, table: ReplicaTable) -> float:
        """Return 0 where bootstraps follow the served score, as linear models do, and more where they fall behind."""
        served, slope = _served_and_slope(table)
        w = table.weight / table.weight.sum()
        rest = served * (table.gap - w @ table.gap - slope * served)
        error = float(np.sqrt(w @ np.square(rest) / table.effective_rows) / max(float(w @ np.square(served)), 1e-300))
        return min(_BY_SLOPE * max(-slope - 2 * error, 0.0), _UNDER_FIT)


class Ensemble(ReplicaKind):
    """The served score is the mean of the columns, on the link. Its noise variance is V/S.

    `columns` and `table` put this mean before the S columns, so the other methods see S + 1 columns.
    """

    name = "ensemble"
    too_few = "pass a column for each member of the ensemble"
    served_is_a_column = False

    def columns(self, moments: Moments) -> tuple[Array, Array]:
        """Return means and covariances of the mean of the members, and of the members."""
        size = len(moments.mean)
        matrix = np.vstack([np.full(size, 1 / size), np.eye(size)])
        return matrix @ moments.mean, matrix @ moments.covariance @ matrix.T

    def table(self, columns: ReplicaTable) -> ReplicaTable:
        """Return a table whose served score is the mean of the members."""
        mean, variance, *_ = Seeds().summarize(columns)
        levels = np.append(0.0, columns.levels - columns.levels.mean())
        return replace(columns, served=mean, gap=np.zeros_like(mean), spread=variance, levels=levels)

    def noise(self, spread: Spread) -> Any:
        """Return the variance of the members divided by their number."""
        return spread.within / (spread.columns - 1)

    def summarize(self, table: ReplicaTable, level: float | None = None) -> ReplicaSummary:
        """Return the served mean, and the variance of the members."""
        size = table.n_replicas - 1
        return ReplicaSummary(table.served, table.spread, table.weight, size, size - 1, 0.0, size)


class Snapshots(Seeds):
    """Column 0 is the served model, and each other column an earlier checkpoint of the same training run.

    An earlier checkpoint has learned less: its true score is b times that of the served model. The slope b follows
    from the covariances by Deming regression, and the columns are divided by it before the formulas of `Seeds`. The
    level is that of the served score, and its error is not known: without labels there are no intervals.
    """

    name = "snapshots"
    too_few = "keep an earlier checkpoint of the served model"
    shows_selection = False  # with a slope, the difference of the columns changes with the score
    no_interval = (
        "snapshots of one training do not show how much another training would move the predictions; pass labeled "
        "rows, or replicas by seed"
    )
    if_noise_is_hidden = (
        "the snapshots agree more closely than the labels do; take earlier ones, or train a second model"
    )

    def table(self, columns: ReplicaTable) -> ReplicaTable:
        """Return a table in which the snapshots have the level and the slope of the served score."""
        table = columns
        w, others = table.weight / table.weight.sum(), table.served + table.gap
        served, others = table.served - w @ table.served, others - w @ others
        slope = float(_deming_slope(w @ served**2, w @ (served * others), w @ others**2, table.n_replicas))
        # The level of an earlier checkpoint says nothing about that of the served model.
        return replace(
            table, gap=others / slope - served, spread=table.spread / slope**2, levels=np.zeros_like(table.levels)
        )

    def summarize(self, table: ReplicaTable, level: float | None = None) -> ReplicaSummary:
        """Return mean and variance of all columns, the variance scaled to that of the served score."""
        size, (served, slope) = table.n_replicas, _served_and_slope(table)
        w = table.weight / table.weight.sum()
        variance, gap = w @ served**2, w @ np.square(table.gap - w @ table.gap)
        own, of_others = -slope * variance, gap + slope * variance  # noise variances of served score and others' mean
        ratio = of_others * (size - 1) / own if own > 0 else 1.0  # 1/b²
        factor = size / (1 + (size - 1) * float(np.clip(ratio, *np.square(_SLOPES))))
        summary = super().summarize(table, level)
        return summary._replace(variance=factor * summary.variance)

    def noise(self, spread: Spread) -> Any:
        """Return V of the served score; that of a snapshot divided by b is V/b²."""
        size, both = spread.columns, (1 + spread.slope) * spread.served
        others = spread.gap + (1 + 2 * spread.slope) * spread.served
        slope = _deming_slope(spread.served, both, others, size)
        gap = others / slope**2 + spread.served - 2 * both / slope
        noise = super().noise(Spread(None, gap, spread.within / slope**2, None, size))
        return noise * size / (1 + (size - 1) / np.square(slope))


def served_lead(pool: Moments, labeled: Moments, kind: ReplicaKind) -> float:
    """Return the mean excess of the served score over the other replicas on labeled rows, minus that on the pool.

    The model that selected the labeled rows scores higher there, because its noise helped to select them. Models with
    different slopes also differ there if the labeled rows have higher or lower scores, and that part is subtracted.
    Return 0 if the rest is within chance or the kind of replica does not show it. With two columns the result is
    negative if the other one selected the rows.
    """
    if not kind.shows_selection:
        return 0.0
    size = len(labeled.mean)
    weights = np.full(size, -1 / (size - 1))
    weights[0] = 1.0
    spread = float(np.sqrt(max(weights @ labeled.covariance @ weights, 0.0)))
    chance = np.sqrt(1 / labeled.effective_rows + 1 / pool.effective_rows) * spread
    # Regress the excess on the mean of all columns, without the noise of that mean. If all columns have the same noise,
    # the noise of the mean is unrelated to that of the excess.
    mean = np.full(size, 1 / size)
    true_variance = float(mean @ pool.covariance @ mean) - float(kind.noise_variance(pool.covariance)) / size
    higher = float(mean @ (labeled.mean - pool.mean))
    by_slope = 0.0
    if true_variance > 0:
        by_slope = float(weights @ pool.covariance @ mean) / true_variance * higher
        excess = max(float(weights @ pool.covariance @ weights), 0.0)
        error = np.sqrt(excess / true_variance / pool.effective_rows) * higher
        chance = np.hypot(chance, error)
    lead = float(weights @ (labeled.mean - pool.mean))
    # Columns of unequal noise look as if their slopes differed. So the slopes may reduce a lead, but not create one.
    lead = min(lead, max(lead - by_slope, 0.0)) if lead > 0 else max(lead, min(lead - by_slope, 0.0))
    enough = max(_LEAD * spread, _CHANCE * float(chance)) + 1e-9 * float(np.sqrt(labeled.covariance[0, 0]))
    return lead if (abs(lead) if size == 2 else lead) > enough else 0.0


def identical_replicas(noise: float, variance: float) -> bool:
    """Return whether the noise variance is 0 to rounding."""
    return noise <= _IDENTICAL * variance


def _served_and_slope(table: ReplicaTable) -> tuple[Array, float]:
    """Return the served score about its mean, and the slope of the gap on it."""
    w = table.weight / table.weight.sum()
    served = table.served - w @ table.served
    return served, float(w @ (served * table.gap)) / max(float(w @ np.square(served)), 1e-300)


def _deming_slope(served: Any, both: Any, others: Any, columns: int) -> Array:
    """Return the slope of the mean of the other columns on the served score, from variances and their covariance.

    Both have noise; that of the mean has 1/(S − 1) of the variance. The slope is 1 if the columns are unrelated.
    """
    ratio, related = 1 / (columns - 1), np.asarray(both) > 0
    difference = others - ratio * served
    root = np.sqrt(np.square(difference) + 4 * ratio * np.square(both))
    slope = (difference + root) / (2 * np.where(related, both, 1.0))
    return np.asarray(np.clip(np.where(related, slope, 1.0), *_SLOPES))


#: Kinds by name: the values of the parameter ``replicas``.
KINDS: dict[str, ReplicaKind] = {kind.name: kind for kind in (Seeds(), Bootstrap(), Ensemble(), Snapshots())}


def replica_kind(replicas: str) -> ReplicaKind:
    """Return the kind of this name; raise UncurseError if there is none."""
    return KINDS[check_choice("replicas", replicas, tuple(KINDS))]


# ---------------------------------------------------------------------------- checks

_MIN_ROWS = 1_000  # with fewer rows the columns are not judged
_EXTREME = 30.0  # log odds of a probability of 1e-13
_RARE = 2e-4  # share of rows; fewer are outliers, which the methods other than a single λ withstand
_LEAST_VARIANCE = 0.1  # share of the variance; extreme scores with less of it hardly change λ
_RELATED = 3.0  # standard errors that the correlation of a column with the others exceeds
_LESS_RELATED = 0.5  # least mean correlation of a column with the others, relative to that among these
_ALIKE = 1.5  # ratio of standard deviations; with a larger one, maps of replicas by seed are off by 5% and more
_COMPARABLE = 5.0  # with a larger one, columns are not scores of one model
# The squared difference between replicas, relative to that from the served score, is 1 for replicas by seed and 1.2 to
# 2 for bootstraps. With few parameters it varies with the draw; then the differences follow the scores as well.
_OF_BOOTSTRAPS, _OF_SEEDS, _DRAW = 1.15, (0.7, 1.13), 0.3


def describe_extremes(table: ReplicaTable) -> str:
    """Describe served scores that are too large for log odds; empty if there are none but rare outliers."""
    share = _extreme_shares(table)[0]
    return f"{share:.2%} of the served scores lie beyond ±{_EXTREME:g}" if share > _RARE else ""


def check_log_odds(table: ReplicaTable, *, squares: bool = True) -> None:
    """Raise UncurseError if served scores are too large for log odds; warn of rare outliers.

    If the method follows from `squares` of scores, as λ does, rare outliers can change it, which is an error.
    """
    served, weight = table.served, table.weight
    extreme = np.abs(served) > _EXTREME
    if not extreme.any():
        return
    text = describe_extremes(table) or f"a served score is {served[np.argmax(np.abs(served))]:.4g}"
    deviations = weight * np.square(served - np.average(served, weights=weight))
    decisive = squares and deviations[extreme].sum() > _LEAST_VARIANCE * deviations.sum()
    text += f", too far out for log odds: pass labeled rows to Auto, or clip them to ±{_EXTREME:g} here and in serving"
    if decisive or describe_extremes(table):
        raise UncurseError(text)
    warn_user(text)


def check_replicas(kind: ReplicaKind, pool: Evidence, table: ReplicaTable | None) -> None:
    """Raise UncurseError if a column is no replica of the others; warn if they look like replicas of another kind.

    Two columns do not show their kind, and neither do snapshots and the members of an ensemble. Rare outliers, which
    `table` shows, hide how the columns are related.
    """
    names, covariance = pool.spec.scores, pool.moments.covariance
    variance = np.diagonal(covariance)
    if pool.moments.effective_rows < _MIN_ROWS or len(names) < 2 or not variance[0] > 0:
        return
    if table is not None and any(0 < share <= _RARE for share in _extreme_shares(table)):
        return
    same = _gaps(covariance) <= _IDENTICAL * variance[0]
    if same.all():
        return
    repeated = np.argwhere(np.tril(same, -1))
    if len(repeated):
        second, first = (names[i] for i in repeated[0])
        raise UncurseError(f"{second} repeats the scores of {first}; pass the scores of another model, or leave it out")
    ratios = np.sqrt(variance / variance[0])
    worst = int(np.argmax(np.maximum(ratios, 1 / np.maximum(ratios, 1e-300))))
    varies = f"the scores of {names[worst]} vary {ratios[worst]:.2g} times as much as those of {names[0]}"
    if not 1 / _COMPARABLE <= ratios[worst] <= _COMPARABLE:
        raise UncurseError(f"{varies}, so they are no replicas; pass scores on one scale, without outliers")
    # A column that is hardly related to the others, as after a shuffle.
    correlation, others = covariance / np.sqrt(np.outer(variance, variance)), len(names) - 1
    related, least = (correlation.sum(axis=0) - 1) / others, _RELATED / math.sqrt(pool.moments.effective_rows)
    odd = int(np.argmin(related)) if others > 1 else 1
    if others > 1:
        among = np.delete(np.delete(correlation, odd, 0), odd, 1)
        least = max(least, _LESS_RELATED * (among.sum() - others) / (others * (others - 1)))
    if related[odd] < least:
        raise UncurseError(
            f"the scores of {names[odd]} are hardly related to the others (correlation {related[odd]:.2f}); pass "
            "scores of the same rows, in the same order, of models that were trained to the end"
        )
    if kind.name == "seeds" and not 1 / _ALIKE <= ratios[worst] <= _ALIKE:
        warn_user(
            f"{varies}, so models differ by more than the seed, and predictions can be off by 5% to 20%: train them "
            "alike, and long enough"
        )
    if len(names) > 2:
        _check_kind(kind, covariance)


def _check_kind(kind: ReplicaKind, covariance: Array) -> None:
    """Warn if replicas by seed look like bootstraps, or bootstraps like replicas by seed."""
    # Leave out what follows the mean score: a difference in slope is one number, and says little of the rows.
    mean = covariance.mean(axis=0)
    gaps, among = _gaps(covariance - np.outer(mean, mean) / mean.mean()), np.triu_indices(len(mean) - 1, 1)
    between, in_all = (each[1:, 1:][among].mean() for each in (gaps, _gaps(covariance)))
    ratio, draw = float(between / gaps[0, 1:].mean()), _DRAW * max(1 - float(between / in_all), 0.0) ** 0.5
    text = f"the other columns differ from each other {ratio:.2f} times as much as from the served one (mean square)"
    if kind.name == "seeds" and ratio > _OF_BOOTSTRAPS * math.exp(draw):
        warn_user(
            f"{text}, as bootstraps do (1.2 to 2) and replicas by seed do not (1): if they were trained on bootstrap "
            "samples, pass replicas='bootstrap'"
        )
    if kind.name == "bootstrap" and _OF_SEEDS[0] < ratio < _OF_SEEDS[1]:
        warn_user(
            f"{text}, as replicas by seed do (1) and bootstraps do not (1.2 to 2): if only their seeds differ, pass "
            "replicas='seeds', or train them on bootstrap samples"
        )


def _gaps(covariance: Array) -> Array:
    """Return the variance of the difference of each pair of columns."""
    variance = np.diagonal(covariance)
    return np.asarray(variance[:, None] + variance - 2 * covariance)


def _extreme_shares(table: ReplicaTable) -> tuple[float, float]:
    """Return the shares of rows whose served score, and whose mean of the other columns, is too large for log odds."""
    w = table.weight / table.weight.sum()
    served, others = (float(w @ (np.abs(x) > _EXTREME)) for x in (table.served, table.served + table.gap))
    return served, others
