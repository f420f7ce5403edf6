"""Correct a LightGBM classifier for the candidates that it ranks highest, next to scikit-learn's calibration.

A model is trained on 20,000 labelled rows of a click log and then ranks many candidates. The candidates differ from the
labelled rows, and the best of them are selected. The log is simulated, so the true click rate of the selected
candidates is known. The script writes a figure to 01_correct_a_classifier.svg.
"""

import altair as alt
import numpy as np
import polars as pl
from lightgbm import LGBMClassifier
from sklearn.calibration import CalibratedClassifierCV

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
candidates, truth = make_rows(200_000, popularity=-0.4)

model = LGBMClassifier(n_estimators=150, num_leaves=31, n_jobs=1, verbose=-1)
calibrated = CalibratedClassifierCV(model, method="isotonic", ensemble=False).fit(X, y)
uncursed = UncursedClassifierCV(model, random_state=0).fit(X, y, pool=pool)
print(f"{uncursed.method_}: {uncursed.reason_}")

predictions = {
    "as served": uncursed.estimator_.predict_proba(candidates)[:, 1],
    "CalibratedClassifierCV": calibrated.predict_proba(candidates)[:, 1],
    "UncursedClassifierCV": uncursed.predict_proba(candidates)[:, 1],
}
order = np.argsort(-predictions["as served"], kind="stable")  # the ranking is the same
rows = []
for name, predicted in predictions.items():
    for share in np.geomspace(0.005, 0.2, 25):
        top = order[: round(share * len(order))]
        rows.append({"model": name, "share": share, "error": predicted[top].sum() / truth[top].sum() - 1})
table = pl.DataFrame(rows)

print("\nerror of the predicted clicks of the selected candidates")
for share in (0.01, 0.05, 0.1):
    top = order[: round(share * len(order))]
    errors = (f"{name} {100 * (p[top].sum() / truth[top].sum() - 1):+.1f}%" for name, p in predictions.items())
    print(f"  top {100 * share:g}%: {', '.join(errors)}")
low, high = uncursed.interval(0.05)
print(f"\n90% interval for the error that remains on the top 5%: {100 * low:+.1f}% to {100 * high:+.1f}%")

alt.Chart(table, width=520, height=280, title="Error of the predicted clicks of the selected candidates").mark_line(
    strokeWidth=2.5
).encode(
    x=alt.X(
        "share", scale=alt.Scale(type="log"), axis=alt.Axis(format="%", values=[0.005, 0.01, 0.02, 0.05, 0.1, 0.2])
    ),
    y=alt.Y("error", axis=alt.Axis(format="+%"), title="predicted / true − 1"),
    color=alt.Color("model", sort=list(predictions), title=None),
).save("01_correct_a_classifier.svg")
