"""Statistics from one pass over the data: `Moments`, `Cells` and `ReplicaCounts`, combined in `Evidence`."""

from .cells import Cells
from .evidence import Evidence, merged
from .from_arrays import from_arrays
from .moments import Moments
from .replica_counts import ReplicaCounts
from .spec import LogSpec, TopK

__all__ = [
    "Cells",
    "Evidence",
    "LogSpec",
    "Moments",
    "ReplicaCounts",
    "TopK",
    "from_arrays",
    "merged",
]
