"""The monitor of a valid map raises an alarm in at most 5% of the years, however often it is asked."""

import datetime

import numpy as np
import pytest
from scipy.special import expit

from uncurse import Affine, monitor
from uncurse.evidence import from_arrays

LOGITS = np.linspace(-4, 0, 200)
ALARM = "alarm"


def alarmed(rng, error=0.0, looks=26):
    """Return whether a year of looks every other week ends in an alarm; the odds of labels are too low by `error`."""
    state, day = None, datetime.date(2026, 1, 1)
    for _ in range(looks):
        labels = rng.random(len(LOGITS)) < expit(LOGITS - np.log1p(error))
        verdict = monitor(Affine(1.0, 0.0), from_arrays(LOGITS[:, None], labels), state, day=day.isoformat())
        state, day = verdict.state, day + datetime.timedelta(weeks=2)
        if verdict.decision == ALARM:
            return True
    return False


@pytest.mark.theory
def test_a_valid_map_raises_an_alarm_in_at_most_5_percent_of_the_years():
    years = 120
    alarms = sum(alarmed(np.random.default_rng(seed)) for seed in range(years))
    assert alarms / years <= 0.05 + 2 * np.sqrt(0.05 * 0.95 / years)


def test_an_error_of_the_odds_raises_an_alarm():
    assert alarmed(np.random.default_rng(0), error=0.5)
