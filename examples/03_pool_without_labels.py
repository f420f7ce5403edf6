"""
Without labels: from the scores of two models to a correction
=============================================================

Two networks are trained alike with different seeds. Both score a sample of the candidates. The correction is a small
JSON file, which is all that serving needs.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)

# %%
# What a system would have: logits of the served model (column 0) and of its replica on a sample of the candidates.
truth = rng.normal(-3.0, 0.8, 200_000)
pool = (truth[:, None] + rng.normal(0.0, 0.4, (200_000, 2))).astype(np.float32)

vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
print(f"λ = {vad.lambda_:.3f}: the share of the scores' variance that is not noise")

# %%
# New candidates arrive, and the best are selected. Only this simulation knows the truth.
truth = rng.normal(-3.0, 0.8, 200_000)
served = truth + rng.normal(0.0, 0.4, 200_000)
clicks = rng.random(200_000) < logistic(truth)
predictions = {"as served": logistic(served), "corrected": vad.predict_proba(served)}
evaluations = {name: uncurse.evaluate(clicks, p, alphas=[0.01, 0.05]) for name, p in predictions.items()}
for name, evaluation in evaluations.items():
    first, second = (row.calibration_error for row in evaluation.rows)
    print(f"{name:10} top 1%: {first:+.1%}  top 5%: {second:+.1%}")

# %%
# Reliability of the selected candidates: observed against predicted rate in bins of equal count. Points below the
# dashed line are over-predicted.
figure, ax = plt.subplots()
uncurse.SelectedReliabilityDisplay.from_predictions(clicks, predictions, alphas=0.05, ax=ax)
before, after = (evaluation.rows[1].calibration_error for evaluation in evaluations.values())
ax.set_title(f"Top 5%: {before:+z.0%} → {after:+z.0%}")
plt.show()

# %%
# Save the map, and load it where the scores are served.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "map.json")
    vad.fitted_.save(path)
    print(f"map.json has {path.stat().st_size:,} bytes")
    again = uncurse.load(path)(served)
print("the same predictions:", bool((again == vad.predict_proba(served)).all()))
