"""The command line: one module per command."""

# The order of these imports is the order of the commands in the help.
# isort: off
from . import demo as demo
from . import collect as collect
from . import fit as fit
from . import apply as apply
from . import evaluate as evaluate
from . import monitor as monitor
from . import refresh as refresh
from . import fold as fold
from . import verify as verify
from . import export as export

# isort: on
from .app import app, main

__all__ = ["app", "main"]
