"""Array types used in annotations."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Float = NDArray[np.floating[Any]]
