"""
The best of each request, from a parquet log
============================================

An auction selects one candidate of each request, not a share of all of them. We fit the map to all candidates, and
measure the error on the winners. The map is right on them if the candidates of a request are independent draws. If
they share a user, the map also needs labels of winners.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import uncurse
from uncurse.links import logistic
from uncurse.metrics import evaluate_log

rng = np.random.default_rng(0)
folder = tempfile.TemporaryDirectory()
log = Path(folder.name, "log.parquet")

# %%
# A log of 20,000 requests with 30 candidates each: logits of the served model and of its replica, and the clicks.
# Candidates are independent here: their requests have nothing in common.
requests, candidates = 20_000, 30


def draw(common):
    """Return a log; true logits of a request have a common part with this standard deviation."""
    own = np.sqrt(0.7**2 - common**2)
    truth = -3 + np.repeat(rng.normal(0, common, requests), candidates) + rng.normal(0, own, requests * candidates)
    return pl.DataFrame(
        {
            "request": np.repeat(np.arange(requests), candidates),
            "s0": truth + rng.normal(0, 0.4, len(truth)),
            "s1": truth + rng.normal(0, 0.4, len(truth)),
            "click": (rng.random(len(truth)) < logistic(truth)).astype(int),
        }
    )


draw(0.0).write_parquet(log)

# %%
# One pass over all candidates for the map, one over the best of each request for the error.
vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(
    uncurse.collect(log, ["s0", "s1"], scale="logit")
)
ks = (1, 2, 3, 5, 10)
errors = {"as served": [], "corrected": []}
for k in ks:
    selected = uncurse.collect(log, "s0", scale="logit", label="click", top_k=uncurse.TopK("request", k))
    for name, score_map in zip(errors, (None, vad.map_), strict=True):
        errors[name].append(evaluate_log(selected, score_map, [1.0]).rows[0].calibration_error)
for name, values in errors.items():
    print(f"{name:14}" + "".join(f"  top {k}: {100 * float(e):+5.1f}%" for k, e in zip(ks, values, strict=True)))

# %%
figure, ax = plt.subplots()
for name, values in errors.items():
    margin = [196 * e.standard_error for e in values]
    ax.errorbar(range(len(ks)), [100 * float(e) for e in values], yerr=margin, marker="o", capsize=3, label=name)
ax.axhline(0, color="gray", lw=1)
ax.set(
    xticks=range(len(ks)),
    xticklabels=ks,
    xlabel="candidates selected per request, 95% intervals",
    ylabel="predicted / observed − 1, %",
)
before, after = (values[0] for values in errors.values())
ax.set_title(f"Best of 30: {before:+z.0%} → {after:+z.0%}")
ax.legend()
plt.show()
folder.cleanup()

# %%
# Candidates that share a user
# ----------------------------
# Now the true logits of a request have a common part. At the same score, a winner among weak competitors owes more to
# luck than a winner among strong ones. A map of all candidates cannot tell them apart, and is too high on the winners.
# We refresh it with labels of winners.
winner = uncurse.TopK("request", 1)
pool = uncurse.collect(draw(0.6), ["s0", "s1"], scale="logit")
vad = uncurse.VAD(scale="logit", replicas="seeds", curvature=True).fit(pool)
refreshed = uncurse.refresh(vad, uncurse.collect(draw(0.6), "s0", scale="logit", label="click", top_k=winner))
winners = uncurse.collect(draw(0.6), "s0", scale="logit", label="click", top_k=winner)
for name, score_map in (("as served", None), ("map of all candidates", vad.map_), ("refreshed", refreshed.map)):
    error = evaluate_log(winners, score_map, [1.0]).rows[0].calibration_error
    print(f"{name:22} {error:+.1%} (standard error {error.standard_error:.1%})")
