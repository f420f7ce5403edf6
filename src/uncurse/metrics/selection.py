"""Select the top share of all rows, or the top k of each request."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import UncurseError
from ..evidence.from_arrays import best_of_each
from ..validation import check_count, check_length, check_scores, check_share, encode_names


def count_of_share(alpha: float, rows: int) -> int:
    """Return the number of rows in a share, rounded to the nearest integer; a share without a row is an error."""
    count = int(np.floor(check_share(alpha) * rows + 0.5))
    if count == 0:
        raise UncurseError(f"a share of {alpha:g} of {rows} rows selects none; use at least {1 / rows:.2g}")
    return count


def top_share(scores: ArrayLike, alpha: float) -> NDArray[np.bool_]:
    """Select the rows with the highest scores. Of equal scores the earlier rows are selected.

    Parameters
    ----------
    scores : array-like of shape (n,)
        Scores on any scale.
    alpha : float
        Share of the rows to select.

    Returns
    -------
    array of bool of shape (n,)

    Examples
    --------
    >>> top_share([0.1, 0.9, 0.5, 0.5], 0.5)
    array([False,  True,  True, False])
    """
    values = check_scores(scores, "value")
    count = count_of_share(alpha, len(values))
    cut = np.partition(values, len(values) - count)[len(values) - count]
    chosen: NDArray[np.bool_] = values > cut
    tied = np.flatnonzero(values == cut)
    chosen[tied[: count - int(np.count_nonzero(chosen))]] = True
    return chosen


def top_k(scores: ArrayLike, requests: ArrayLike, k: int = 1) -> NDArray[np.bool_]:
    """Select the `k` rows of each request with the highest scores. Of equal scores the earlier rows are selected.

    Parameters
    ----------
    scores, requests : array-like of shape (n,)
        Score, on any scale, and request of each row.
    k : int, default=1
        Number of rows per request.

    Returns
    -------
    array of bool of shape (n,)

    Examples
    --------
    >>> top_k([0.1, 0.9, 0.5, 0.4], ["a", "a", "b", "b"], k=1)
    array([False,  True,  True, False])
    """
    values = check_scores(scores, "value")
    if type(requests) is np.ndarray and requests.dtype.kind in "iu":
        check_length(requests, len(values), "requests")
        names = requests
    else:
        names = encode_names(requests, len(values), "requests")[1]
    return best_of_each(values, names, check_count(k, "k"))
