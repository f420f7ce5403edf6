"""
How good is the best of many prompts?
=====================================

We try ten prompts on 100 questions and keep the one with the most right answers. Part of its lead is luck: on new
questions it does worse. ``uncurse.winner`` estimates how good it really is. Here we repeat this 200 times with
simulated answers, so that we know the truth.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse

PROMPTS, QUESTIONS, TIMES = 10, 100, 200
rng = np.random.default_rng(0)

# %%
# One time: a question is easy or hard for all prompts, and the prompts differ a little.


def answers():
    """Return the right answers (questions × prompts), and the true share of each prompt."""
    skill = rng.normal(0.0, 0.15, PROMPTS)
    difficulty = rng.normal(-0.8, 1.0, (100_000, 1))
    chance = 1 / (1 + np.exp(difficulty - skill))
    rows = rng.choice(len(chance), QUESTIONS)
    return rng.random((QUESTIONS, PROMPTS)) < chance[rows], chance.mean(axis=0)


right, truth = answers()
best = uncurse.winner(right)
low, high = best.interval(0.9)
print(f"prompt {best.index}: observed {best.observed:.1%}, estimate {best.estimate:.1%} (90%: {low:.1%} to {high:.1%})")
print(f"truth {truth[best.index]:.1%}")

# %%
# Many times: the error of the observed share, and of the estimate.
observed, estimated = [], []
for _ in range(TIMES):
    right, truth = answers()
    best = uncurse.winner(right)
    observed.append(100 * (best.observed - truth[best.index]))
    estimated.append(100 * (best.estimate - truth[best.index]))

figure, ax = plt.subplots()
bins = np.linspace(-10, 15, 26)
ax.hist(observed, bins, alpha=0.6, label="observed")
ax.hist(estimated, bins, alpha=0.6, label="estimate")
ax.axvline(0, color="gray", lw=1)
ax.set(xlabel="value of the best prompt minus the truth, points", ylabel="repetitions")
ax.set_title(f"Best of {PROMPTS}: {np.mean(observed):+z.1f} → {np.mean(estimated):+z.1f} points")
ax.legend()
plt.show()
print(f"mean error: observed {np.mean(observed):+.1f} points, estimate {np.mean(estimated):+.1f} points")

# %%
# The estimate is slightly too low in this simulation, and far nearer to the truth than the observed share.
# ``python -m benchmarks.winners`` compares it with other methods on real answers of a language model.
