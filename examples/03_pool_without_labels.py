"""
A pool without labels: from replica scores to a served map
==========================================================

Two networks are trained alike with different seeds. Both score a sample of the candidates. No labels are needed. The
result is a small JSON file, which is all that serving needs.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)

# %%
# What a system would have: logits of the served model (column 0) and of its twin on a sample of the pool.
truth = rng.normal(-3.0, 0.8, 200_000)
pool = (truth[:, None] + rng.normal(0.0, 0.4, (200_000, 2))).astype(np.float32)

vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
print(f"λ = {vad.lambda_:.3f} ± {vad.standard_error_:.3f}: the share of the scores' variance that is not noise")

# %%
# New candidates arrive; the best are kept. Here, and only here, the truth is known.
truth = rng.normal(-3.0, 0.8, 200_000)
served = truth + rng.normal(0.0, 0.4, 200_000)
clicks = rng.random(200_000) < logistic(truth)
predictions = {"as served": logistic(served), "after the map": vad.predict_proba(served)}
for name, predicted in predictions.items():
    print(f"{name}\n{uncurse.evaluate(clicks, predicted, alphas=[0.01, 0.05])}\n")

# %%
# Reliability of the selected candidates: observed against predicted rate in bins of equal count.
display = uncurse.SelectedReliabilityDisplay.from_predictions(clicks, predictions, alphas=0.05)
display.ax_.set_title("The top 5%: points below the line are over-predicted")
plt.show()

# %%
# Save the map, and load it where the scores are served.
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "map.json")
    vad.fitted_.save(path)
    print(f"map.json has {path.stat().st_size:,} bytes")
    again = uncurse.load(path)(served)
print("the same predictions:", bool((again == vad.predict_proba(served)).all()))
