"""`RefreshRecord`: what a refresh changed, as typed data that ``map.json`` carries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TopChange:
    """Change of the mean prediction on the top share of the labelled rows of a refresh.

    Parameters
    ----------
    alpha : float
        Selected share of the rows.
    change : float
        Relative change; +0.05 means that predictions are now 5% higher.
    standard_error : float
        Standard error of the mean prediction after the change, relative to it.

    Examples
    --------
    >>> TopChange(0.02, 0.05, 0.01).change
    0.05
    """

    alpha: float
    change: float
    standard_error: float


@dataclass(frozen=True)
class RefreshRecord:
    """What a refresh changed.

    Parameters
    ----------
    number : int
        1 for the first refresh of a map.
    rows : int
        Number of labelled rows.
    positives : float
        Number of positive labels among them, in effective rows if rows have weights.
    sources : tuple of str
        Files that were read.
    supported : {"nothing", "level", "slope", "curve"}
        Largest part of the change that the labels support.
    reason : str
        The same in words.
    changed : bool
        Whether the map differs from the one before.
    center : float
        Log odds of the previous predictions at which `level` is measured.
    level, slope, curve : float
        Change of the log odds at the center, relative change of their slope, and the largest change on the top 10% that
        is neither.
    level_error, slope_error : float
        Standard errors of level and slope after the change, if both have drifted.
    uncertainty : tuple of float
        What is left for the next refresh: variance of the level, covariance, variance of the slope. The probability of
        no drift counts in it.
    probabilities : tuple of float
        Probability that the level has changed, the slope too, and the curve too.
    changes : tuple of TopChange
        Changes of the predictions on the top.
    command : str
        Command line that wrote the map.

    Examples
    --------
    >>> RefreshRecord(1, 500, 40.0, (), "nothing", "too few labels", False, -2.0).level
    0.0
    """

    number: int
    rows: int
    positives: float
    sources: tuple[str, ...]
    supported: str
    reason: str
    changed: bool
    center: float
    level: float = 0.0
    slope: float = 0.0
    curve: float = 0.0
    level_error: float = 0.0
    slope_error: float = 0.0
    uncertainty: tuple[float, ...] = ()
    probabilities: tuple[float, ...] = ()
    changes: tuple[TopChange, ...] = ()
    command: str = ""
