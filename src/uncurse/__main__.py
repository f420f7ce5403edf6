"""The program `uncurse`, and `python -m uncurse`. An interrupt ends it without a traceback, also while it starts."""

import os
import signal


def main() -> None:
    """Run the command line of this process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os._exit(128 + number))  # nothing is open yet
    from .cli import main as run  # most of the time until a command starts

    run()


if __name__ == "__main__":
    main()
