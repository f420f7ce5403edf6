"""With labels: Tower, and a method chosen from the evidence.

Labelled rows are not what the pool is: they are what an earlier system liked. Noise differs from row to row.
"""

import numpy as np

import uncurse
from uncurse.links import logistic

rng = np.random.default_rng(0)


def scored(mean: float, spread: float, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """True logits, and the logits of three models trained alike, too steep and too low as models can be."""
    truth = rng.normal(mean, spread, rows)
    noise = rng.uniform(0.1, 0.8, (rows, 1)) * rng.standard_normal((rows, 3))
    return truth, 1.25 * (truth[:, None] + noise) - 0.3


truth, labelled = scored(-2.0, 0.6, 200_000)
clicks = rng.random(len(truth)) < logistic(truth)
_, pool = scored(-2.6, 0.8, 200_000)

tower = uncurse.Tower().fit(pool, labelled=(labelled, clicks))
auto = uncurse.Auto().fit(pool, labelled=(labelled, clicks))
print(auto)

# New candidates arrive. Here, and only here, the truth is known.
truth, fresh = scored(-2.6, 0.8, 200_000)
served = fresh[:, 0]
maps = {
    "as served": logistic,
    "platt": uncurse.calibrate("platt", labelled[:, 0], clicks),
    "platt + VAD": uncurse.VAD(calibrator="platt").fit(pool, labelled=(labelled, clicks)).map_,
    "tower": tower.map_,
    "auto": auto.map_,
}
for alpha in (0.01, 0.05):
    top = uncurse.top_share(served, alpha)
    true = logistic(truth[top]).sum()
    print(f"\ntop {alpha:.0%}: error against the true probability")
    for name, score_map in maps.items():
        print(f"  {name:12} {100 * (score_map(served[top]).sum() / true - 1):+6.1f}%")
    low, high = tower.interval(alpha)
    print(f"  tower says   {100 * low:+.1f}% to {100 * high:+.1f}%, with 90%")
