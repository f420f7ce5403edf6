"""JSON documents with a kind, a schema version and an optional checksum; files are replaced atomically.

`PlainData` is the base of all objects that are part of a document, and `Document` of those that are one.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import socket
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

from .errors import UncurseError

#: The version that is written, and the only one that is read.
SCHEMA_VERSION = 2
_DEEPEST = 50  # nested brackets; our own documents have fewer than ten
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)  # strings are skipped


def dumps(kind: str, content: Mapping[str, Any], checksum: bool = False) -> str:
    """Write a JSON document of plain data with finite numbers; `checksum` adds the CRC-32 that `loads` verifies.

    >>> dumps("affine", {"slope": 1.0}, checksum=True)
    '{"kind": "affine", "schema_version": 2, "checksum": "d61f672f", "slope": 1.0}'
    """
    head = {"kind": kind, "schema_version": SCHEMA_VERSION}
    try:
        if checksum:
            # Read back first: JSON turns keys into text, which changes their order.
            head["checksum"] = _crc(json.loads(json.dumps(content, allow_nan=False)))
        return json.dumps({**head, **content}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UncurseError(f"cannot write this {kind} as JSON: {error}; pass plain, finite data") from None


def _nested_deeper(text: str, limit: int) -> bool:
    """Return whether brackets are nested deeper; the parser would exhaust the stack if the recursion limit is high."""
    if text.count("[") + text.count("{") <= limit:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text):
        mark = found[0]
        depth += (mark in "[{") - (mark in "]}")
        if depth > limit:
            return True
    return False


def loads(text: str, *, source: str = "document") -> dict[str, Any]:
    """Parse a document written by `dumps` into kind, schema version and content; errors name the `source`."""
    if not isinstance(text, str):
        raise UncurseError(f"{source} is of type {type(text).__name__}; pass the text of a JSON document")
    if _nested_deeper(text, _DEEPEST):
        raise UncurseError(f"{source} is nested too deeply to be an uncurse document; write it again")
    try:
        content = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_float=_finite, parse_constant=_no_constant
        )
    except ValueError as error:
        raise UncurseError(f"{source} is not valid JSON ({error}); is it truncated? Write it again") from None
    if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
        raise UncurseError(f"{source} is JSON but not an uncurse document; it has no 'kind'")
    version = content.get("schema_version")
    if type(version) is not int or version != SCHEMA_VERSION:
        raise UncurseError(
            f"{source} has schema_version {version!r} and this release reads {SCHEMA_VERSION}; upgrade or fit again"
        )
    checksum = content.pop("checksum", None)
    body = {key: value for key, value in content.items() if key not in ("kind", "schema_version")}
    if checksum is not None and checksum != _crc(body):
        raise UncurseError(f"{source} does not match its checksum, so it was damaged or edited; write it again")
    return content


def _crc(content: Any) -> str:
    """Compute the CRC-32 of the canonical JSON (sorted keys, no spaces) as 8 hexadecimal digits."""
    return f"{zlib.crc32(json.dumps(content, sort_keys=True, separators=(',', ':')).encode()):08x}"


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} occurs twice")
    return content


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:20]} is too large")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a JSON document from a file, as `loads` does."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UncurseError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UncurseError(f"{path} is not a text file; pass a JSON document written by uncurse") from None
    except (TypeError, ValueError) as error:
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
    """Open a temporary file in a hidden folder next to the target; sync it and rename it onto the target on success.

    A symbolic link is kept and its target is replaced. An existing file keeps its mode. A pipe or a device is written
    to directly.
    """
    path = os.fspath(path)
    if os.path.exists(path) and not os.path.isfile(path):
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        yield Path(path)  # not its real path: that of /dev/stdout may be "pipe:[1]"
        return
    target = Path(os.path.realpath(path))
    with temporary_folder(target.parent) as folder:
        temporary = folder / f"file{''.join(target.suffixes[-2:])[-16:]}"
        temporary.touch()
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        if target.exists():
            temporary.chmod(target.stat().st_mode & 0o777)
        temporary.replace(target)


@contextmanager
def temporary_folder(parent: str | os.PathLike[str]) -> Iterator[Path]:
    """Create a hidden folder in `parent` for files that will be renamed into place, and remove it at the end.

    Its name holds this host and process. Folders that a killed process of this host left in `parent` are removed.
    """
    host = _host()
    _remove_abandoned(Path(parent), host)
    folder = Path(tempfile.mkdtemp(prefix=f".uncurse-{host}-{os.getpid()}-", dir=parent))
    _temporary.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        _temporary.discard(folder)


_temporary: set[Path] = set()


@contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Hold an exclusive lock while a file is read, changed and written, so that no change of another process is lost.

    The lock is on a file next to it, whose name ends in ".lock". It ends with the process, also if that is killed.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        raise UncurseError(f"cannot lock {path}: this system has no fcntl; write to another file") from None
    name = f"{os.path.realpath(path)}.lock"
    try:
        stream = open(name, "a")  # noqa: SIM115  closed below
    except OSError as error:
        raise UncurseError(f"cannot lock {path}: {error.strerror}") from None
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def remove_temporaries() -> None:
    """Remove the hidden folders of this process, before it ends without running its ``finally`` blocks."""
    for folder in list(_temporary):
        shutil.rmtree(folder, ignore_errors=True)


def _host() -> str:
    """Name the space in which process numbers are unique: the host and, on Linux, its process namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # containers may share the name of their host
    except OSError:
        namespace = ""
    return re.sub(r"\W", "", socket.gethostname()[:32] + namespace, flags=re.ASCII)


def _remove_abandoned(parent: Path, host: str) -> None:
    if os.name != "posix":  # elsewhere signal 0 may stop a process
        return
    pattern = re.compile(rf"\.uncurse-{host}-([1-9][0-9]{{0,8}})-\w+", re.ASCII)
    try:
        with os.scandir(parent) as entries:
            found = [(entry.path, match) for entry in entries if (match := pattern.fullmatch(entry.name))]
    except OSError:  # a folder may be written to and not listed
        return
    for path, match in found:
        try:
            os.kill(int(match[1]), 0)
        except ProcessLookupError:
            shutil.rmtree(path, ignore_errors=True)
        except OSError:  # it runs, as another user
            continue


@contextmanager
def reading(kind: str) -> Iterator[None]:
    """Turn errors caused by missing or malformed fields of a kind of document into `UncurseError`."""
    try:
        yield
    except UncurseError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as error:
        raise UncurseError(f"this is not a complete {kind} document ({error}); write it again") from None


class PlainData(ABC):
    """Base of objects that have one form as plain data, which JSON can hold."""

    _kind: ClassVar[str]  # in documents and messages

    @abstractmethod
    def _to_dict(self) -> dict[str, Any]:
        """Return plain data."""

    @classmethod
    @abstractmethod
    def _from_dict(cls, content: Mapping[str, Any]) -> Self:
        """Check plain data and rebuild the object; errors as in `reading`."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data.

        Returns
        -------
        dict
        """
        return self._to_dict()

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
        with reading(cls._kind):
            return cls._from_dict(content)


class Document(PlainData):
    """Base of objects that are a JSON file of their own."""

    _wanted: ClassVar[str]  # what to pass instead of another document

    def to_json(self) -> str:
        """Return the content of a file that `load` reads.

        Returns
        -------
        str
        """
        return dumps(self._kind, self.to_dict(), checksum=True)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one JSON file, atomically.

        Parameters
        ----------
        path : str or path-like
            Target.
        """
        write(path, self.to_json() + "\n")

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
