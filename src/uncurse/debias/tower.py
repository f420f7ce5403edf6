"""Tower calibration: all replicas calibrated where there are labels, then projected on the served score over the pool.

    P(y | served) = E[ P(y | all replicas) | served ]    over the pool

1. What each row's replicas say of its probability, E[φ(t) | replicas], by the distribution of truth and noise of its
   own set (`mixtures`): so labelled rows and the pool, which differ, speak the same language.
2. On labelled rows, the curve of P(y) over that, from a line to a smooth curve as the labels allow (`curves`).
3. On the pool, its mean given the served score alone: a monotone map of one score. Nothing is added to serving.
"""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration.spline import SmoothCurve, fit_smooth
from ..errors import UncurseError
from ..evidence import Evidence, Joint
from ..links import logistic
from ..maps import Affine, Grouped, ScoreMap, compose
from ..threads import one_blas_thread
from ..validation import check_choice, check_numbers, check_weights, group_rows
from .latent_scores import Mixture, Rescaled, redrawn, seen
from .pools import Reader
from .shrinkage import pull_towards
from .tower_steps import contrast_of, group_move, mixture_of, moves_of, project, scale_of, told_by
from .uncertainty import Selected, left_on_top, level_variance, levels_of
from .vad import REPLICAS

LabelledReplicas = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike] | Joint | Evidence
_SCALES = ("logit", "probability")
_OWN = 2_000  # rows of a group from which on it has a distribution of its own
_DRAWS = 6  # of the bootstrap of both distributions
# What is known of the curve before any label: scores are log odds, give or take. Two hundred clicks outweigh it.
_SLOPE = (1.0, 0.3)


