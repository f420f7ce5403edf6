"""A PyTorch network of your own: two replicas trained side by side, and what that tells about the served one.

Needs PyTorch (pip install 'uncurse[deep]'). The world is made here, so the truth is known.
"""

import numpy as np
import torch
from torch import nn

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)
effects = rng.normal(0, 0.12, 60)


def draw(rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = rng.standard_normal((rows, 60), dtype=np.float32)
    p = logistic(x @ effects + 0.4 * np.tanh(x[:, 0] * x[:, 1]) - 2.5)
    return x, (rng.random(rows) < p).astype(np.float32), p


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(60, 32), nn.ReLU(), nn.Linear(32, 1))


x, clicks, _ = draw(20_000)
pool, _, _ = draw(50_000)
candidates, clicked, truth = draw(100_000)

# Two networks, another seed and another order of rows each, in the same steps. The first is the one to serve.
fit = uncurse.deep.train_replicas(network, (x, clicks), n_replicas=2, epochs=4, optimiser="adam", rate=2e-3)
vad = uncurse.VAD().fit(fit.logits((pool,)))
print(f"λ = {vad.lambda_:.3f}: what the scores' spread is worth")

served = fit.module(0)  # a plain nn.Module
with torch.no_grad():
    scores = served(torch.from_numpy(candidates))[:, 0].numpy()
for alpha in (0.02, 0.1):
    best = uncurse.top_share(scores, alpha)
    before, after = logistic(scores[best]).mean(), vad.predict_proba(scores[best]).mean()
    true = truth[best].mean()
    print(
        f"top {alpha:.0%}: true {true:.3f}, as served {before / true - 1:+.1%}, through the map {after / true - 1:+.1%}"
    )
