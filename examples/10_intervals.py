"""
How to read an interval
=======================

``interval(alpha)`` estimates how much calibration error is left after the correction. This example fits the same
correction to new rows and new labels again and again, and compares each interval with the true error. About nine of ten
90% intervals should contain it.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

ALPHA = 0.05
TIMES = 20


def scored(rng, mean, rows):
    """Return true logits, and the logits of two models."""
    truth = rng.normal(mean, 0.8, rows)
    return truth, truth[:, None] + rng.normal(0, 0.4, (rows, 2))


found = []
for seed in range(TIMES):
    rng = np.random.default_rng(seed)
    truth, labeled = scored(rng, -2.0, 20_000)
    clicks = rng.random(len(truth)) < logistic(truth)
    _, pool = scored(rng, -2.5, 20_000)
    method = uncurse.ReplicaCalibrator(scale="logit", replicas="seeds")
    method.fit(pool, labeled=(labeled, clicks), labels_from="elsewhere")
    truth, candidates = scored(rng, -2.5, 200_000)
    top = uncurse.top_share(candidates[:, 0], ALPHA)
    error = method.predict_proba(candidates[top, 0]).sum() / logistic(truth[top]).sum() - 1
    found.append((error, *method.interval(ALPHA)))
errors, low, high = 100 * np.array(found).T
held = (low <= errors) & (errors <= high)
print(f"{held.sum()} of {TIMES} intervals contain the true error")

# %%
figure, ax = plt.subplots()
for i in range(TIMES):
    color = "C1" if held[i] else "C0"
    ax.plot([i, i], [low[i], high[i]], lw=3, alpha=0.5, color=color, solid_capstyle="butt")
ax.plot(range(TIMES), errors, "ko", ms=4, label="true error")
ax.axhline(0, color="gray", lw=1)
ax.set(xticks=[], xlabel="fit", ylabel="predicted / true − 1 on the top 5%, %")
ax.set_title(f"{held.sum()} of {TIMES} contain the error")
ax.legend()
plt.show()

# %%
# An interval includes the noise of labels, replicas and candidates. It leaves out an error that appears after the fit,
# such as a drift, and a difference between labeled rows and candidates that no replica shows. Measure with recent
# labels.
