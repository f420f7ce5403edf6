"""Statistics from one pass over the data: `Moments` and `Histogram`, combined in `Evidence`."""

from .evidence import Evidence, merged
from .from_arrays import from_arrays
from .histogram import Histogram, ReplicaTable
from .moments import Moments
from .spec import LogSpec, TopK

__all__ = ["Evidence", "Histogram", "LogSpec", "Moments", "ReplicaTable", "TopK", "from_arrays", "merged"]
