"""
Fold the correction into a LightGBM model
=========================================

A line is two numbers, and they fit into the leaves of the trees. The folded model is an ordinary LightGBM model with
the same ranking and the same latency.
"""

import lightgbm
import matplotlib.pyplot as plt
import numpy as np

import uncurse

rng = np.random.default_rng(0)


def rows(count):
    """Return features, true click rates and clicks."""
    x = rng.normal(size=(count, 12))
    p = 1 / (1 + np.exp(2.5 - x[:, 0] - 0.5 * x[:, 1] * x[:, 2]))
    return x, p, rng.random(count) < p


x, _, clicks = rows(20_000)
candidates, truth, _ = rows(50_000)

# %%
# Two more models are trained on bootstraps of the rows. Where they differ, it is noise.
options = {"objective": "binary", "num_leaves": 63, "learning_rate": 0.1, "verbosity": -1, "num_threads": 1}


def train(index):
    """Train on the rows of `index`."""
    return lightgbm.train(options, lightgbm.Dataset(x[index], clicks[index]), 60)


everything = np.arange(len(x))
served, *others = (train(i) for i in (everything, *(rng.choice(everything, len(x)) for _ in range(2))))
pool = np.stack([model.predict(candidates, raw_score=True) for model in (served, *others)], axis=1)

vad = uncurse.VAD(scale="logit", replicas="bootstrap").fit(pool)
folded = uncurse.fold(vad.map_, served)

# %%
# The folded model predicts what the map predicts from the scores of the served model, in the same order.
before, after = served.predict(candidates), folded.predict(candidates)
print(f"λ = {vad.lambda_:.3f}")
print("the same ranking:", bool((np.diff(after[np.argsort(before)]) >= -1e-12).all()))
print("largest difference from the map applied to the scores:", np.abs(after - vad.predict_proba(pool[:, 0])).max())

# %%
figure, ax = plt.subplots()
shares = np.geomspace(0.005, 0.5, 25)
order = np.argsort(-before)
for name, predicted in {"served model": before, "folded model": after}.items():
    tops = [order[: round(share * len(order))] for share in shares]
    errors = [100 * (predicted[top].mean() / truth[top].mean() - 1) for top in tops]
    ax.plot(100 * shares, errors, label=name)
ax.axhline(0, color="gray", lw=1)
ax.set(xscale="log", xlabel="selected share, %", ylabel="predicted / true − 1, %")
ax.set(xticks=[0.5, 1, 2, 5, 10, 20, 50], xticklabels=["0.5", "1", "2", "5", "10", "20", "50"])
top = order[: len(order) // 50]
first, second = (p[top].mean() / truth[top].mean() - 1 for p in (before, after))
ax.set_title(f"Top 2%: {first:+z.0%} → {second:+z.0%}")
ax.legend()
plt.show()
print(f"top 2%: {first:+.1%} before, {second:+.1%} after")
