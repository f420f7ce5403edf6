"""
With labels: let Auto choose the method
=======================================

Labels show what replicas cannot: an error that all of them share. Here the models are too steep and too low, and their
noise differs from row to row. The labeled rows are not like the candidates: an earlier system selected them.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)


def scored(mean, spread, rows):
    """Return true logits, and the logits of three models that are trained alike."""
    truth = rng.normal(mean, spread, rows)
    noise = rng.uniform(0.1, 0.8, (rows, 1)) * rng.standard_normal((rows, 3))
    return truth, 1.25 * (truth[:, None] + noise) - 0.3


truth, labeled = scored(-2.0, 0.6, 200_000)
clicks = rng.random(len(truth)) < logistic(truth)
_, pool = scored(-2.6, 0.8, 200_000)

# %%
# ``Auto`` weighs the correction without labels against ``ReplicaCalibrator``, which uses them, and explains its choice.
auto = uncurse.Auto(scale="logit", replicas="seeds")
auto.fit(pool, labeled=(labeled, clicks), labels_from="elsewhere")
print(auto)

# %%
# New candidates arrive. Only this simulation knows the truth.
truth, fresh = scored(-2.6, 0.8, 200_000)
served = fresh[:, 0]
tandem = uncurse.VAD(scale="logit", replicas="seeds", calibrator="platt")
maps = {
    "as served": logistic,
    "Platt scaling": uncurse.calibrate("platt", labeled[:, 0], clicks),
    "VAD, no labels": uncurse.VAD(scale="logit", replicas="seeds").fit(pool).map_,
    "Platt and VAD": tandem.fit(pool, labeled=(labeled, clicks)).map_,
    "Auto": auto.map_,
}
alphas = (0.01, 0.05)
errors = {name: [] for name in maps}
for alpha in alphas:
    top = uncurse.top_share(served, alpha)
    for name, score_map in maps.items():
        errors[name].append(100 * (score_map(served[top]).sum() / logistic(truth[top]).sum() - 1))
for name, values in errors.items():
    print(f"{name:15}" + "".join(f"   top {alpha:.0%}: {e:+6.1f}%" for alpha, e in zip(alphas, values, strict=True)))
low, high = auto.interval(0.05)
print(f"\n90% interval for the remaining error on the top 5%: {100 * low:+.1f}% to {100 * high:+.1f}%")

# %%
figure, ax = plt.subplots()
positions = np.arange(len(maps))
for i, alpha in enumerate(alphas):
    ax.barh(positions + 0.4 * i, [e[i] for e in errors.values()], height=0.36, label=f"top {alpha:.0%}")
ax.axvline(0, color="gray", lw=1)
ax.set(yticks=positions + 0.2, yticklabels=list(maps), xlabel="predicted / true − 1, %")
ax.invert_yaxis()
ax.set_title(f"Top 1%: {errors['as served'][0]:+z.0f}% → {errors['Auto'][0]:+z.0f}%")
ax.legend()
plt.show()
