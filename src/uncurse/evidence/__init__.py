"""What one pass over the data leaves behind: `Moments` of replica scores and `Cells` of served scores.

Both update, merge and serialise, so chunks, files and engines all end in the same small object.
"""

from .cells import Cells, grid_steps
from .moments import Array, Moments

__all__ = ["Array", "Cells", "Moments", "grid_steps"]
