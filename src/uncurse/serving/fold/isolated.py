"""Read and fold a model file in a process of its own: the readers of CatBoost and XGBoost crash on damaged files."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from ... import documents
from ...errors import UncurseError
from ...maps import ScoreMap, from_dict

_STARTUP = 60  # seconds
_PER_SECOND = 1 << 20  # bytes that a reader takes at least; the libraries read a hundred times as many


def run_isolated(library: str, source: Path, target: Path | None = None, score_map: ScoreMap | None = None) -> None:
    """Refuse a file on which the reader of its library fails, crashes or hangs; with a target, fold a map into it.

    The file of the family has ``read``, ``fold_model`` and ``write``.
    """
    if find_spec(library) is None:
        raise UncurseError(f"{source} needs {library}; pip install 'uncurse[{library}]'")
    limit = _STARTUP + source.stat().st_size // _PER_SECOND
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__, library, str(source), *([] if target is None else [str(target)])],
            input="" if score_map is None else score_map.to_json(),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
    except subprocess.TimeoutExpired:
        raise UncurseError(f"{library} has not read {source} in {limit} seconds; save the model again") from None
    if done.returncode == 2:
        raise UncurseError(done.stderr.strip().splitlines()[-1])
    if done.returncode:
        raise UncurseError(f"{source} is no whole model: the reader of {library} crashes on it; save it again")


def main(library: str, source: str, target: str | None = None) -> int:
    """Read a model, and fold it if there is a target; 2 if it is refused."""
    module = import_module(f"{__package__}.{library}")
    try:
        model = module.read(Path(source))
        if target is not None:
            folded = module.fold_model(from_dict(documents.loads(sys.stdin.read())), model)
            module.write(folded, Path(source), Path(target))
    except Exception as error:  # each library has its own; a crash is none of them
        message = " ".join(str(error).split())
        if not isinstance(error, UncurseError):
            message = f"{source} is no whole {library} model ({message[:120]}); save it again"
        sys.stderr.write(f"\n{message}\n")
        return 2
    return 0


if __name__ == "__main__":
    # Both readers do without these, which take most of the time that their libraries take to load.
    sys.modules |= dict.fromkeys(("pandas", "sklearn"))  # type: ignore[arg-type]
    sys.exit(main(*sys.argv[1:]))
