"""
Correct a classifier: UncursedClassifierCV and CalibratedClassifierCV
=====================================================================

A gradient-boosting model is trained on 20,000 labeled rows of a click log. Then it ranks candidates that an earlier
system has not chosen, so they differ from the labeled rows. We select the best of them. The log is simulated, so we
know their true click rate.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier

from uncurse import UncursedClassifierCV

rng = np.random.default_rng(0)
EFFECTS = rng.normal(0, 0.5, (6, 40))  # of 6 categorical features with 40 values each


def make_rows(count, popularity):
    """Return features and true click rates; a small `popularity` makes values with a high rate rarer."""
    columns = []
    for effects in EFFECTS:
        weight = np.exp(popularity * effects)
        columns.append(rng.choice(len(effects), count, p=weight / weight.sum()))
    X = np.column_stack(columns)
    log_odds = EFFECTS[np.arange(len(EFFECTS)), X].sum(axis=1) - 2
    return X, 1 / (1 + np.exp(-log_odds))


X, rate = make_rows(20_000, popularity=0.4)
y = rng.random(len(X)) < rate
pool, _ = make_rows(10_000, popularity=-0.4)  # a sample of the candidates, without labels
candidates, truth = make_rows(100_000, popularity=-0.4)

# %%
# All wrappers take the same estimator. The random state is fixed: otherwise each wrapper would correct another model
# than the one that selects. ``UncursedClassifierCV`` also fits replicas on bootstraps of the rows, and takes the sample
# of the candidates.
model = HistGradientBoostingClassifier(learning_rate=0.3, max_iter=50, early_stopping=False, random_state=0)
uncursed = UncursedClassifierCV(model, random_state=0).fit(X, y, pool=pool)
platt = CalibratedClassifierCV(model, method="sigmoid", ensemble=False).fit(X, y)
isotonic = CalibratedClassifierCV(model, method="isotonic", ensemble=False).fit(X, y)
print(f"{uncursed.method_}: {uncursed.reason_}")

# %%
# ``UncursedClassifierCV`` keeps the ranking. All four are compared on the candidates that the model ranks highest.
predictions = {
    "as served": uncursed.estimator_.predict_proba(candidates)[:, 1],
    "UncursedClassifierCV": uncursed.predict_proba(candidates)[:, 1],
    "isotonic": isotonic.predict_proba(candidates)[:, 1],
    "sigmoid (Platt)": platt.predict_proba(candidates)[:, 1],
}
order = np.argsort(-predictions["as served"], kind="stable")


def errors(predicted, shares):
    """Return predicted / true - 1 on the top shares, in percent."""
    tops = [order[: round(share * len(order))] for share in shares]
    return [100 * (predicted[top].sum() / truth[top].sum() - 1) for top in tops]


shares = np.geomspace(0.005, 0.2, 25)
figure, ax = plt.subplots()
for name, predicted in predictions.items():
    ax.plot(100 * shares, errors(predicted, shares), label=name)
ax.axhline(0, color="gray", lw=1)
ax.set(xscale="log", xlabel="selected share, %", ylabel="predicted / true − 1, %")
ax.set(xticks=[0.5, 1, 2, 5, 10, 20], xticklabels=["0.5", "1", "2", "5", "10", "20"])
before, after = (errors(predictions[name], [0.05])[0] for name in ("as served", "UncursedClassifierCV"))
ax.set_title(f"Top 5%: {before:+z.0f}% → {after:+z.0f}%")
ax.legend(loc="center", ncols=2)
plt.show()

# %%
for name, predicted in predictions.items():
    shown = zip((1, 5, 10), errors(predicted, (0.01, 0.05, 0.1)), strict=True)
    print(f"{name:21}" + "".join(f"  top {share}%: {error:+.1f}%" for share, error in shown))
low, high = uncursed.interval(0.05)
print(f"90% interval for the remaining error on the top 5%: {100 * low:+.1f}% to {100 * high:+.1f}%")

# %%
# This is one draw. ``python -m benchmarks.readme`` repeats it with ten seeds, and also for candidates that look like
# the labeled rows. There, calibration alone is enough.
