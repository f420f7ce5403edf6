"""Ours against the best peer and the physical floor, as ratios, with memory: ``python -m benchmarks``.

`core` holds the contests, `harness` runs them: contestants in turn, round after round, the minimum of each; the
extra memory of each in a process of its own. A bar that is missed is printed as missed.
"""
