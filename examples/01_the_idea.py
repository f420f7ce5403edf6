"""
The winner's curse and its correction, in fifteen lines
=======================================================

Two models are trained alike. Their scores are right on average, but noisy. The candidates with the best scores are
selected: they were lucky, so they are over-predicted. What the two models disagree about is noise, and this is enough
to correct the served one. No label is used for the correction; the labels here only show that it works.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse

rng = np.random.default_rng(0)
truth = rng.normal(-3, 0.8, 400_000)  # true log odds of a click
scores = truth[:, None] + rng.normal(0, 0.4, (400_000, 2))  # of the served model, and of a second one
clicks = rng.random(400_000) < 1 / (1 + np.exp(-truth))
pool, served, clicks = scores[:200_000], scores[200_000:, 0], clicks[200_000:]

vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
predictions = {"as served": 1 / (1 + np.exp(-served)), "uncurse": vad.predict_proba(served)}

display = uncurse.SelectionErrorDisplay.from_predictions(clicks, predictions)
display.ax_.set_title("Error of the predicted click rate of the selected candidates")
plt.show()

# %%
# The band is a 95% interval from the noise of the clicks. The method keeps a share λ of the difference of a score
# from the mean: the share of the scores' variance that is not noise.
print(f"λ = {vad.lambda_:.3f} ± {vad.standard_error_:.3f}")
print(uncurse.evaluate(clicks, predictions["uncurse"], alphas=[0.01, 0.05]))
