"""What the tests of folding share."""

import numpy as np

from uncurse import Affine, Curve

MAP = Affine(0.8, -0.3)
CURVE = Curve((-1.0, 1.0), (-1.2, 0.7), 0.9, 0.8)


def close(found, wanted, most):
    """To `most`, relative to scores beyond 1."""
    assert np.abs((found - wanted) / np.maximum(1, np.abs(wanted))).max() <= most
