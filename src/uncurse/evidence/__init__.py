"""What one pass over the data leaves behind: `Moments` of replica scores and `Cells` of served scores.

Both update, merge and serialise, so chunks, files and engines all end in the same small object; `Evidence` holds
both for a log, and is a file.
"""

from .cells import EXACT_ROWS, GRID, TAIL, Cells, grid_steps, step_edges, top_cut
from .evidence import Evidence, merged
from .moments import Moments
from .replica_counts import Joint

__all__ = [
    "EXACT_ROWS",
    "GRID",
    "TAIL",
    "Cells",
    "Evidence",
    "Joint",
    "Moments",
    "grid_steps",
    "merged",
    "step_edges",
    "top_cut",
]
