"""
The best of many A/B tests
==========================

Each test has four variants, and the one with the highest click rate is shipped. Its observed rate is too high on
average: of four noisy rates, the highest is more often lucky than good. ``uncurse.winner`` corrects the winner of each
test, and learns from all tests how much variants differ.
"""

import matplotlib.pyplot as plt
import numpy as np

import uncurse

rng = np.random.default_rng(0)
tests, visitors = 400, 3_000
rate = rng.uniform(0.02, 0.06, (tests, 1)) * np.exp(0.1 * rng.normal(size=(tests, 4)))  # true click rates
observed = rng.binomial(visitors, rate) / visitors
error = np.sqrt(observed * (1 - observed) / visitors)

winners = uncurse.winner(observed.ravel(), standard_error=error.ravel(), groups=np.repeat(np.arange(tests), 4))
truth = np.array([rate.ravel()[best.index] for best in winners])
before, after = (np.array([getattr(best, name) for best in winners]) for name in ("observed", "estimate"))
errors = [(values / truth).mean() - 1 for values in (before, after)]
print(f"mean error of the winners: observed {errors[0]:+.1%}, corrected {errors[1]:+.1%}")

# %%
# Winners are above the diagonal before the correction, and around it afterwards.
figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharex=True, sharey=True)
for ax, values, name in zip(axes, (before, after), ("observed", "corrected"), strict=True):
    ax.scatter(truth, values, s=8)
    ax.axline((0.04, 0.04), slope=1, color="black", lw=1)
    ax.set(xlabel="true click rate of the winner", ylabel="click rate", title=name)
plt.show()

# %%
# Each winner has an interval for its true value and a probability to be the best variant of its test.
low, high = np.array([best.interval(0.9) for best in winners]).T
print(f"90% intervals that hold the true rate: {np.mean((low <= truth) & (truth <= high)):.0%}")
print(f"winners that are the best variant: expected {np.mean([best.probability_best for best in winners]):.0%}, "
      f"true {np.mean(truth == rate.max(1)):.0%}")  # fmt: skip
