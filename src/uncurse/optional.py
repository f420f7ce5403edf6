"""Libraries that are installed with an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import UncurseError

_EXTRAS = {"torch": "deep"}  # libraries whose extra has another name


@contextmanager
def needing(library: str, reason: str = "") -> Iterator[None]:
    """Raise `UncurseError` that names the extra to install if an import fails.

    `reason` says what needs which packages; by default the error names the module that is missing.

    >>> with needing("onnx"):
    ...     import absent_module
    Traceback (most recent call last):
    uncurse.errors.UncurseError: this needs absent_module; pip install 'uncurse[onnx]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(library, library)
        raise UncurseError(f"{reason or f'this needs {error.name}'}; pip install 'uncurse[{extra}]'") from None
