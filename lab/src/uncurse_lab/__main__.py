"""``python -m uncurse_lab`` is the command `uncurse-lab`."""

from .cli import main

main()
