"""Commands in processes of their own that need not load the packages again, for tests that kill or race them."""

import multiprocessing
import os
import sys

# Polars is missing here on purpose: its threads do not survive a fork.
LOADED = ["uncurse.cli", "uncurse.evidence", "uncurse.maps.program", "uncurse.methods"]
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(LOADED)


def _main(words, folder, output, source):
    from uncurse.cli import main

    os.chdir(folder)
    sys.stdin = open(source)  # noqa: SIM115
    for name, number in ((output, 1), (os.devnull, 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["uncurse", *words]
    main()


def start(words, folder, output=os.devnull, source=os.devnull):
    """Start the command line in a folder; join() waits for it, kill() kills it, and `exitcode` is as in subprocess."""
    process = _context.Process(
        target=_main, args=([str(word) for word in words], str(folder), str(output), str(source))
    )
    process.start()
    return process
