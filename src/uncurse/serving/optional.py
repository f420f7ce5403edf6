"""Libraries that are installed with an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import UncurseError


@contextmanager
def needing(library: str) -> Iterator[None]:
    """Raise UncurseError that names the extra to install if an import fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        extra = {"torch": "deep"}.get(library, library)
        raise UncurseError(f"this needs {error.name}; pip install 'uncurse[{extra}]'") from None


__all__ = ["needing"]
