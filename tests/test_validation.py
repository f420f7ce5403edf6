"""Checks of input, and warnings that point at the caller."""

import warnings

import numpy as np

from uncurse import Moments
from uncurse.validation import warn_user


def test_warnings_point_at_the_file_of_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_user("a message")
        Moments().update(np.linspace(0.1, 0.9, 400).reshape(200, 2))
    assert {warning.filename for warning in caught} == {__file__}
    assert [str(warning.message)[:11] for warning in caught] == ["a message", "every value"]
