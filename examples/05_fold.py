"""Fold a map into a LightGBM model: the same model, the same order, true predictions. Needs lightgbm."""

import lightgbm
import numpy as np

import uncurse

rng = np.random.default_rng(0)


def rows(count):
    x = rng.normal(size=(count, 12))
    p = 1 / (1 + np.exp(2.5 - x[:, 0] - 0.5 * x[:, 1] * x[:, 2]))
    return x, p, rng.random(count) < p


x, _, clicks = rows(20_000)
candidates, true, _ = rows(50_000)

# Two models on bootstraps of the rows, around the one that is served: what differs between them is noise.
options = {"objective": "binary", "num_leaves": 63, "learning_rate": 0.1, "verbosity": -1, "num_threads": 1}


def train(index):
    return lightgbm.train(options, lightgbm.Dataset(x[index], clicks[index]), 60)


everything = np.arange(len(x))
served, *others = (train(i) for i in (everything, *(rng.choice(everything, len(x)) for _ in range(2))))
pool = np.stack([model.predict(candidates, raw_score=True) for model in (served, *others)], axis=1)

vad = uncurse.VAD(replicas="bootstrap").fit(pool)
folded = uncurse.fold(vad.map_, served)

before, after = served.predict(candidates), folded.predict(candidates)
top = np.argsort(-before)[: len(before) // 50]
print(f"λ = {vad.lambda_:.3f}")
errors = [p[top].mean() / true[top].mean() - 1 for p in (before, after)]
print(f"top 2%: {errors[0]:+.1%} before, {errors[1]:+.1%} after")
print("the same order:", bool((np.diff(after[np.argsort(before)]) >= -1e-12).all()))
print("largest difference to the map after the model:", np.abs(after - vad.predict_proba(pool[:, 0])).max())
