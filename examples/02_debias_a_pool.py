"""From replica scores to a served map: the whole job on arrays.

Two networks are trained alike with different seeds; both score a sample of the candidates. No labels are needed.
"""

import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)

# What a system would have: logits of the served model (column 0) and of its twin on a sample of the pool.
truth = rng.normal(-3.0, 0.8, 200_000)
pool = (truth[:, None] + rng.normal(0.0, 0.4, (200_000, 2))).astype(np.float32)

vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
print(f"λ = {vad.lambda_:.3f} ± {vad.standard_error_:.3f}: the share of the scores' variance that is not noise")

# New candidates arrive; the best are kept. Here, and only here, the truth is known.
truth = rng.normal(-3.0, 0.8, 200_000)
served = truth + rng.normal(0.0, 0.4, 200_000)
clicks = rng.random(200_000) < logistic(truth)

print("\nas served")
print(uncurse.evaluate(clicks, logistic(served), alphas=[0.01, 0.05]))
print("\nthrough the map")
print(uncurse.evaluate(clicks, vad.predict_proba(served), alphas=[0.01, 0.05]))

# The map is a small JSON file; serving needs nothing else.
vad.map_.save("map.json")
again = uncurse.load("map.json")(served)
assert (again == vad.predict_proba(served)).all()
