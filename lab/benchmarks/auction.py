"""Speed of the auction simulator, and its tables on real prices.

    python -m lab.benchmarks.auction                    # candidate scores a second
    python -m lab.benchmarks.auction --data FOLDER      # the tables of docs/results/auction.md, from the iPinYou files

A second counts from the first to the last auction of `simulate`: all candidates are scored, all default policies and
the truth bid, and the accounts are settled. The fits of the policies are not among the auctions and are timed apart.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path

from uncurse_lab import render
from uncurse_lab.auction import DEFAULT, Auctions, Landscape, Market, Settings, simulate
from uncurse_lab.auction.replay import fit_on_log, read_log, replay
from uncurse_lab.auction.results import cell

LEAST_SCORES = 20e6  # a second, with 100 candidates and all default policies
CAMPAIGNS = (1458, 2259, 2261, 2821, 2997, 3358, 3386, 3427, 3476)


def timed(auctions: int) -> tuple[float, float]:
    """Return seconds of wall time and of processor time from the first to the last auction."""
    marks: list[tuple[float, float]] = []

    def mark(_: int) -> None:
        marks.append((time.perf_counter(), time.process_time()))

    # Progress is reported when a chunk is settled. The first chunk warms up, and its end starts the clock.
    first = 1 << 17
    simulate(Market(), Settings(auctions=auctions + first, repetitions=1, history=100_000), progress=mark)
    return marks[-1][0] - marks[0][0], marks[-1][1] - marks[0][1]


def speed(rounds: int) -> None:
    auctions, candidates = 1_000_000, Market().candidates
    policies = len(DEFAULT) + 1
    print(f"{auctions:,} auctions of {candidates} candidates, {policies} policies, load {os.getloadavg()[0]:.1f}")
    wall, processor = min((timed(auctions) for _ in range(rounds)), key=lambda pair: pair[0])
    rate = auctions * candidates / wall
    print(f"  {rate / 1e6:,.1f} million candidate scores a second of wall time")
    print(f"  {auctions * candidates / processor / 1e6:,.1f} million a second of the time of one core")
    print(f"  at least {LEAST_SCORES / 1e6:g} million scores a second: {'met' if rate >= LEAST_SCORES else 'MISSED'}")


# ---------------------------------------------------------------------------- real prices


def campaigns(folder: Path, labels: str) -> Iterator[tuple[str, ...]]:
    """Simulate a market with the prices of each campaign."""
    policies = ("as served", "multiplier", "platt", "auto")
    yield ("campaign", "mean price", "won", *(f"{p}: overcharge" for p in policies), "auto removes", "spend", "auto",
           "surplus", "auto")  # fmt: skip
    for name in CAMPAIGNS:
        landscape = Landscape.from_file(folder / f"rlbdp_info_{name}.json")
        found = simulate(Market(landscape=landscape), Settings(labels=labels), policies=policies)
        price = float(landscape.expected_price([landscape.prices[-1]])[0])
        won = found.mean("as served", "won")[0]
        removed, error = found.removed("auto")
        yield (
            str(name), f"{price:.1f}", f"{100 * won:.0f}%",
            *(cell(found, policy, "overcharge_share") for policy in policies),
            f"{100 * removed:.1f}% ({100 * error:.1f})",
            *(cell(found, policy, figure) for figure in ("spend", "surplus") for policy in ("as served", "auto")),
        )  # fmt: skip


def logs(folder: Path) -> None:
    """Replay the auctions of two campaigns."""
    train, test = (read_log(folder / f"rtbarbitrage_1458.{part}.txt.gz", "0", "1", "2") for part in ("train", "test"))
    other = read_log(folder / "rlbdp_2997_test_theta.txt.gz", "0", "1", "2")
    halves = [Auctions(other.scores[i::2], other.clicks[i::2], other.prices[i::2]) for i in (0, 1)]
    print(f"\n{sum(len(log.clicks) for log in (train, test, other)):,} auctions in all")
    cases = {
        "1458, calibrators fitted to the training log, replay of the test log": (train, test),
        "1458, calibrators fitted to the test log, replay of the training log": (test, train),
        "2997, calibrators fitted to one half, replay of the other": (halves[0], halves[1]),
        "2997, the same with the halves exchanged": (halves[1], halves[0]),
    }
    for title, (fitted, replayed) in cases.items():
        for price in ("second", "first"):
            print(f"\n**{title}, {price} price**\n")
            print(render.markdown(replay(replayed, fit_on_log(fitted), price=price).parts()))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.auction", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--data", type=Path, help="folder of the iPinYou files: print the tables of docs/results/auction.md"
    )
    arguments = parser.parse_args()
    if arguments.data is None:
        speed(arguments.rounds)
    else:
        for labels in ("won", "earlier"):
            rows = list(campaigns(arguments.data, labels))
            print(render.markdown([render.TextTable(f"labels: {labels}", rows)]), flush=True)
        logs(arguments.data)


if __name__ == "__main__":
    main()
