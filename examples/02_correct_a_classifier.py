"""
A classifier: UncursedClassifierCV beside CalibratedClassifierCV
================================================================

A LightGBM model is trained on 20,000 labeled rows of a click log and then ranks many candidates. The candidates
differ from the labeled rows, and the best of them are selected. The log is simulated, so the true click rate of the
selected candidates is known.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV

from uncurse import UncursedClassifierCV

warnings.filterwarnings("ignore", "X does not have valid feature names")  # LightGBM names the columns of arrays
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
# Both wrappers take the same estimator. ``CalibratedClassifierCV`` calibrates it on the labeled rows.
# ``UncursedClassifierCV`` also fits replicas on bootstraps of the rows, and takes a sample of the candidates.
model = LGBMClassifier(n_estimators=50, learning_rate=0.3, num_leaves=31, n_jobs=1, verbose=-1)
calibrated = CalibratedClassifierCV(model, method="isotonic", ensemble=False).fit(X, y)
uncursed = UncursedClassifierCV(model, random_state=0).fit(X, y, pool=pool)
print(f"{uncursed.method_}: {uncursed.reason_}")

# %%
# ``UncursedClassifierCV`` keeps the order of the candidates, and so does isotonic calibration up to ties. All three are
# compared on the candidates that the model ranks highest.
predictions = {
    "as served": uncursed.estimator_.predict_proba(candidates)[:, 1],
    "CalibratedClassifierCV": calibrated.predict_proba(candidates)[:, 1],
    "UncursedClassifierCV": uncursed.predict_proba(candidates)[:, 1],
}
order = np.argsort(-predictions["as served"], kind="stable")
shares = np.geomspace(0.005, 0.2, 25)
figure, ax = plt.subplots()
for name, predicted in predictions.items():
    tops = [order[: round(share * len(order))] for share in shares]
    ax.plot(100 * shares, [100 * (predicted[top].sum() / truth[top].sum() - 1) for top in tops], label=name)
ax.axhline(0, color="gray", lw=1)
ax.set(xscale="log", xlabel="selected share, %", ylabel="predicted / true − 1, %")
ax.set(xticks=[0.5, 1, 2, 5, 10, 20], xticklabels=["0.5", "1", "2", "5", "10", "20"])
ax.set_title("Error of the predicted clicks of the selected candidates")
ax.legend()
plt.show()

# %%
for share in (0.01, 0.05, 0.1):
    top = order[: round(share * len(order))]
    errors = (f"{name} {100 * (p[top].sum() / truth[top].sum() - 1):+.1f}%" for name, p in predictions.items())
    print(f"top {100 * share:g}%: {', '.join(errors)}")
low, high = uncursed.interval(0.05)
print(f"90% interval for the error that remains on the top 5%: {100 * low:+.1f}% to {100 * high:+.1f}%")

# %%
# Here the interval does not hold the true error, which is printed above it. It counts the noise of labels, replicas and
# pool. It does not know that the candidates are another mixture of feature values than the training rows, so that the
# same score means another rate. Measure with recent labels.
