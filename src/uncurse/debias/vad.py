"""Variance-adjusting debiasing: moments of replica scores to λ to a score map.

    λ = 1 − V / Var(l_served),    f = φ(λ · l_served + (1 − λ) · mean(l_served))

V is the part of the variance that a retrained model would not repeat (Algorithm 1 of the paper).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from .._types import Array
from ..calibration import calibrators
from ..errors import UncurseError
from ..evidence import Cells, Evidence, Moments
from ..links import get_link
from ..maps import Affine, Grouped, ScoreMap, compose
from ..validation import SCALES, check_choice, check_weights
from .free_shape import Distilled, distil
from .pools import Pool, Reader
from .shrinkage import curved, group_lambdas, noise_variance, pull_towards
from .uncertainty import left_on_top

if TYPE_CHECKING:
    from .tower import Tower

#: How the columns of a pool came about; see `VAD`.
REPLICAS = ("seeds", "bootstrap", "anchored")
_NEEDED = {"seeds": 2, "bootstrap": 3, "anchored": 2}

LabelledScores = tuple[ArrayLike, ArrayLike] | tuple[ArrayLike, ArrayLike, ArrayLike] | tuple[Moments, Cells] | Evidence


class VAD:
    """Debias served scores with the variance between replicas on the candidate pool.

    Parameters
    ----------
    link
        Where scores are shrunk: ``logistic``; ``identity`` is the paper's VAD(p); ``log``; ``probit``.
    scale
        What the numbers are: ``"logit"``, ``"probability"`` or ``"value"`` (regression). Never guessed.
    replicas
        ``"seeds"``: models trained alike, column 0 served. ``"bootstrap"``: column 0 served, the others
        each on a bootstrap of their own. ``"anchored"``: bootstraps around column 0.
    calibrator
        A calibrator to work in tandem with, by name; `fit` then needs labelled rows.
    curvature
        Add what φ's bend does to the posterior mean: E[φ(l*)] instead of φ(E[l*]). For VAD alone.
    shape
        ``"straight"``: one λ for all scores. ``"free"``: whatever curve the replicas show, where noise differs from
        row to row or scores have heavy tails (see `distilled`); best with three replicas or more.
    recentre
        Of a tandem, on the logistic link: shrink scores before they are calibrated, so that labelled rows of another
        mean do no harm. False is the paper's: after the calibrator, about the mean of calibrated scores.
    negative_rate
        The share of negatives kept when the model was trained, undone first. Labelled rows are expected at
        their natural rate: weight their negatives by 1/negative_rate where they are not. Moments and cells given in
        place of arrays must be of corrected scores (``logit_offset=log(negative_rate)``).
    lambda_floor
        What to do if replicas differ more than scores do (λ ≤ 0): None is an error; a number warns and is used.
    calibrator_options
        Options of the calibrator, such as ``{"n_bins": 50}``.

    Attributes
    ----------
    lambda_, center_, standard_error_
        λ, the point that scores are pulled towards (in link space), and the standard error of λ: a jackknife over
        pool rows, which says nothing of how λ would differ with other training data.
    noise_variance_, score_variance_
        V and Var(l_served) on the pool.
    group_lambda_, group_center_
        By group, where there are groups.
    map_
        The score map.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(-2, 0.8, 50_000)
    >>> pool = truth[:, None] + rng.normal(0, 0.4, (50_000, 2))  # two replicas
    >>> vad = VAD().fit(pool)
    >>> round(vad.lambda_, 2)  # 0.64 / (0.64 + 0.16)
    0.8
    >>> vad.predict_proba([0.0]) < 0.5
    array([ True])
    """

    lambda_: float
    center_: float
    standard_error_: float
    noise_variance_: float
    score_variance_: float
    group_lambda_: dict[str, float]
    group_center_: dict[str, float]
    map_: ScoreMap

    def __init__(
        self,
        *,
        link: str = "logistic",
        scale: str = "logit",
        replicas: str = "seeds",
        calibrator: str | None = None,
        curvature: bool = False,
        shape: str = "straight",
        recentre: bool = True,
        negative_rate: float | None = None,
        lambda_floor: float | None = None,
        calibrator_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.link = get_link(link).name
        self.scale = check_choice("scale", scale, SCALES)
        self.replicas = check_choice("replicas", replicas, REPLICAS)
        self.calibrator = calibrator
        self.curvature = curvature
        self.shape = check_choice("shape", shape, ("straight", "free"))
        self.recentre = recentre and self.link == "logistic"
        self.negative_rate = negative_rate
        self.lambda_floor = lambda_floor
        self.calibrator_options = dict(calibrator_options or {})
        if calibrator is not None:
            check_choice("calibrator", calibrator, tuple(calibrators.CALIBRATORS))
            if curvature:
                raise UncurseError("curvature=True corrects VAD alone; leave it out beside a calibrator")
        if shape == "free" and (calibrator is not None or curvature or self.link != "logistic" or scale == "value"):
            raise UncurseError(
                "shape='free' is for logits or probabilities on the logistic link, without calibrator and curvature, "
                "which it holds already"
            )
        if scale == "value" and (self.link in ("logistic", "probit") or calibrator or negative_rate):
            raise UncurseError("scale='value' is for regression: use link='identity' or 'log', and no calibrator")
        if negative_rate is not None and not 0 < negative_rate <= 1:
            raise UncurseError(f"negative_rate={negative_rate}; pass the share of negatives kept, such as 0.1")
        if lambda_floor is not None and not 0 <= lambda_floor < 1:
            raise UncurseError(f"lambda_floor={lambda_floor}; pass a number from 0 to 1, or None for an error")

    def __repr__(self) -> str:
        tandem = "" if self.calibrator is None else f", calibrator={self.calibrator!r}"
        text = f"VAD(link={self.link!r}, scale={self.scale!r}, replicas={self.replicas!r}{tandem})"
        if hasattr(self, "map_"):
            text += (
                f" with λ = {self.lambda_:.4g} ± {self.standard_error_:.2g} (over pool rows) about {self.center_:.4g}"
            )
        return text

    # ------------------------------------------------------------------ fitting

    def fit(
        self,
        pool: ArrayLike | Evidence | Moments | tuple[Moments, Cells] | Mapping[str, Moments],
        *,
        labelled: LabelledScores | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        variance: float | None = None,
    ) -> VAD:
        """Fit to an unlabelled sample of the candidate pool.

        Parameters
        ----------
        pool
            Replica scores (n, S), column 0 served; or the `Evidence` of a log; or `Moments` of scores (with the
            `Cells` of the served score for a tandem), or `Moments` by group.
        labelled
            For a tandem: (scores (m, S), labels (m,)[, weights]), `Evidence` with labels, or (Moments, Cells). The
            rows are of the training distribution and must not have been selected by the served score: what an
            earlier model showed is fine.
        groups
            A group per row: one λ and centre each, small groups pulled towards the whole.
        sample_weight
            Weights of pool rows, such as importance weights.
        variance
            V itself, for one column of scores; see `information_variance`.
        """
        if variance is not None and not 0 <= variance < np.inf:
            raise UncurseError(f"variance={variance}; pass V, a finite number of 0 or more")
        for name in ("group_lambda_", "group_center_"):
            vars(self).pop(name, None)
        evidence = self._reader.pool(
            pool, groups, sample_weight, tandem=self.calibrator is not None, single=variance is not None
        )
        self._fit_lambda(evidence.moments, variance)
        if (
            not isinstance(pool, Evidence | Moments | Mapping | tuple)
            and self.noise_variance_ <= 1e-12 * self.score_variance_
        ):
            message = "the replicas are identical, so no noise shows; was the seed changed?"
            warnings.warn(message, UserWarning, stacklevel=2)
        step = None
        if self.calibrator is not None:
            step = self._fit_calibrator(labelled, variance)
            if not self.recentre:
                self.center_ = evidence.center(step, self.link)
        elif labelled is not None:
            raise UncurseError("labelled rows are given but no calibrator; pass one, such as VAD(calibrator='platt')")
        self._given = pool, labelled, sample_weight
        self._reference: Tower | Distilled | None = None
        if self.shape == "free":
            self.map_ = self._free(groups, variance)
            return self
        self.map_ = self._map(self.lambda_, self.center_, self.noise_variance_, step)
        if evidence.groups:
            self.map_ = Grouped(self.map_, self._fit_groups(evidence, step, variance))
        return self

    def interval(self, alpha: float, level: float = 0.9) -> tuple[float, float]:
        """Where the calibration error left on the top share `alpha` of such a pool lies, with probability `level`.

        Judged by what replicas say of each other (`shape="free"`), or by `Tower` where there are labels. Without
        labels it cannot see what all replicas have in common: an error of their training data, or of their kind. It
        looks at the pool again, which is kept, not copied: do not write over it before.

        >>> rng = np.random.default_rng(0)
        >>> pool = rng.normal(-2, 0.8, 50_000)[:, None] + rng.normal(0, 0.4, (50_000, 3))
        >>> low, high = VAD(curvature=True).fit(pool).interval(0.05)
        >>> -0.05 < low < 0 < high < 0.05
        True
        """
        if not hasattr(self, "map_"):
            raise UncurseError("this VAD is not fitted; call fit with the pool first")
        if self._given is None:
            raise UncurseError("a VAD that was pickled has let its pool go; fit it again for an interval")
        if self._reference is None:
            self._reference = self._make_reference()
        whole = self.map_.default if isinstance(self.map_, Grouped) else self.map_
        return left_on_top(whole, self._reference, alpha, level)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_given": None, "_reference": None}

    def _make_reference(self) -> Tower | Distilled:
        from .tower import Tower

        pool, labelled, weights = self._given
        if labelled is not None and not isinstance(pool, Moments | Mapping | tuple):
            tower = Tower(scale=self.scale, replicas=self.replicas, negative_rate=self.negative_rate)
            return tower.fit(pool, labelled=labelled, sample_weight=weights)  # type: ignore[arg-type]
        return self._taken_at_its_word(self._distilled())

    def _taken_at_its_word(self, free: Distilled) -> Distilled:
        """VAD with curvature itself, where the replicas' own shape does not contradict it: it is known better."""
        if self.link != "logistic" or not self.lambda_ > 0:
            return free
        straight = free.straight(self.lambda_, self.standard_error_, self.center_, self.score_variance_)
        return free if free.differs_from(straight) else straight

    def _distilled(self) -> Distilled:
        pool, _, weights = self._given
        if self.scale == "value":
            raise UncurseError("scale='value' are no probabilities; this needs logits or probabilities")
        if isinstance(pool, Moments | Mapping | tuple):
            raise UncurseError(
                "moments alone do not show the shape of noise; pass scores (n, S) or evidence with joint"
            )
        return distil(
            pool, weights, scale=self.scale, replicas=self.replicas, offset=self._offset, noise=self.noise_variance_
        )

    def _free(self, groups: ArrayLike | None, variance: float | None) -> ScoreMap:
        if (
            groups is not None
            or variance is not None
            or (isinstance(self._given[0], Evidence) and self._given[0].groups)
        ):
            raise UncurseError("shape='free' has no groups and takes no variance; fit one VAD for each group")
        self._reference = self._distilled()
        offset = [Affine(1.0, self._offset)] if self._offset else []
        return compose(*offset, self._reference.map(), scale=self.scale)

    def predict_proba(self, served: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Debiased predictions for served scores of shape (n,): 1-D in, 1-D out."""
        if not hasattr(self, "map_"):
            raise UncurseError("this VAD is not fitted; call fit with the pool first")
        if groups is not None:
            if not isinstance(self.map_, Grouped):
                raise UncurseError("this VAD was fitted without groups; leave groups out, or fit with them")
            return self.map_(served, groups)
        return self.map_(served)

    @property
    def _reader(self) -> Reader:
        return Reader(self.link, self.scale, self.negative_rate)

    @property
    def _offset(self) -> float:
        return self._reader.offset

    def _lambda(self, variance: float | None) -> Any:
        """λ as a function of mean and covariance, for the jackknife."""

        def function(mean: Array, covariance: Array) -> Array:
            served = covariance[..., 0, 0]
            noise = (
                np.full_like(served, variance) if variance is not None else noise_variance(covariance, self.replicas)
            )
            with np.errstate(divide="ignore", invalid="ignore"):
                result: Array = 1 - noise / served
            return result

        return function

    def _warn_if_selected(self, labelled: Moments) -> None:
        """Rows that the served score itself selected show as a served column far above its twins."""
        ahead = [float(m.mean[0] - m.mean[1:].mean()) for m in (labelled, self._pool_moments)]
        noise = max(self.noise_variance_, float(noise_variance(labelled.covariance)), 1e-9 * self.score_variance_)
        clear = max(0.2, 5 * np.sqrt(2 / labelled.weight)) * np.sqrt(noise)
        if self.replicas == "seeds" and ahead[0] - ahead[1] > clear:
            warnings.warn(
                f"on the labelled rows the served scores are {ahead[0]:+.2f} above the other replicas, on the pool "
                f"{ahead[1]:+.2f}; if the served score selected them, λ is wrong: label rows chosen without it",
                UserWarning,
                stacklevel=4,
            )

    def _check_columns(self, moments: Moments, variance: float | None) -> None:
        needed = 1 if variance is not None else _NEEDED[self.replicas]
        if moments.n_replicas < needed:
            extra = {"seeds": "train the model once more with another seed"}.get(
                self.replicas, "the served model is column 0, each bootstrap another"
            )
            raise UncurseError(
                f"there are {moments.n_replicas} column(s) and replicas={self.replicas!r} needs {needed}; {extra}"
            )

    def _fit_lambda(self, moments: Moments, variance: float | None) -> None:
        moments.require_rows()
        self._check_columns(moments, variance)
        self._pool_moments, self._labelled_lambda = moments, 1.0
        covariance = moments.covariance
        self.center_ = float(moments.mean[0])
        self.score_variance_ = float(covariance[0, 0])
        self._check_spread(covariance, self.center_)
        self.noise_variance_ = float(noise_variance(covariance, self.replicas) if variance is None else variance)
        function = self._lambda(variance)
        value = float(function(moments.mean, covariance))
        self.lambda_ = value if self.shape == "free" else self._usable(value, "")
        self.standard_error_ = moments.standard_error(function)

    def _check_spread(self, covariance: Array, center: float) -> None:
        if covariance[0, 0] <= 1e-18 * center**2:
            raise UncurseError(f"the served scores are constant at {center:g}; a pool must hold scores that differ")

    def _usable(self, value: float, where: str) -> float:
        if value > 0 and (self.lambda_floor is None or value >= self.lambda_floor):
            return value
        message = (
            f"λ = {value:.3g}{where}: replicas differ by more (V = {self.noise_variance_:.3g}) than the served scores "
            f"vary (Var = {self.score_variance_:.3g})"
        )
        if self.lambda_floor is None:
            raise UncurseError(f"{message}; train on more data, or pass lambda_floor=0.0 to predict the mean")
        if value > 0:
            message = f"λ = {value:.3g}{where} is below the floor"
        warnings.warn(f"{message}; using lambda_floor={self.lambda_floor:g}", UserWarning, stacklevel=4)
        return self.lambda_floor

    def _fit_calibrator(self, labelled: LabelledScores | None, variance: float | None) -> ScoreMap:
        if variance is not None:
            raise UncurseError("a tandem needs replicas on pool and labelled rows; leave variance out")
        if labelled is None:
            raise UncurseError(f"calibrator={self.calibrator!r} needs labelled=(scores, labels) in fit")
        if isinstance(labelled, Evidence):
            self._reader.check(labelled, "VAD")
            if labelled.cells is None or labelled.cells.label is None:
                raise UncurseError("the labelled evidence holds no labels; collect it with its label column")
            labelled = labelled.moments, labelled.cells
        if isinstance(labelled[0], Moments) and isinstance(labelled[1], Cells):
            moments, cells = labelled[0], labelled[1]
            if moments.link != self.link:
                raise UncurseError(
                    f"the labelled moments are of the {moments.link} link; this VAD has link={self.link!r}"
                )
        else:
            scores, labels, *rest = labelled
            array = np.asarray(scores)
            if array.ndim != 2:
                raise UncurseError(
                    f"labelled scores have shape {array.shape}; a tandem needs every replica there too, shape (m, S)"
                )
            weights = rest[0] if rest else None
            moments = self._reader.moments(array, check_weights(weights, len(array)))
            cells = Cells().update(self._reader.served(array[:, 0]), labels, sample_weight=weights)
        self._check_columns(moments, None)
        function = self._lambda(None)
        pool_lambda, pool_error = self.lambda_, self.standard_error_
        labelled_lambda = float(function(moments.mean, moments.covariance))
        if labelled_lambda <= 0:
            raise UncurseError(
                f"λ = {labelled_lambda:.3g} on the labelled rows: replicas differ more than scores vary there"
            )
        self._warn_if_selected(moments)
        # Calibration has undone the noise of the labelled rows already; only the ratio is left to do.
        self._labelled_lambda, self._labelled_center = labelled_lambda, float(moments.mean[0])
        self.lambda_ = pool_lambda / labelled_lambda
        error = np.hypot(pool_error, self.lambda_ * moments.standard_error(function)) / labelled_lambda
        self.standard_error_ = float(error)
        return calibrators.fit_calibrator(str(self.calibrator), cells, **self.calibrator_options)

    # ------------------------------------------------------------------ groups

    def _fit_groups(self, evidence: Pool, step: ScoreMap | None, variance: float | None) -> dict[str, ScoreMap]:
        """A map per group: its own λ and centre, pulled towards what groups share."""
        function = self._lambda(variance)
        whole, parts = evidence.moments, evidence.groups.values()
        covariance = whole.covariance
        whole_lambda = float(function(whole.mean, covariance))
        weight = np.array([part.moments.weight for part in parts])
        spread = np.array([part.moments.covariance[0, 0] for part in parts])
        known = (np.array([part.moments.rows for part in parts]) > 2) & (spread > 0)
        own = [float(function(part.moments.mean, part.moments.covariance)) for part in parts]
        others = max(1, whole.n_replicas - (2 if self.replicas == "bootstrap" else 1))
        pulled = group_lambdas(
            np.array(own),
            spread,
            weight,
            known,
            whole_lambda,
            others=0 if variance is not None else others,
            served_in_noise=self.replicas == "seeds",
        )
        ratio = 1 / self._labelled_lambda
        self.group_lambda_ = {
            name: self._usable(float(value * ratio), f" in group {name!r}")
            for name, value in zip(evidence.groups, pulled, strict=True)
        }
        own = [part.center(None if self.recentre else step, self.link) for part in parts]
        center_error = np.sqrt(np.maximum(spread, covariance[0, 0]) / weight)
        pulled = pull_towards(self.center_, np.array(own), center_error)
        self.group_center_ = dict(zip(evidence.groups, pulled.tolist(), strict=True))
        noise = np.where(known, (1 - np.array(list(self.group_lambda_.values()))) * spread, self.noise_variance_)
        return {
            name: self._map(self.group_lambda_[name], self.group_center_[name], float(v), step)
            for name, v in zip(evidence.groups, noise, strict=True)
        }

    # ------------------------------------------------------------------ maps

    def _map(self, slope: float, center: float, noise: float, step: ScoreMap | None) -> ScoreMap:
        steps: list[ScoreMap] = [Affine(1.0, self._offset)] if self._offset else []
        if step is not None and self.recentre:
            # To the labelled score that means the same: both are shrunk to the truth, each about its own mean.
            away = self._labelled_center
            start = away + ((1 - slope * self._labelled_lambda) * center - away) / self._labelled_lambda
            return compose(*steps, Affine(slope, start, self.link), step, scale=self.scale)
        if step is not None:
            steps.append(step)
        if self.curvature:
            steps.append(curved(slope, center, noise, self.link))
        else:
            steps.append(Affine(slope, (1 - slope) * center, self.link))
        return compose(*steps, scale=self.scale)


__all__ = ["REPLICAS", "VAD", "curved", "noise_variance"]
