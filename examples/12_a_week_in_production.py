"""
A week in production
====================

We fit a map once and serve it for a week. On the fourth day users click less. The labels show it, the monitor raises an
alarm, and we refresh the map.
"""

# %%
# Seven days of a log
# -------------------
# A request has fifty candidates. Three models score each of them, and the best by the first model is shown. From the
# fourth day on clicks are a fifth rarer.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

import uncurse
from uncurse.report import monitor_page

rng = np.random.default_rng(0)
DAYS = [f"2026-11-{day:02}" for day in range(9, 16)]


def candidates(requests):
    """Return true log odds and the scores of three models, shape (requests, 50) and (requests, 50, 3)."""
    truth = rng.normal(-4, 1, (requests, 50))
    return truth, truth[..., None] + rng.normal(0, 0.4, (requests, 50, 3))


def shown(requests, clicks_lost=0.0):
    """Return the log of what was shown: scores of the best candidate of each request, and clicks."""
    truth, scores = candidates(requests)
    best = scores[:, :, 0].argmax(axis=1)
    rows = np.arange(requests)
    rate = (1 - clicks_lost) / (1 + np.exp(-truth[rows, best]))
    log = pl.DataFrame({f"s{i}": scores[rows, best, i] for i in range(3)})
    return log.with_columns(click=rng.random(requests) < rate), rate


# %%
# Fit
# ---
# The day before, a sample of all candidates is scored by the three models. Labels are those of what was shown then.

columns = ["s0", "s1", "s2"]
pool = uncurse.collect(pl.DataFrame(candidates(4_000)[1].reshape(-1, 3), schema=columns), columns, scale="logit")
log, _ = shown(30_000)
labeled = uncurse.collect(log, columns, scale="logit", label="click")
auto = uncurse.Auto(scale="logit", replicas="seeds").fit(pool, labeled=labeled, labels_from="winners")
print(auto)

# %%
# Monitor every day, refresh after an alarm
# -----------------------------------------
# The state adds up what is seen. If the map is right, the chance of ever raising a false alarm is at most 5%, no matter
# how often we look. After the alarm the model and the candidates are the same, and users click less. So we refresh the
# map with labels from after the jump. A new fit with the labels of the day before, or without labels, would leave the
# error. A refreshed map is another map, so it gets a new state.

served, state, errors = auto.fitted_, None, []
for number, day in enumerate(DAYS, start=1):
    log, rate = shown(30_000, clicks_lost=0.2 if number >= 4 else 0.0)
    today = uncurse.collect(log, "s0", scale="logit", label="click")
    verdict = uncurse.monitor(served, today, state, day=day)
    scores = log["s0"].to_numpy()
    errors.append(
        [100 * (m(scores).sum() / rate.sum() - 1) for m in (lambda s: 1 / (1 + np.exp(-s)), auto.map_, served.map)]
    )
    print(f"{day}  {verdict.decision}: {verdict.reason}")
    state = verdict.state
    if verdict.decision == "alarm":
        served, state = uncurse.refresh(served, today), None
        change = served.record.refreshes[-1]
        print(f"            refreshed up to its {change.supported}")

# %%
# Error against the true rates
# ----------------------------
# The true rates are known here. The map fitted once is right for three days; the refreshed map is right again on the
# day after the alarm.

plt.axhline(0, color="gray", lw=1)
for i, name in ((0, "as served"), (2, "monitored and refreshed"), (1, "fitted once")):
    plt.plot(range(1, 8), np.array(errors)[:, i], marker="o", label=name)
plt.xlabel("day")
plt.ylabel("predicted / true − 1, %")
plt.title(f"Day 7: {errors[-1][1]:+z.0f}% → {errors[-1][2]:+z.0f}%")
plt.legend()
plt.show()

# %%
# A page to show
# --------------
# The verdict on the refreshed map, its daily errors and the e-value as one offline file. On the command line:
# ``uncurse monitor ... --report monitor.html``.

with tempfile.TemporaryDirectory() as folder:
    page = monitor_page(verdict, "the refreshed map")
    page.to_html(Path(folder, "monitor.html"))
    print(page.headline)
    print(f"{Path(folder, 'monitor.html').stat().st_size // 1000} kB")
