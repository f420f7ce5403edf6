"""The arena gate: errors and intervals of four methods in eight worlds are as good as the stored ones.

The stored figures were measured on the second edition with the same random numbers. A change that makes a method
worse fails here; a change that only moves digits does not. ``python lab/tests/test_arena_gate.py`` stores new
figures. Do this only for a change that is meant to change them, and explain it in the commit.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from uncurse_lab import arena

STORED = Path(__file__).with_name("arena.json")
DRAWS = 20
ALPHAS = (0.005, 0.01, 0.02, 0.05, 0.1, 1.0)
WORLDS = (
    "equal-noise-4",
    "unequal-noise",
    "heavy-tails",
    "strong-shift",
    "low-rate",
    "few-labels",
    "own-winners",
    "logistic",
)
METHODS = {"vad": "VAD curved S=3", "free": "monotone S=3", "labels": "labels S=3", "auto": "auto"}


def figures(world: str, processes: int | None = None) -> dict[str, dict[str, float]]:
    """By method: the rms of the errors over all draws and shares, its standard error, and the coverage at 90%."""
    found = arena.run([world], list(METHODS.values()), DRAWS, seed=0, alphas=ALPHAS, processes=processes)
    result = {}
    for name, method in METHODS.items():
        cells = [found.cell(world, method, alpha) for alpha in ALPHAS]
        squares = np.mean([np.square(cell.errors) for cell in cells], axis=0)  # one for each draw
        rms = np.sqrt(squares.mean())
        error = squares.std(ddof=1) / np.sqrt(DRAWS) / (2 * rms)
        coverage = np.mean([cell.coverage for cell in cells])
        result[name] = {"rms": float(rms), "standard_error": float(error), "coverage": float(coverage)}
    return result


@pytest.mark.theory
@pytest.mark.parametrize("world", WORLDS)
def test_methods_are_as_good_as_the_stored_ones(world):
    stored, found = json.loads(STORED.read_text(encoding="utf-8"))[world], figures(world)
    worse = []
    for method, before in stored.items():
        after = found[method]
        # The intervals of one draw hold or fail together, so the draws are counted once. The share is that of an ideal
        # method where all intervals held.
        share = min(before["coverage"], 0.9)
        least = before["coverage"] - 2 * np.sqrt(share * (1 - share) / DRAWS)
        most = max(1.05 * before["rms"], before["rms"] + 2 * before["standard_error"])
        if after["rms"] > most or after["coverage"] < least:
            worse.append((method, before, after))
    assert worse == []


def store() -> None:
    """Measure all figures anew and write them to four significant digits."""
    found = {world: figures(world, processes=1) for world in WORLDS}
    rounded = {
        world: {method: {key: float(f"{x:.4g}") for key, x in values.items()} for method, values in methods.items()}
        for world, methods in found.items()
    }
    lines = [
        f"  {json.dumps(world)}: {{\n"
        + ",\n".join(f"    {json.dumps(method)}: {json.dumps(values)}" for method, values in methods.items())
        + "\n  }"
        for world, methods in rounded.items()
    ]
    STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    store()
