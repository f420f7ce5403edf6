"""Models × shifts × splits on a table with labels: the wrapper beside what scikit-learn's users do."""

from .experiment import MODELS, SHIFTS, run
from .results import Grid
from .table import Table, read_table

__all__ = ["MODELS", "SHIFTS", "Grid", "Table", "read_table", "run"]
