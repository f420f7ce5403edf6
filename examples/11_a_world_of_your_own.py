"""
Research: a simulation and a method of your own
===============================================

The package ``uncurse-lab`` compares methods in simulations, where the truth is known. A simulation ("world") is one
function of a random generator. A method is one function of what a user would have: scores of the candidates, scores
and labels of the labeled rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from uncurse.links import logistic
from uncurse_lab.arena import FittedMethod, method, noisy, run, world


@world("weekend", "Few labels, strong noise.")
def weekend(rng):
    """Draw one replication."""
    return noisy(rng, rate=0.08, noise=0.3, rows=20_000, labeled=5_000)


@method("half way")
def half_way(draw):
    """Move every score half way to the mean of the pool."""
    middle = draw.pool[:, 0].mean()
    return FittedMethod(lambda scores: logistic((scores[:, 0] + middle) / 2))


# %%
# All methods see the same draws.
names = ["vanilla", "half way", "platt", "VAD curved", "auto"]
arena = run(["weekend"], names, replications=5, alphas=[0.02, 0.1], processes=1)

# %%
figure, ax = plt.subplots()
labels = sorted({cell.method for cell in arena.cells}, key=lambda name: -arena.cell("weekend", name, 0.02).rms)
for i, alpha in enumerate((0.02, 0.1)):
    rms = [100 * arena.cell("weekend", name, alpha).rms for name in labels]
    ax.barh(np.arange(len(labels)) + 0.4 * i, rms, height=0.36, label=f"top {alpha:.0%}")
    print(f"top {alpha:.0%}: " + ", ".join(f"{name} {value:.2f}%" for name, value in zip(labels, rms, strict=True)))
ax.set(yticks=np.arange(len(labels)) + 0.2, yticklabels=labels, xlabel="root mean square error, %")
best = arena.cell("weekend", "auto", 0.02).rms
ax.set_title(f"Auto: rms {best:.1%}")
ax.legend()
plt.show()
