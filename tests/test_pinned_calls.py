"""Random calls of every public name of the core: no property breaks, and each outcome is the stored one.

The fuzzer draws the calls, valid and invalid ones. An outcome is a refusal with its message, or all numbers of the
result, reduced to one; the last outcome of a call has its warnings. After an intended change run
``python -m tests.test_pinned_calls`` to store new outcomes. To see a call:
``python -m tools.fuzz --seed 0 --only TARGET --call NUMBER``.
"""

import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("polars")
from tools.fuzz import targets  # noqa: F401  registers them
from tools.fuzz.engine import TARGETS, Call, Refused

STORED = Path(__file__).with_name("pinned_calls.json")
#: Polars starts threads and every call takes long: test_fuzz.py runs the command line.
CORE = [name for name in TARGETS if name != "command_line"]
#: Their calls may have random_state=None, so outcomes differ from run to run.
RANDOM = ("estimators.UncursedClassifierCV", "estimators.UncursedRegressorCV")
CALLS = 30  # of each target; slow targets have fewer
OUTCOMES = 12  # of each call
TOLERANCE = 1e-5  # relative, of a result
#: What differs between machines and runs: rounded numbers, places in memory, and the day, which is today by default.
VARIABLE = re.compile(r"\d{4}-\d\d-\d\d|-?\d*\.\d+(e[-+]?\d+)?|-?\d+e[-+]?\d+|0x[0-9a-f]+")
HUGE = 1e12  # larger results are lost digits


def parts(value: Any) -> Iterator[float | str]:
    """Yield the numbers and the text of a result."""
    if isinstance(value, bool | np.bool_ | str | bytes | None):
        yield str(value)
    elif isinstance(value, int | float | np.number):
        yield float(max(-HUGE, min(HUGE, value)))
    elif isinstance(value, np.ndarray):
        yield from (parts(value.tolist()) if value.dtype.kind == "O" else value.ravel().tolist())
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (str(key), *parts(each))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from parts(each)
    elif hasattr(value, "map_") and hasattr(value, "record_"):
        yield from parts([value.map_, value.record_])
    elif hasattr(value, "to_dict") and not isinstance(value, type):
        yield from parts(value.to_dict())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from parts([getattr(value, each.name) for each in dataclasses.fields(value)])
    else:
        yield type(value).__name__


def reduced(value: Any) -> list[float | str]:
    """Return one number for the numbers of a result, and one word for its text.

    A relative change of a number changes the sum as much; one of less than 1e-6 is rounding. Words are sorted: Python
    writes sets of text in any order.
    """
    found = list(islice(parts(value), 2000))
    text = "|".join(
        sorted(word.strip("{},") for x in found if isinstance(x, str) for word in VARIABLE.sub("#", x).split())
    )
    numbers = [float(x) for x in found if not isinstance(x, str)]
    logs = [math.copysign(math.log1p(1e6 * abs(x)), x) if abs(x) < HUGE else 7.0 for x in numbers]
    total = math.fsum((1.5 + math.cos(k)) * x for k, x in enumerate(logs))
    return [float(f"{total:.9g}"), f"{zlib.crc32(text.encode(errors='replace')):x}"]


class Recorder(Call):
    """A call that keeps the outcome of everything that it calls."""

    def __init__(self, seed: list[int], folder: Path) -> None:
        super().__init__(seed, folder)
        self.outcomes: list[Any] = []
        self.refused = False

    def call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            result = super().call(function, *arguments, **options)
        except Refused as error:
            self.outcomes.append(reduced(str(error).replace(str(self.folder), "")))
            raise
        # Sums of very large scores lose digits, so that machines differ.
        self.outcomes.append(reduced(result) if self.moderate else None)
        return result


def outcomes_of(name: str, number: int, folder: Path) -> tuple[list[Any], bool]:
    """Make one call of a target; return the outcomes of what it calls, and whether the last call was refused."""
    recorder = Recorder([0, zlib.crc32(name.encode()), number], folder)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("error")
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", category=RuntimeWarning, module="sklearn")
        try:
            TARGETS[name].function(recorder)
        except Refused:
            recorder.refused = True
    warnings_of_ours = sorted({str(each.message) for each in warned if "sklearn" not in each.filename})
    outcomes = [*recorder.outcomes[:OUTCOMES], reduced(warnings_of_ours) if recorder.moderate else None]
    return outcomes, recorder.refused


def calls_of(name: str) -> range:
    return range(max(5, CALLS // TARGETS[name].every))


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that results and messages depend on."""
    python = ".".join(map(str, sys.version_info[:2]))
    return {"python": python, **{name: version(name) for name in ("numpy", "scipy", "scikit-learn")}}


def same(found: Any, stored: Any) -> bool:
    """Tell whether two outcomes agree, or one of them is not to be compared."""
    if found is None or stored is None:
        return True
    return found[1] == stored[1] and math.isclose(found[0], stored[0], rel_tol=1e-9, abs_tol=TOLERANCE)


@pytest.mark.parametrize("name", CORE)
def test_no_call_breaks_a_property_and_outcomes_are_the_stored_ones(name, tmp_path):
    file = json.loads(STORED.read_text(encoding="utf-8"))
    stored = file["outcomes"].get(name, []) if file["versions"] == versions() else []
    found = [outcomes_of(name, number, tmp_path) for number in calls_of(name)]
    assert not all(refused for _, refused in found), "every call is refused"
    for number, ((new, _), old) in enumerate(zip(found, stored, strict=False)):
        assert len(new) == len(old), f"call {number}"
        for place, pair in enumerate(zip(new, old, strict=True)):
            assert same(*pair), f"call {number}, outcome {place}: now {pair[0]}, stored {pair[1]}"


def all_outcomes() -> dict[str, list[list[Any]]]:
    with tempfile.TemporaryDirectory() as folder:
        return {name: [outcomes_of(name, number, Path(folder))[0] for number in calls_of(name)] for name in CORE}


if __name__ == "__main__":
    made = all_outcomes()
    if sys.argv[1:] != ["print"]:
        # Outcomes that rounding decides are not compared: another processor would have others.
        older = {
            "PYTHONHASHSEED": "1",
            "OPENBLAS_CORETYPE": "Sandybridge",
            "NPY_DISABLE_CPU_FEATURES": "AVX512F AVX512_SKX AVX2 FMA3",
        }
        command = [sys.executable, "-m", "tests.test_pinned_calls", "print"]
        printed = subprocess.run(command, env=os.environ | older, stdout=subprocess.PIPE, check=True).stdout
        for name, others in json.loads(printed).items():
            for outcomes, other in zip(made[name], others, strict=True):
                alike = len(outcomes) == len(other)
                outcomes[:] = [a if alike and same(a, b) else None for a, b in zip(outcomes, other, strict=False)]
        repeatable = {name: outcomes for name, outcomes in made.items() if name not in RANDOM}
        text = json.dumps({"versions": versions(), "outcomes": repeatable}, separators=(",", ":"))
        STORED.write_text(text.replace('],"', '],\n"') + "\n", encoding="utf-8")
    else:
        sys.stdout.write(json.dumps(made))
