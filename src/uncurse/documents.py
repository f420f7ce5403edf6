"""Plain JSON documents with a schema version, written beside and renamed: never half a file."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import UncurseError

#: The version written, and the only one read.
SCHEMA_VERSION = 1


def dumps(kind: str, content: dict[str, Any]) -> str:
    """One JSON document: its kind, the schema version, then the content.

    >>> dumps("affine", {"slope": 1.0})
    '{"kind": "affine", "schema_version": 1, "slope": 1.0}'
    """
    return json.dumps({"kind": kind, "schema_version": SCHEMA_VERSION, **content}, allow_nan=False)


def loads(text: str, *, source: str = "document") -> dict[str, Any]:
    """Parse a document and refuse what is truncated, foreign or of an unknown version."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise UncurseError(f"{source} is not valid JSON ({error}); is it truncated? Write it anew") from None
    if not isinstance(content, dict) or "kind" not in content:
        raise UncurseError(f"{source} is JSON but not an uncurse document; it has no 'kind'")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UncurseError(
            f"{source} has schema_version {version!r} and this release reads {SCHEMA_VERSION}; upgrade or fit again"
        )
    return content


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read one document from a file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UncurseError(f"{path} is not a text file; pass a JSON document written by uncurse") from None
    return loads(text, source=str(path))


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file atomically."""
    try:
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UncurseError(f"cannot write {path}: {error.strerror}") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary file beside the target, synced and renamed onto it at the end: never half a file.

    A link stays and its target is replaced; a file that is there keeps its mode; what is no plain file (a pipe, a
    device) is written to as it is.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield target
        return
    handle, name = tempfile.mkstemp(prefix=".", suffix="".join(target.suffixes[-2:])[-16:], dir=target.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~umask()
        temporary.chmod(mode)  # mkstemp makes it private
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def umask() -> int:
    """The process's mask of file modes."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Turn what a document lacks into our error."""
    try:
        yield
    except UncurseError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise UncurseError(f"this is not a complete {kind} document ({error}); write it anew") from None


__all__ = ["SCHEMA_VERSION", "dumps", "loads", "read", "reading", "replacing", "umask", "write"]
