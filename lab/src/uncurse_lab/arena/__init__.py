"""The arena: worlds with a known truth, in which all methods of the library meet.

    uncurse-lab arena --quick                                     # or, from Python:
    arena = run(["unequal-noise"], ["vanilla", "Tower"], replications=20)

A world is one function from a random generator to a `Draw`, a method one function from a `Draw` to a `FittedMethod`,
or to a text that says why it does not apply. The decorators `world` and `method` add one; docs/results/arena.md has an
example.
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
