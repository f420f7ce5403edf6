"""
The winner's curse and its correction, in fifteen lines
=======================================================

Two models are trained alike. Their scores are right on average, but noisy. We select the candidates with the best
scores: part of what put them on top was luck, so their predictions are too high. Where the two models disagree, at
least one of them is wrong. That is enough to correct the first one, without labels. The labels here only show that it
works.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse

rng = np.random.default_rng(0)
truth = rng.normal(-3, 0.8, 400_000)  # true log odds of a click
scores = truth[:, None] + rng.normal(0, 0.4, (400_000, 2))  # of the served model, and of its replica
clicks = rng.random(400_000) < 1 / (1 + np.exp(-truth))
pool, served, clicks = scores[:200_000], scores[200_000:, 0], clicks[200_000:]

vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
predictions = {"as served": 1 / (1 + np.exp(-served)), "corrected": vad.predict_proba(served)}

display = uncurse.SelectionErrorDisplay.from_predictions(clicks, predictions, ax=plt.subplots()[1])
before, after = (e.rows[0].calibration_error for e in display.evaluations.values())
display.ax_.set_title(f"Top 1%: {before:+z.0%} → {after:+z.0%}")
plt.show()

# %%
# The title has the calibration error of the top 1%: predicted clicks divided by observed clicks, minus 1. The bands are
# 95% intervals; their width is the noise of the clicks. The correction moves each score towards the mean, and keeps the
# share λ of its distance.
print(f"λ = {vad.lambda_:.3f}")
for share, one in zip(("1%", "2%", "5%"), display.evaluations["corrected"].rows, strict=False):
    print(f"top {share}: {one.calibration_error:+.1%}")
