"""
A PyTorch network: train two replicas side by side
==================================================

A second network shows the noise of the first. Both are trained in the same steps, each with its own seed and order of
rows, so the second costs little on a GPU. This needs PyTorch: ``pip install 'uncurse[deep]'``.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)
effects = rng.normal(0, 0.12, 60)


def draw(rows):
    """Return features, clicks, and the true probability of a click."""
    x = rng.standard_normal((rows, 60), dtype=np.float32)
    p = logistic(x @ effects + 0.4 * np.tanh(x[:, 0] * x[:, 1]) - 2.5)
    return x, (rng.random(rows) < p).astype(np.float32), p


def network():
    """Return an untrained network with one logit per row."""
    return nn.Sequential(nn.Linear(60, 32), nn.ReLU(), nn.Linear(32, 1))


x, clicks, _ = draw(20_000)
pool, _, _ = draw(50_000)
candidates, clicked, truth = draw(100_000)

# %%
# The first replica is the one to serve.
fit = uncurse.deep.train_replicas(network, (x, clicks), n_replicas=2, epochs=4, optimizer="adam", learning_rate=2e-3)
vad = uncurse.VAD(scale="logit", replicas="seeds").fit(fit.logits((pool,)))
print(f"λ = {vad.lambda_:.3f}: the share of the scores' variance that is not noise")

# %%
# ``fit.module(0)`` is a plain ``nn.Module``.
with torch.no_grad():
    served = fit.module(0)(torch.from_numpy(candidates))[:, 0].numpy()
for alpha in (0.02, 0.1):
    best = uncurse.top_share(served, alpha)
    before, after = logistic(served[best]).mean(), vad.predict_proba(served[best]).mean()
    true = truth[best].mean()
    print(f"top {alpha:.0%}: true {true:.3f}, as served {before / true - 1:+.1%}, corrected {after / true - 1:+.1%}")

# %%
predictions = {"as served": logistic(served), "corrected": vad.predict_proba(served)}
figure, ax = plt.subplots()
uncurse.SelectionErrorDisplay.from_predictions(clicked, predictions, ax=ax)
ax.set_title(f"Top 10%: {before / true - 1:+z.0%} → {after / true - 1:+z.0%}")
plt.show()