class Tower:
    """Calibrate all replicas on labelled rows, and distil that into a map of the served score on the pool.

    Parameters
    ----------
    scale
        What the numbers are: ``"logit"`` or ``"probability"``. Never guessed.
    replicas
        As for `VAD`: ``"seeds"`` (models trained alike, column 0 served), ``"bootstrap"`` or ``"anchored"``.
    negative_rate
        The share of negatives kept when the model was trained, undone first; labelled rows are expected at their
        natural rate.

    Attributes
    ----------
    map_
        The score map.
    curve_
        Log odds of a click by denoised score, as labelled rows show them, with a covariance.
    line_probability_
        How probable it is that this curve is a straight line.
    contrast_
        How much more the served score counts than its replicas, where labels show it beyond doubt; else 0.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def replicas(mean, rows):
    ...     truth = rng.normal(mean, 0.8, rows)
    ...     return truth, truth[:, None] + rng.normal(0, 0.4, (rows, 2))
    >>> truth, scores = replicas(-1.5, 50_000)
    >>> clicks = rng.random(50_000) < logistic(truth)
    >>> pool_truth, pool = replicas(-2.0, 50_000)  # candidates are not what was labelled
    >>> tower = Tower().fit(pool, labelled=(scores, clicks))
    >>> top = pool[:, 0] > np.quantile(pool[:, 0], 0.95)
    >>> before, after = logistic(pool[top, 0]).mean(), tower.predict_proba(pool[top, 0]).mean()
    >>> true = logistic(pool_truth[top]).mean()
    >>> bool(before > 1.2 * true), bool(abs(after / true - 1) < 0.05)
    (True, True)
    """

    map_: ScoreMap
    curve_: SmoothCurve
    line_probability_: float
    contrast_: float

    def __init__(self, *, scale: str = "logit", replicas: str = "seeds", negative_rate: float | None = None) -> None:
        self.scale = check_choice("scale", scale, _SCALES)
        self.replicas = check_choice("replicas", replicas, REPLICAS)
        if negative_rate is not None and not 0 < negative_rate <= 1:
            raise UncurseError(f"negative_rate={negative_rate}; pass the share of negatives kept, such as 0.1")
        self.negative_rate = negative_rate

    def __repr__(self) -> str:
        text = f"Tower(scale={self.scale!r}, replicas={self.replicas!r})"
        if hasattr(self, "map_"):
            text += f" of {self._labelled.rows:,} labelled and {self._pool.rows:,} pool rows"
        return text

    def fit(
        self,
        pool: ArrayLike | Joint | Evidence,
        *,
        labelled: LabelledReplicas,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Tower:
        """Fit to a sample of the candidate pool and to labelled rows, both scored by every replica.

        Parameters
        ----------
        pool
            Replica scores (n, S), column 0 served; or the `Evidence` of a log, or a `Joint`.
        labelled
            (scores (m, S), labels (m,)[, weights]), `Evidence` with labels, or a labelled `Joint`. Rows may have been
            chosen by an earlier model, or by the served score itself if they were chosen from this pool (which is
            seen, and warned of); not by the mean of these replicas, which nothing shows.
        groups
            A group of each pool row: one map each, small groups pulled towards the whole.
        sample_weight
            Weights of pool rows. Weights say how much rows matter to each other; their scale does not.

        Noise is taken to be normal. A `Joint` must hold logits as they are served, sampled negatives undone
        (``logit_offset=log(negative_rate)``).
        """
        with one_blas_thread():  # products here are small, and two threads would wait for each other
            return self._fit(pool, labelled, groups, sample_weight)

    def _fit(self, pool: Any, labelled: Any, groups: ArrayLike | None, sample_weight: ArrayLike | None) -> Tower:
        self._pool, parts = self._joints(pool, groups, sample_weight)
        self._labelled = self._labels(labelled)
        if self._pool.n_replicas != self._labelled.n_replicas:
            raise UncurseError(
                f"the pool has {self._pool.n_replicas} replicas and the labelled rows {self._labelled.n_replicas}; "
                "pass the same columns of both"
            )
        for joint, name in ((self._pool, "pool"), (self._labelled, "labelled rows")):
            if float(np.ptp(joint.served)) <= 0:
                raise UncurseError(f"the served scores are constant on the {name}; pass rows whose scores differ")
        self._scale = scale_of(self._labelled, self.replicas)
        if self._scale != (1.0, 0.0):
            self._pool, self._labelled = (Rescaled(j, *self._scale) for j in (self._pool, self._labelled))
            parts = {name: Rescaled(joint, *self._scale) for name, joint in parts.items()}
        pool_seen, own = seen(self._pool, self.replicas), seen(self._labelled, self.replicas)
        prior = mixture_of(self._pool, self.replicas)
        self._chosen = self._chosen_by_served()
        if self._chosen:
            # What the served score chose from this pool: given all replicas, truth is distributed as in the pool.
            level = pool_seen.level
            own = seen(self._labelled, self.replicas, level=level)
            x, _ = told_by(prior, own)
        else:
            x, _ = told_by(mixture_of(self._labelled, self.replicas), own)
        self._labelled_told = x
        vars(self).pop("_redrawn", None)
        self._fit_curve(x)
        self._denoised, self._uncertain = told_by(prior, pool_seen)
        taught = self._taught(self._denoised, self._pool)
        self._projection = project(self._pool, taught)
        whole = self._projection.map()
        self.map_ = self._composed(whole)
        if parts:
            self.map_ = Grouped(self.map_, self._by_group(parts, prior))
        return self

    def predict_proba(self, served: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Calibrated predictions for served scores of shape (n,): 1-D in, 1-D out."""
        if not hasattr(self, "map_"):
            raise UncurseError("this Tower is not fitted; call fit with the pool and labelled rows first")
        if groups is not None:
            if not isinstance(self.map_, Grouped):
                raise UncurseError("this Tower was fitted without groups; leave groups out, or fit with them")
            return self.map_(served, groups)
        return self.map_(served)

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Where the calibration error left on the top share `alpha` of such a pool lies, with probability `level`.

        It counts the noise of labels, of the projection, and of the true rate among so many selected rows; not a
        change of the world between the labelled rows and the pool. With groups it is that of the whole's map.

        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(-1, 1, (2, 20_000))
        >>> labelled, pool = (t[:, None] + rng.normal(0, 0.4, (20_000, 2)) for t in truth)
        >>> low, high = Tower().fit(pool, labelled=(labelled, rng.random(20_000) < logistic(truth[0]))).interval(0.05)
        >>> -0.1 < low < 0 < high < 0.1
        True
        """
        if not hasattr(self, "map_"):
            raise UncurseError("this Tower is not fitted; call fit with the pool and labelled rows first")
        whole = self.map_.default if isinstance(self.map_, Grouped) else self.map_
        return left_on_top(whole, self, alpha, level)

    def log_error(self, alpha: float) -> float:
        """Standard error of the logarithm of predicted over true on the top share `alpha`."""
        top = Selected(self._pool, alpha)
        p = logistic(self._projection(self._pool.served[top.cells]))
        taught = self._taught(self._denoised, self._pool)[top.cells]
        by_label = top.relative(taught, self.curve_.features(self._denoised[top.cells]), self.curve_.covariance)
        by_pool = top.relative(p, self._projection.features(self._pool.served[top.cells]), self._projection.covariance)
        scatter = top.scatter(taught, p, self._uncertain[top.cells])
        drawn = [np.log(top.mean(taught[top.cells])) for taught in self._redrawn]
        return float(np.sqrt(by_label + by_pool + scatter + np.var(drawn, ddof=1)))

    @cached_property
    def _redrawn(self) -> list[Array]:
        """P(y | all replicas) of the pool's cells if both distributions of truth and noise had come out otherwise."""
        rng = np.random.default_rng(0)
        pool_seen, own = seen(self._pool, self.replicas), seen(self._labelled, self.replicas)
        made = []
        for _ in range(_DRAWS):
            prior = mixture_of(redrawn(self._pool, rng), self.replicas)
            taught, _ = told_by(prior, pool_seen)
            if not self._chosen:
                # Where labelled rows would be told otherwise, the curve moves along with them.
                told, _ = told_by(mixture_of(redrawn(self._labelled, rng), self.replicas), own)
                taught = taught - np.interp(taught, *moves_of(self._labelled_told, told, self._labelled.weight))
            made.append(self._taught(taught, self._pool))
        return made

    def level_error(self, alpha: float) -> tuple[float, int]:
        """Standard error by how replicas' levels move apart from labelled rows to pool, and its degrees of freedom."""
        top = Selected(self._pool, alpha)
        p = logistic(self._projection(self._pool.served[top.cells]))
        if self._chosen:  # their levels differ by how they were chosen
            return 0.0, 1
        moved = levels_of(self._pool) - levels_of(self._labelled)
        variance, freedom = level_variance(moved, self.replicas)
        return float(np.sqrt(variance)) * top.mean(p * (1 - p)) / top.mean(p), freedom

    def as_given(self, served: Array) -> Array:
        """Served logits of the joint as scores are given."""
        return (served - self._scale[1]) / self._scale[0] - self._offset

    @property
    def joint(self) -> Joint:
        """Counts of the pool."""
        return self._pool

    def odds(self, served: Array) -> Array:
        """Log odds at served logits."""
        return self._projection(served)

    # ------------------------------------------------------------------ parts

    @property
    def _offset(self) -> float:
        return float(np.log(self.negative_rate)) if self.negative_rate else 0.0

    def _composed(self, step: ScoreMap) -> ScoreMap:
        slope, start = self._scale
        first = [Affine(slope, start + slope * self._offset)] if (slope, start + self._offset) != (1.0, 0.0) else []
        return compose(*first, step, scale=self.scale)

    def _joint(self, scores: ArrayLike, labels: ArrayLike | None, weights: ArrayLike | None) -> Joint:
        return Joint().update(scores, labels, scale=self.scale, sample_weight=weights, logit_offset=self._offset)

    def _joints(self, pool: Any, groups: ArrayLike | None, weights: ArrayLike | None) -> tuple[Joint, dict[str, Joint]]:
        if isinstance(pool, Evidence | Joint):
            if groups is not None or weights is not None:
                raise UncurseError("groups and sample_weight go with arrays; evidence was collected with its own")
            if isinstance(pool, Joint):
                return pool, {}
            return self._of_log(pool), {name: self._of_log(part) for name, part in pool.groups.items() if part.joint}
        array = check_numbers(pool, "pool")
        if array.ndim != 2:
            raise UncurseError(f"the pool has shape {array.shape}; pass (n, S), column 0 the served model")
        parts = {}
        if groups is not None:
            names, members = group_rows(groups, len(array))
            w = check_weights(weights, len(array))
            for name, rows in zip(names, members, strict=True):
                if w is None or w[rows].sum() > 0:
                    parts[name] = self._joint(array[rows], None, None if w is None else w[rows])
        return self._joint(array, None, weights), parts

    def _of_log(self, log: Evidence) -> Joint:
        Reader("logistic", self.scale, self.negative_rate).check(log, "Tower")
        if log.joint is None:
            raise UncurseError("this evidence has no joint counts of two or more replicas; collect it with joint=True")
        return log.joint

    def _labels(self, given: Any) -> Joint:
        labelled = self._of_log(given) if isinstance(given, Evidence) else given
        if not isinstance(labelled, Joint):
            if not isinstance(labelled, tuple) or len(labelled) not in (2, 3):
                raise UncurseError(
                    "labelled rows are (scores, labels) or (scores, labels, weights), or evidence of a log"
                )
            scores = np.asarray(labelled[0])
            if scores.ndim != 2:
                raise UncurseError(
                    f"labelled scores have shape {scores.shape}; Tower needs every replica there too, shape (m, S)"
                )
            labelled = self._joint(scores, labelled[1], labelled[2] if len(labelled) == 3 else None)
        y = labelled.label
        if y is None:
            raise UncurseError("the labelled evidence holds no labels; collect it with its label column")
        for missing, count in (("positives", y.sum()), ("negatives", (labelled.weight - y).sum())):
            if count <= 0:
                raise UncurseError(f"the labels hold no {missing}; collect rows until both kinds are there")
        return labelled

    def _chosen_by_served(self) -> bool:
        """Whether the served score itself selected the labelled rows: there it lies far above its replicas.

        Of two columns either may have: the one that did is the one that is ahead.
        """
        if self.replicas != "seeds":
            return False
        means = [float(j.weight @ j.apart / j.weight.sum()) for j in (self._pool, self._labelled)]
        ahead = means[0] - means[1]
        w = self._labelled.weight
        spread = float(np.sqrt(w @ np.square(self._labelled.apart - means[1]) / w.sum()))
        chance = np.sqrt(1 / self._labelled.effective_rows + 1 / self._pool.effective_rows)
        if (abs(ahead) if self._pool.n_replicas == 2 else ahead) <= max(0.15, 5 * chance) * spread:
            return False
        who = "served" if ahead > 0 else "second column's"
        warnings.warn(
            f"on the labelled rows the {who} scores are {abs(ahead):.2f} further above the other replicas than on the "
            f"pool, as if the {who} score had selected them; they are taken as selected from this pool",
            UserWarning,
            stacklevel=4,
        )
        return True

    def _fit_curve(self, x: Array) -> None:
        joint = self._labelled
        y = joint.label
        assert y is not None  # checked
        order = np.argsort(x, kind="stable")
        # Weighted rows count as many as they are worth.
        worth = joint.worth
        w, y = joint.weight[order] * worth, y[order] * worth
        self.curve_ = fit_smooth(x[order], w, y, slope=_SLOPE)
        self.line_probability_ = self.curve_.line_probability
        self.contrast_ = 0.0
        if self.replicas == "seeds":
            self.contrast_ = contrast_of(self.curve_(x[order]), -joint.apart[order], w, y)
        self._contrast_level = float(joint.weight @ joint.apart / joint.weight.sum())

    def _taught(self, denoised: Array, joint: Joint) -> Array:
        """P(y | all replicas) of each cell."""
        l = self.curve_(denoised)
        if self.contrast_:
            l = l - self.contrast_ * (joint.apart - self._contrast_level)
        return np.asarray(logistic(l), np.float64)

    def _by_group(self, parts: dict[str, Joint], whole: Mixture | None) -> dict[str, ScoreMap]:
        """The whole's curve, moved and tilted in each group by what its pool shows, pulled towards none.

        A group of many rows has its own distribution of truth and noise; a small one is seen as part of the whole.
        """
        moves, errors, spread = [], [], self._projection.spread
        for joint in parts.values():
            data, prior = seen(joint, self.replicas), whole
            if joint.effective_rows >= _OWN and float(np.ptp(joint.served)) > 0:
                prior = mixture_of(joint, self.replicas)
            taught = self._taught(told_by(prior, data)[0], joint)
            z = (joint.served - self._projection.center) / spread
            move, error = group_move(self._projection(joint.served), z, joint.weight, taught, joint.effective_rows)
            moves.append(move)
            errors.append(error)
        by, error = np.array(moves), np.array(errors)
        level_by, tilt_by = (pull_towards(0.0, by[:, i], error[:, i]) for i in (0, 1))
        maps: dict[str, ScoreMap] = {}
        for name, moved, tilted in zip(parts, level_by.tolist(), tilt_by.tolist(), strict=True):
            maps[name] = self._composed(self._projection.moved(moved, tilted).map())
        return maps


__all__ = ["LabelledReplicas", "Tower"]
