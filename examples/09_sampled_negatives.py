"""
A model trained on sampled negatives
====================================

Clicks are rare, so a model is often trained on all clicks and a tenth of the other rows. Its scores are then too high
by a factor in the odds. ``negative_sampling_rate`` removes the factor, and the map corrects for the selection. One map
does both; it takes the scores as they are served.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

RATE = 0.1
rng = np.random.default_rng(0)


def draw(rows):
    """Return clicks, and the logits of two models that were trained with a tenth of the negatives."""
    truth = rng.normal(-4, 0.9, rows)
    return rng.random(rows) < logistic(truth), truth[:, None] - np.log(RATE) + rng.normal(0, 0.4, (rows, 2))


_, pool = draw(200_000)
vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True, negative_sampling_rate=RATE).fit(pool)

# %%
# New candidates with their clicks.
clicks, scores = draw(400_000)
served = scores[:, 0]
predictions = {
    "as served": logistic(served),
    "corrected for the sampling": logistic(served + np.log(RATE)),
    "corrected for the selection too": vad.predict_proba(served),
}
alphas = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5]
top2 = {
    name: uncurse.evaluate(clicks, predicted, alphas=[0.02]).rows[0].calibration_error
    for name, predicted in predictions.items()
}
for name, error in top2.items():
    print(f"{name:32} top 2%: {error:+.1%} (standard error {error.standard_error:.1%})")

# %%
# The first error is far outside of this figure.
before, _, after = top2.values()
del predictions["as served"]
figure, ax = plt.subplots()
uncurse.SelectionErrorDisplay.from_predictions(clicks, predictions, alphas=alphas, ax=ax)
ax.set_title(f"Top 2%: {before:+z.0%} → {after:+z.0%}")
plt.show()
