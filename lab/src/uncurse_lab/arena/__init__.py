"""The arena: worlds with a known truth, in which all methods of the library meet.

    uncurse-lab arena --quick                                     # or, from Python:
    print(run(["unequal-noise"], ["vanilla", "labels"], replications=20))

A world is one function from a random generator to a `Draw`, a method one function from a `Draw` to a `FittedMethod`,
or to a text that says why it does not apply. The decorators `world` and `method` add one; docs/results/arena.md has an
example.
"""

from .methods import METHODS, ArenaMethod, FittedMethod, method
from .results import Arena, ArenaCell
from .run import ALPHAS, REPLICATIONS, run
from .worlds import WORLDS, ArenaWorld, Draw, noisy, world

__all__ = [
    "ALPHAS",
    "METHODS",
    "REPLICATIONS",
    "WORLDS",
    "Arena",
    "ArenaCell",
    "ArenaMethod",
    "ArenaWorld",
    "Draw",
    "FittedMethod",
    "method",
    "noisy",
    "run",
    "world",
]
