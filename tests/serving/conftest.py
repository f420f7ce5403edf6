import numpy as np
import pytest
from scipy.special import expit


@pytest.fixture(scope="module")
def world():
    """Features, labels, and rows to score, some of them extreme."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_000, 6))
    X[:, 5] = rng.integers(0, 30, 1_000)
    y = (rng.random(1_000) < expit(X[:, 0] - 0.5)).astype(int)
    extreme = rng.normal(size=(400, 6)) * 10 ** rng.uniform(-3, 6, (400, 1))
    return X, y, np.concatenate([X, extreme, np.zeros((1, 6))])
