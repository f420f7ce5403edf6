"""
Segments with different noise
=============================

A model is precise on large sites and noisy on small ones, so one correction for all fits none of them. With
``segments``, each site gets a map of its own. Segments with few rows borrow from the overall correction. The ranking is
kept within a segment.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)
NOISE = {"news": 0.2, "sport": 0.4, "travel": 0.6, "hobby": 0.8}
SHARES = [0.5, 0.3, 0.15, 0.05]


def draw(rows):
    """Return the site of each row, true logits, and the logits of two models."""
    site = rng.choice(list(NOISE), rows, p=SHARES)
    noise = np.array([NOISE[name] for name in site])
    truth = rng.normal(-2.5, 0.8, rows)
    return site, truth, truth[:, None] + noise[:, None] * rng.standard_normal((rows, 2))


site, _, pool = draw(200_000)
one = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
segmented = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool, segments=site)
print(f"one λ for all: {one.lambda_:.2f}")

# %%
# New candidates: in each site the best 5% are selected.
site, truth, scores = draw(400_000)
served = scores[:, 0]
predictions = {
    "as served": logistic(served),
    "one map": one.predict_proba(served),
    "a map per segment": segmented.predict_proba(served, segments=site),
}
errors = {name: [] for name in predictions}
for segment in NOISE:
    rows = np.flatnonzero(site == segment)
    top = rows[uncurse.top_share(served[rows], 0.05)]
    for name, predicted in predictions.items():
        errors[name].append(100 * (predicted[top].sum() / logistic(truth[top]).sum() - 1))
    print(f"{segment:7}" + "".join(f"  {name}: {values[-1]:+6.1f}%" for name, values in errors.items()))

# %%
figure, ax = plt.subplots()
positions = np.arange(len(NOISE))
for i, (name, values) in enumerate(errors.items()):
    ax.bar(positions + 0.27 * i, values, width=0.25, label=name)
ax.axhline(0, color="gray", lw=1)
ax.set(xticks=positions + 0.27, xticklabels=list(NOISE), ylabel="predicted / true − 1, %")
ax.set_title(f"Hobby sites: {errors['as served'][-1]:+z.0f}% → {errors['a map per segment'][-1]:+z.0f}%")
ax.legend()
plt.show()
