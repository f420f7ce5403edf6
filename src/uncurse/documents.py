"""JSON documents with a kind and a schema version, and files that are replaced atomically.

`PlainData` is the base of all objects that are part of a document, and `Document` of those that are one.
"""

from __future__ import annotations

import atexit
import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, ClassVar, Self, get_args, get_origin, get_type_hints

import numpy as np

from .errors import UncurseError
from .version import __version__

#: The version that is written, and the only one that is read.
SCHEMA_VERSION = 2
_ENDS = 1 << 16  # bytes at either end of a file that identify it


def dumps(kind: str, content: Mapping[str, Any]) -> str:
    """Write a JSON document of plain data with finite numbers."""
    try:
        return json.dumps({"kind": kind, "schema_version": SCHEMA_VERSION, **content}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UncurseError(f"cannot write this {kind} as JSON: {error}; pass plain, finite data") from None


def loads(text: str, *, source: str = "document") -> dict[str, Any]:
    """Parse a document written by `dumps` into kind, schema version and content; errors name the `source`."""
    try:
        content = json.loads(text)
    except ValueError as error:
        raise UncurseError(f"{source} is not valid JSON ({error}); is it truncated? Write it again") from None
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise UncurseError(f"{source} is JSON but not an uncurse document; it has no 'kind'")
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise UncurseError(
            f"{source} has schema_version {version!r}, and uncurse {__version__} reads {SCHEMA_VERSION}; upgrade, or "
            "fit again"
        )
    return content


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON document from a file, as `loads` does."""
    try:
        if os.path.exists(path) and stat.S_ISCHR(os.stat(path).st_mode):  # it may have no end
            raise UncurseError(f"cannot read {path}: it is a device; name a file")
        text = Path(path).read_text(encoding="utf-8")
    except UncurseError:
        raise
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UncurseError(f"{path} is not a text file; pass a JSON document written by uncurse") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise UncurseError(f"cannot read {path!r}: {error}; pass the path of a file") from None
    return loads(text, source=str(path))


def write(path: str | os.PathLike[str], content: str | bytes) -> None:
    """Write text, as UTF-8, or bytes to a file atomically; an existing file is replaced."""
    try:
        with replacing(path) as temporary:
            temporary.write_bytes(content.encode() if isinstance(content, str) else content)
    except OSError as error:
        raise UncurseError(f"cannot write {path}: {error.strerror}") from None
    except (TypeError, ValueError) as error:
        raise UncurseError(f"cannot write {path!r}: {error}; pass the path of a file and text or bytes") from None


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Open a temporary file next to the target; sync it and rename it onto the target on success.

    A symbolic link is kept and its target is replaced. An existing file keeps its mode. A pipe or a device is written
    to directly.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.exists(path) and not os.path.isfile(path):
        yield Path(path)  # not its real path: that of /dev/stdout may be "pipe:[1]"
        return
    target = Path(os.path.realpath(path))
    with temporary_folder(target.parent) as folder:
        temporary = folder / target.name
        temporary.touch()
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)


@contextmanager
def temporary_folder(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a hidden folder in `parent` for files that will be renamed into place, and remove it at the end."""
    folder = Path(parent, f".uncurse-{os.urandom(6).hex()}")
    _temporary.add(folder)  # first, so that an interrupt at any time leaves nothing
    try:
        folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _temporary.discard(folder)


_temporary: set[Path] = set()


@atexit.register
def _remove_temporary() -> None:
    """Remove the folders whose removal was interrupted."""
    for folder in _temporary:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock while a file is read, changed and written, so that no change of another process is lost.

    The lock is on a file next to it, whose name ends in ".lock". It ends with the process, also if that is killed.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        raise UncurseError(f"cannot lock {path}: this system has no fcntl; write to another file") from None
    try:
        stream = open(f"{os.path.realpath(path)}.lock", "a")  # noqa: SIM115  closed below
    except OSError as error:
        raise UncurseError(f"cannot lock {path}: {error.strerror}") from None
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return a digest that identifies the content of a log: of its size, its start and its end.

    The end of a parquet file describes all columns.
    """
    with open(path, "rb") as file:
        ends = file.read(_ENDS)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _ENDS, 0))
        return hashlib.blake2b(b"%d " % size + ends + file.read(), digest_size=8).hexdigest()


def plain(value: Any) -> Any:
    """Return plain data of a value: that of all fields for a dataclass."""
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in value.items()}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return plain(vars(value)) if is_dataclass(value) else value


def from_fields(kind: Any, content: Mapping[str, Any]) -> Any:
    """Rebuild a dataclass from its fields as plain data; those with a default may be missing."""
    hints = _hints(kind)
    return kind(**{name: _rebuilt(hints[name], part) for name, part in content.items()})


def _rebuilt(kind: Any, content: Any) -> Any:
    parts = get_args(kind)
    if NoneType in parts:
        return None if content is None else _rebuilt(parts[0], content)
    if get_origin(kind) is tuple:
        return tuple(_rebuilt(parts[0], part) for part in content)
    if get_origin(kind) is Mapping:
        return {str(name): _rebuilt(parts[1], part) for name, part in content.items()}
    if isinstance(kind, type) and issubclass(kind, PlainData):
        return kind.from_dict(content)
    return from_fields(kind, content) if is_dataclass(kind) else content


_hints = cache(get_type_hints)


class PlainData:
    """Base of objects that have one form as plain data, which JSON can hold: by default that of their fields."""

    _kind: ClassVar[str]  # in documents and messages

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Returns
        -------
        dict
        """
        content: dict[str, Any] = plain(vars(self))
        return content

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild the object; errors caused by missing or malformed fields become `UncurseError`."""
        same: Self = from_fields(cls, content)
        return same

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Rebuild the object from `to_dict`; raise UncurseError where the content is inconsistent.

        Parameters
        ----------
        content : mapping
            Plain data.

        Returns
        -------
        object of this class
        """
        try:
            return cls._from_dict(content)
        except UncurseError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise UncurseError(f"this is not a complete {cls._kind} document ({error}); write it again") from None


class Saved:
    """Base of objects that can be written to a JSON file of their own."""

    _kind: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        raise NotImplementedError

    def to_json(self) -> str:
        """Return the JSON document that `save` writes.

        Returns
        -------
        str
        """
        content = self.to_dict()
        return dumps(content.pop("kind", self._kind), content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file, atomically.

        Parameters
        ----------
        path : str or path-like
            Target.
        """
        write(path, self.to_json() + "\n")


class Document(PlainData, Saved):
    """Base of objects that are read from a JSON file of their own."""

    _wanted: ClassVar[str]  # what to pass instead of another document

    @classmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Self:
        return super()._from_dict({part.name: content[part.name] for part in fields(cls)})  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that `save` wrote.

        Parameters
        ----------
        path : str or path-like
            A JSON file.

        Returns
        -------
        object of this class
        """
        content = read(path)
        if content["kind"] != cls._kind:
            raise UncurseError(f"{path} holds a {content['kind']!r}; pass {cls._wanted}")
        return cls.from_dict(content)
