"""True values of candidates given their noisy estimates: a prior of unknown shape, place and width, integrated out.

Observed values are ``m_j = θ_j + ε_j`` with errors ε of known variance, independent between candidates. The true values
of a group are draws of one distribution. Either all are equal, or the distribution is normal, Cauchy or skewed to the
left: a few good candidates and a tail of bad ones. Its place μ is flat over the range of the observations and its width
τ is flat in log τ. All of this is integrated out on a grid, in units of the standard error. The normal shape and the
equal values shrink candidates that are alike; the other shapes leave a clear winner alone. With many groups, shape and
width are those of all groups, and each group has its own place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from .._types import Array

Index = NDArray[np.intp]
Prior = tuple[int, int, int]  # shape (-1: equal values), exponent of the width, and γ of `_GROWTH`

_STEP = 0.2  # of the grid of true values, in standard errors
_RATIO = 2**0.25  # of neighboring widths
_WIDTHS = 0.15 * _RATIO ** np.arange(36)  # up to 64 standard errors
#: Prior probabilities of the shapes, and their densities: normal, Cauchy, two skewed to the left, two to the right.
_SHAPES: tuple[tuple[float, Callable[[Array], Array]], ...] = (
    (0.60, lambda z: np.exp(-0.5 * z * z)),
    (0.08, lambda z: 1 / (1 + z * z)),
    (0.08, lambda z: np.exp(-0.5 * np.where(z > 0, 3 * z, z) ** 2)),
    (0.08, lambda z: np.where(z > 0, np.exp(-4.5 * z * z), 1 / (1 + z * z))),
    (0.08, lambda z: np.exp(-0.5 * np.where(z < 0, 3 * z, z) ** 2)),
    (0.08, lambda z: np.where(z < 0, np.exp(-4.5 * z * z), (1 + z * z / 3) ** -2)),
)
_GROWTH = (0, 1, 2)  # the width in a group with standard error u is τ (u / reference)^γ
_EQUAL = 0.25  # prior probability that all true values of a group are equal
_MARGIN = 4.0  # of the grid beyond the observed values, in standard errors; places of the prior have half of it
_FARTHEST = 30.0  # a candidate that is more standard errors below the best one counts as this far
_SEEN = 200  # groups that choose the priors that are worth a look in all groups
_MOST = 16  # priors that are considered if there are many groups
_ROUNDS = 100  # of EM, which starts where all groups have one prior: few rounds keep it near
_NEGLIGIBLE = 12.0  # difference of log probabilities
_NUMBERS = 2**22  # in the largest array


@dataclass(frozen=True)
class Candidates:
    """Observed values and the variance of their errors, sorted by group.

    With `bounds`, the variance of the error of a true value θ is ``variance · (θ − low) (high − θ)``, as it is for
    proportions: it does not depend on the luck of the candidate.
    """

    values: Array
    variance: Array
    starts: Index  # first candidate of each group, and the number of candidates
    bounds: tuple[float, float] | None = None

    def variance_at(self, theta: Array, rows: Index) -> Array:
        """Return the variance of the errors of true values `theta` (candidates × any) of some candidates."""
        variance = self.variance[rows].reshape(-1, 1)
        if self.bounds is None:
            return np.broadcast_to(variance, theta.shape)
        low, high = self.bounds
        return variance * np.maximum((theta - low) * (high - theta), 0.3 * variance)


@dataclass(frozen=True)
class Posterior:
    """Posterior of groups with the same number of candidates, with axes groups, candidates, priors, grid."""

    groups: Index
    theta: Array  # groups × grid: true values
    density: Array  # groups × candidates × grid, sums to 1
    best: Array  # groups × candidates: probability to have the highest true value
    loss: Array  # groups: expected loss of the candidate with the highest observed value
    evidence: Array  # groups × priors: log evidence
    means: Array  # groups × priors: mean of the true value of that candidate under each prior
    variances: Array  # groups × priors


def posteriors(candidates: Candidates) -> tuple[Array, list[Posterior]]:
    """Return the weights of the priors that matter, and the posteriors of all groups."""
    count = len(candidates.starts) - 1
    parts = _parts(candidates, np.arange(count))
    some = parts if count <= _SEEN else _parts(candidates, np.linspace(0, count - 1, _SEEN).astype(np.intp))
    shifts = [part.shift for part in parts]
    growths = _GROWTH if min(shifts) < max(shifts) else _GROWTH[:1]
    priors: list[Prior] = [(-1, 0, 0)]
    share = [_EQUAL]
    for growth in growths:
        first, *_, last = sorted((1 - growth) * shift for shift in (*shifts, *shifts))
        widths = np.arange(first, last + len(_WIDTHS))
        width = _WIDTHS[0] * _RATIO**widths
        density = width / np.sqrt(1 + width**2)
        for shape, (weight, _) in enumerate(_SHAPES):
            priors += [(shape, exponent, growth) for exponent in widths.tolist()]
            share += list((1 - _EQUAL) / len(growths) * weight * density / density.sum())
    prior = np.array(share)
    evidence = np.concatenate([part.evidence(priors) for part in some])
    usual = pool(evidence, prior).mean(0)
    kept = np.sort(np.argsort(-usual)[: max(_MOST, 2**14 // count)])
    kept = kept[usual[kept] > 1e-5]
    priors, prior = [priors[i] for i in kept], prior[kept]
    found = [part.evidence(priors) for part in parts]
    weights = np.split(pool(np.concatenate(found), prior), np.cumsum([len(part.groups) for part in parts])[:-1])
    return prior, [
        part.posterior(priors, *own) for part, own in zip(parts, zip(found, weights, strict=True), strict=True)
    ]


def pool(evidence: Array, prior: Array, counts: Array | None = None) -> Array:
    """Return the probability of each prior (columns) in each group.

    Priors of groups are draws from frequencies, which are those of all other groups. EM finds them, with `prior` as one
    more group.
    """
    count = np.ones((len(evidence), 1)) if counts is None else counts[:, None]
    likelihood = np.exp(evidence - evidence.max(1, keepdims=True))
    common = (count * evidence).sum(0) + np.log(prior)  # if all groups have one prior, where EM starts
    common = np.exp(common - common.max())
    frequency = 0.9 * common / common.sum() + 0.1 * prior / prior.sum()
    for _ in range(_ROUNDS if len(evidence) > 1 else 1):
        posterior = likelihood * frequency
        posterior *= count / posterior.sum(1, keepdims=True)
        total = prior + posterior.sum(0)
        frequency = total / total.sum()
    posterior = likelihood * np.maximum(total - posterior, 1e-9 * prior)
    return np.asarray(posterior / posterior.sum(1, keepdims=True))


@dataclass
class _Part:
    """Groups that have the same number of candidates and the same grid."""

    groups: Index
    shift: int  # exponent of the unit
    unit: float
    center: Array  # groups
    likelihood: Array  # groups × candidates × grid
    winner: Index  # groups
    x: Array  # grid of true values, in units from the center
    mu: Array  # places of the prior
    log_place: Array  # groups × places
    exact: bool = False  # whether `mu` is that of `_table`

    def joint(self, priors: Sequence[Prior]) -> Iterator[tuple[slice, Array, Array, Array]]:
        """Yield, for some priors at a time, the densities, the evidence by candidate, and its logarithm by place."""
        groups, k, size = self.likelihood.shape
        flat = self.likelihood.reshape(-1, size)
        chunk = max(1, _NUMBERS // (groups * k * len(self.mu)))
        for first in range(0, len(priors), chunk):
            some = slice(first, min(first + chunk, len(priors)))
            density = self._densities(priors[some])
            evidence = np.maximum(flat @ density.reshape(-1, size).T, 1e-250)
            evidence = evidence.reshape(groups, k, -1, len(self.mu))
            yield some, density, evidence, np.log(evidence).sum(1) + self.log_place[:, None]

    def _densities(self, priors: Sequence[Prior]) -> Array:
        """Return priors × places × grid; each density sums to 1."""
        last = len(_WIDTHS) - 1
        widths = [min(max(width + (growth - 1) * self.shift, 0), last) for _, width, growth in priors]
        rows = [1 + s * len(_WIDTHS) + w if s >= 0 else 0 for (s, *_), w in zip(priors, widths, strict=True)]
        if not self.exact:
            return _table(len(self.x), len(self.mu))[rows]
        return np.stack([_density(row, self.x, self.mu) for row in rows])

    def evidence(self, priors: Sequence[Prior]) -> Array:
        """Return the log evidence of each group (rows) for each prior."""
        found = [_log_sum(log_joint) for _, _, _, log_joint in self.joint(priors)]
        return np.concatenate(found, axis=1)

    def refine(self, priors: Sequence[Prior]) -> None:
        """Put the places of the prior of one large group where its posterior is."""
        log_joint = np.concatenate([found[0] for *_, found in self.joint(priors)])
        step = self.mu[1] - self.mu[0]
        slack = _NEGLIGIBLE + self.likelihood.shape[1] * step**2 / 8
        likely = self.mu[np.flatnonzero(log_joint.max(0) > log_joint.max() - slack)]
        self.mu = np.linspace(likely[0] - step, likely[-1] + step, 49)
        self.log_place, self.exact = np.full((1, 49), -math.log(49)), True

    def posterior(self, priors: Sequence[Prior], log_evidence: Array, weights: Array) -> Posterior:
        """Return the posterior if the priors have these weights in each group."""
        groups, k, size = self.likelihood.shape
        every, places = np.arange(groups), len(self.mu)
        lucky = self.likelihood[every, self.winner]
        mixed = np.zeros((groups, k, size))
        cells = np.empty((groups, len(priors), places))
        means, squares = np.empty((2, groups, len(priors)))
        for some, density, evidence, log_joint in self.joint(priors):
            place = np.exp(log_joint - _log_sum(log_joint)[..., None])
            cells[:, some] = place * weights[:, some, None]
            share = (cells[:, None, some] / evidence).reshape(groups * k, -1)
            mixed += (share @ density.reshape(-1, size)).reshape(groups, k, size)
            share = place / evidence[every, self.winner]
            for moment, power in ((means, 1), (squares, 2)):
                own = (lucky * self.x**power) @ density.reshape(-1, size).T
                moment[:, some] = (own.reshape(share.shape) * share).sum(-1)
        mixed *= self.likelihood
        mixed /= mixed.sum(-1, keepdims=True)
        best, loss = self._best(priors, cells)
        theta = self.center[:, None] + self.unit * self.x
        variances = self.unit**2 * (squares - means**2)
        means = self.center[:, None] + self.unit * means
        return Posterior(self.groups, theta, mixed, best, self.unit * loss, log_evidence, means, variances)

    def _best(self, priors: Sequence[Prior], cells: Array) -> tuple[Array, Array]:
        """Return the probabilities of being best and the expected loss, from priors and places drawn evenly."""
        groups, k, size = self.likelihood.shape
        draws = int(np.clip(_NUMBERS // (groups * k * size), 8, 64))
        total = cells.reshape(groups, -1).cumsum(1)
        levels = (np.arange(draws) + 0.5) / draws
        drawn = np.stack([np.searchsorted(row, levels * row[-1]) for row in total])  # groups × draws
        kinds, places = np.divmod(drawn, len(self.mu))
        used = np.unique(kinds)
        prior = self._densities([priors[i] for i in used])[np.searchsorted(used, kinds), places]
        density = self.likelihood[:, :, None] * prior[:, None]  # groups × candidates × draws × grid
        density /= np.maximum(density.sum(-1, keepdims=True), 1e-300)
        below = density.cumsum(-1)
        highest = np.diff(below.prod(1), axis=-1, prepend=0.0) @ self.x
        middle = np.log(np.maximum(below - density / 2, 1e-30))
        best = (density * np.exp(middle.sum(1, keepdims=True) - middle)).sum(-1).mean(-1)
        own = (density[np.arange(groups), self.winner] @ self.x).mean(-1)
        return best / best.sum(-1, keepdims=True), np.maximum(highest.mean(-1) - own, 0.0)


def _parts(candidates: Candidates, groups: Index) -> list[_Part]:
    """Sort groups by size and grid."""
    starts, sizes = candidates.starts[:-1], np.diff(candidates.starts)
    values, rows = candidates.values, np.arange(len(candidates.values))
    error = np.sqrt(candidates.variance_at(values[:, None], rows)[:, 0])
    typical = np.add.reduceat(error, starts) / sizes
    unit = np.maximum(np.minimum.reduceat(error, starts), typical / 20)
    reference = float(np.median(unit))
    shift = np.rint(np.log(unit / reference) / math.log(_RATIO)).astype(int)
    unit = reference * _RATIO**shift
    high = np.maximum.reduceat(values, starts)
    values = np.maximum(values, np.repeat(high - _FARTHEST * typical, sizes))
    low = np.minimum.reduceat(values, starts)
    spread = np.ceil(2 * np.log2(np.maximum((high - low) / (2 * _MARGIN * unit) + 1, 1))).astype(int)
    keys = np.stack([sizes, shift, spread])[:, groups]
    parts = []
    for key in np.unique(keys, axis=1).T:
        k, own_shift, own_spread = (int(number) for number in key)
        half = _MARGIN * 2 ** (own_spread / 2)
        steps = math.ceil(half / _STEP)
        x, mu = _grids(2 * steps + 1, _places(k, half))
        same = groups[np.flatnonzero((keys == key[:, None]).all(0))]
        for few in np.array_split(same, math.ceil(len(same) * k * len(x) * 8 / _NUMBERS)):
            chosen = (starts[few][:, None] + np.arange(k)).reshape(-1)
            center, size = (low[few] + high[few]) / 2, float(unit[few[0]])
            theta = np.repeat(center[:, None] + size * x, k, axis=0)
            variance = candidates.variance_at(theta, chosen)
            found = np.exp(-0.5 * (values[chosen, None] - theta) ** 2 / variance) / np.sqrt(variance / size**2)
            if candidates.bounds is not None:
                found[(theta < candidates.bounds[0]) | (theta > candidates.bounds[1])] = 0.0
            reach = (high[few] - low[few])[:, None] / (2 * size) + _MARGIN / 2
            log_place = np.where(np.abs(mu) <= reach, 0.0, -np.inf)
            log_place -= np.log(np.isfinite(log_place).sum(1, keepdims=True))
            winner = candidates.values[chosen].reshape(-1, k).argmax(1)
            likelihood = found.reshape(len(few), k, -1)
            part = _Part(few, own_shift, size, center, likelihood, winner, x, mu, log_place)
            if k > 36:
                part.refine([(-1, 0, 1), *((s, w, 1) for s in range(len(_SHAPES)) for w in range(len(_WIDTHS)))])
            parts.append(part)
    return parts


def _places(k: int, half: float) -> int:
    """Return an odd number of places on the grid of the prior; more candidates show its place more precisely."""
    return 2 * min(math.ceil((half - _MARGIN / 2) / (0.4 if k < 16 else 0.2)), 40) + 1


def _grids(size: int, places: int) -> tuple[Array, Array]:
    steps = (size - 1) // 2
    reach = steps * _STEP - _MARGIN / 2
    return _STEP * np.arange(-steps, steps + 1.0), np.linspace(-reach, reach, places)


@lru_cache(maxsize=8)
def _table(size: int, places: int) -> Array:
    """Return the densities of all shapes and widths on a standard grid."""
    x, mu = _grids(size, places)
    return np.stack([_density(row, x, mu) for row in range(1 + len(_SHAPES) * len(_WIDTHS))])


def _density(row: int, x: Array, mu: Array) -> Array:
    """Return a density (places × grid) by its row: equal values first, then widths within shapes."""
    shape, width = divmod(row - 1, len(_WIDTHS))
    z = (x - mu[:, None]) / (_STEP if row == 0 else _WIDTHS[width])
    density = np.maximum(1 - np.abs(z), 0.0) if row == 0 else _SHAPES[shape][1](z)
    return np.asarray(density / density.sum(-1, keepdims=True))


def _log_sum(values: Array) -> Array:
    highest = values.max(-1)
    return np.asarray(highest + np.log(np.exp(values - highest[..., None]).sum(-1)))
