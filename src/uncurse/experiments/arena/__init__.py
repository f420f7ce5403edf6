"""The arena: worlds with a known truth, in which all methods of the library meet.

    uncurse arena --quick                                     # or, from Python:
    arena = run(["unequal-noise"], ["vanilla", "Tower"], replications=20)

A world is one function from a random generator to a `Draw`, a method one function from a `Draw` to a `FittedMethod`,
or to a text that says why it does not apply. To add one, register it:

>>> from uncurse.links import logistic
>>> @world("tiny", "Two thousand rows.")
... def tiny(rng):
...     return noisy(rng, rate=0.2, rows=2_000, labelled=2_000)
>>> @method("half way")
... def half_way(draw):
...     middle = draw.pool[:, 0].mean()
...     return FittedMethod(lambda scores: logistic((scores[:, 0] + middle) / 2))
>>> arena = run(["tiny"], ["vanilla", "half way"], replications=3, alphas=[0.1], processes=1)
>>> [arena.cell("tiny", name, 0.1).bias > 0 for name in ("vanilla", "half way")]  # which shrinks too much
[True, False]
>>> del WORLDS["tiny"], METHODS["half way"]
"""

from .methods import METHODS, ArenaMethod, FittedMethod, method
from .run import ALPHAS, MAIN, QUICK, REPLICATIONS, run
from .tables import Arena, ArenaCell, Dropped, Verdict, judge
from .worlds import WORLDS, ArenaWorld, Draw, noisy, world

__all__ = [
    "ALPHAS",
    "MAIN",
    "METHODS",
    "QUICK",
    "REPLICATIONS",
    "WORLDS",
    "Arena",
    "ArenaCell",
    "ArenaMethod",
    "ArenaWorld",
    "Draw",
    "Dropped",
    "FittedMethod",
    "Verdict",
    "judge",
    "method",
    "noisy",
    "run",
    "world",
]
