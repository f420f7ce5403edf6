"""What one pass over the data leaves behind: `Moments`, `Cells` and `ReplicaCounts`, together `Evidence`."""

from .cells import Cells
from .evidence import Evidence, merged
from .from_arrays import EvidenceSums, Parts, column_names, from_arrays, labelled_evidence, pool_evidence
from .moments import Moments
from .replica_cells import ReplicaCells, clip_outliers, outlier_fences
from .replica_counts import ReplicaCounts
from .score_grid import EXACT_ROWS, GRID, TAIL, grid_steps, step_edges, top_cut
from .spec import LogSpec, TopK, check_negative_rate

__all__ = [
    "EXACT_ROWS",
    "GRID",
    "TAIL",
    "Cells",
    "Evidence",
    "EvidenceSums",
    "LogSpec",
    "Moments",
    "Parts",
    "ReplicaCells",
    "ReplicaCounts",
    "TopK",
    "check_negative_rate",
    "clip_outliers",
    "column_names",
    "from_arrays",
    "grid_steps",
    "labelled_evidence",
    "merged",
    "outlier_fences",
    "pool_evidence",
    "step_edges",
    "top_cut",
]
