"""Details of the calibrators: ends of the smoothed isotonic curve, and signs of the score in temperature scaling."""

import numpy as np
import pytest

from uncurse import UncurseError, calibrate


@pytest.mark.parametrize(
    ("last", "right"),
    [(0.8, (np.log(4) - np.log(1.5)) / 2), (0.999, 1.0)],  # never steeper than the score itself
)
def test_smooth_isotonic_continues_with_the_slopes_of_its_first_and_last_piece(last, right):
    score = np.repeat([0.0, 3.0, 5.0], 1_000)
    label = np.concatenate([np.arange(1_000) < 1_000 * rate for rate in (0.5, 0.6, last)])
    curve = calibrate("smooth-isotonic", score, label)
    np.testing.assert_allclose([curve.left, curve.right], [np.log(1.5) / 3, right], rtol=1e-9)


@pytest.mark.parametrize("scores", [(-0.5, 0.5), (-0.5, 0.0, 0.0, 0.5), (-5.0, -0.5, 0.0, 0.0)])
def test_temperature_takes_the_sign_of_small_scores_and_ignores_zeros(scores):
    scores = np.array(scores)
    zeros = np.cumsum(scores == 0) % 2  # both labels at 0
    predicted = np.where(scores == 0, zeros, scores > 0)
    contradicted = np.where(scores == 0, zeros, scores < 0)
    with pytest.raises(UncurseError, match="the sign of the score predicts every label"):
        calibrate("temperature", scores, predicted)
    with pytest.raises(UncurseError, match="every label contradicts its score"):
        calibrate("temperature", scores, contradicted)


def test_smooth_isotonic_pools_levels_whose_scores_are_equal_up_to_rounding():
    scores = np.repeat([-1.0, 0.0, 1e-12, 1.0], [100, 100, 300, 100])
    rates = [0.1, 0.2, 0.4, 0.9]
    labels = np.concatenate([np.arange(n) < n * rate for n, rate in zip((100, 100, 300, 100), rates, strict=True)])
    fitted = calibrate("smooth-isotonic", scores, labels, scale="logit")
    np.testing.assert_allclose(fitted(np.array([-1.0, 0.0, 1.0])), [0.1, 0.35, 0.9], rtol=1e-6)
