"""Saved models: tell the families apart by content, and fold or score a file without running what is in it.

The readers of CatBoost and XGBoost crash on damaged files, so they first read a file in a process of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ... import documents
from ...errors import UncurseError
from ...maps import ScoreMap, from_dict
from ...optional import needing
from .line import calling_library

_KNOWN = "LightGBM text, XGBoost JSON or UBJSON, CatBoost cbm or JSON, ONNX, safetensors, and torch state dicts"
_STARTS = {b"tree\n": "lightgbm", b"tree\r\n": "lightgbm", b"CBM1": "catboost", b"PK\x03\x04": "torch"}
_PICKLES = (b"\x80", b"x\x9c", b"x\x01", b"x\xda", b"\x1f\x8b")  # the last ones are compressed
# The file of this package that knows a kind of model file, if it has another name.
_FAMILIES = {"catboost-json": "catboost", "safetensors": "torch"}
_OPTIONS = {"layer": ("torch", "torch weights"), "output": ("onnx", "an ONNX model")}
_ISOLATED = ("catboost", "xgboost")  # families whose reader crashes on damaged files
_STARTUP = 60  # seconds
_PER_SECOND = 1 << 20  # bytes that a reader takes at least; the libraries read a hundred times as many


@dataclass(frozen=True)
class Scorer:
    """A saved model as a function, for `verify`."""

    score: Callable[[Any], Any]  # to scores (n,), or to the columns 1 − p and p
    space: str
    names: Sequence[str] | None = None  # of the features that it was trained on
    others: Callable[[Any], dict[str, Any]] = lambda _: {}  # further outputs by name
    categories: Sequence[Sequence[Any]] = ()  # of the features that were text, in their order: the place is the code


def family(path: str | os.PathLike[str]) -> str:
    """Return what kind of model a file holds, by its first bytes; pickles are refused."""
    try:
        size = Path(path).stat().st_size
        with Path(path).open("rb") as stream:
            head = stream.read(4_096)
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    kind = next((kind for start, kind in _STARTS.items() if head.startswith(start)), None)
    if kind is not None:
        return kind
    if head.startswith(_PICKLES):
        raise UncurseError(
            f"{path} is a pickle or a compressed one, and reading it would run what is in it; fold the model in Python "
            f"with uncurse.fold, or save it in one of these forms: {_KNOWN}"
        )
    if head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") <= size - 8:
        return "safetensors"
    if head[:1] == b"{":
        is_catboost = b'"learner"' not in head and b'"scale_and_bias"' in Path(path).read_bytes()
        return "catboost-json" if is_catboost else "xgboost"
    if Path(path).suffix == ".onnx" or (len(head) > 1 and head[0] == 0x08):
        return "onnx"
    raise UncurseError(f"{path} is no model that is known; these are: {_KNOWN}")


def fold_file(
    score_map: ScoreMap,
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    layer: str | None = None,
    output: str | None = None,
) -> str:
    """Fold a map into a saved model and save the result; if that fails, nothing is written.

    Parameters
    ----------
    score_map : ScoreMap
        As for `fold`.
    source, target : path
        The model and the folded model, in the same format.
    layer : str, optional
        Name of the last linear layer, for torch weights.
    output : str, optional
        Name of the score, if an ONNX model has several outputs.

    Returns
    -------
    str
        The kind of model.

    Examples
    --------
    >>> import tempfile, torch
    >>> from uncurse import Affine
    >>> folder = Path(tempfile.mkdtemp())
    >>> torch.save(torch.nn.Linear(3, 1).state_dict(), folder / "model.pt")
    >>> fold_file(Affine(0.8, -0.1), folder / "model.pt", folder / "folded.pt")
    'torch'
    """
    kind, path = family(source), Path(source)
    library, options = _library(kind, path, layer=layer, output=output)
    try:
        with documents.replacing(target) as temporary:
            if library in _ISOLATED:
                _run_isolated(library, path, temporary, score_map)
            else:
                _module(library).fold_file(score_map, path, temporary, kind, **options)
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {error.strerror}") from None
    return kind


def load_scorer(path: Path, kind: str, score_map: ScoreMap, output: str | None, space: str | None = None) -> Scorer:
    """Load a saved model as a function to its sum or prediction; `space` is that of the model before the fold.

    Models score with one thread: with more, the times of single rows are those of threads that wait for a core.
    """
    library, options = _library(kind, path, output=output)
    if library == "onnx":
        options["space"] = space
    if library in _ISOLATED:
        _run_isolated(library, path)
    scorer: Scorer = _module(library).load_scorer(path, score_map, **options)
    return scorer


def _library(kind: str, path: Path, **options: str | None) -> tuple[str, dict[str, str | None]]:
    """Return the library of a kind of file, and the options that are set; refuse one of another library."""
    library = _FAMILIES.get(kind, kind)
    given: dict[str, str | None] = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if _OPTIONS[name][0] != library:
            raise UncurseError(f"{name}={value!r} is for {_OPTIONS[name][1]} and {path} is {kind}; leave it out")
    return library, given


def _module(library: str) -> Any:
    with needing(library):
        return import_module(f"{__package__}.{library}")


# ---------------------------------------------------------------------------- in a process of its own


def _run_isolated(library: str, source: Path, target: Path | None = None, score_map: ScoreMap | None = None) -> None:
    """Refuse a file on which the reader of its library fails, crashes or hangs; with a target, fold a map into it."""
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
    """Read a model, and fold it if there is a target; 2 if it is refused. Its family has ``read`` and ``write``."""
    try:
        module = _module(library)
        with calling_library(f"{source} is no whole {library} model"), needing(library):
            model = module.read(Path(source))
            if target is not None:
                folded = module.fold_model(from_dict(documents.loads(sys.stdin.read())), model)
                module.write(folded, Path(source), Path(target))
    except UncurseError as error:
        sys.stderr.write(f"\n{' '.join(str(error).split())}\n")
        return 2
    return 0


if __name__ == "__main__":
    # Both readers do without these, which take most of the time that their libraries take to load.
    sys.modules |= dict.fromkeys(("pandas", "sklearn"))  # type: ignore[arg-type]
    sys.exit(main(*sys.argv[1:]))
