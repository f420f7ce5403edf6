"""UBJSON as XGBoost writes it, read within bounds: no length is believed that the bytes do not cover."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ..errors import UncurseError

_NUMBERS = {b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8"}
_MARKERS = {np.dtype(code).newbyteorder("="): marker for marker, code in _NUMBERS.items()}
_DEEPEST = 32


def loads(data: bytes) -> Any:
    """Objects as dict, arrays as list, typed arrays as numpy arrays.

    >>> loads(dumps({"a": [1, "b"], "c": np.array([0.5], np.float32)}))
    {'a': [1, 'b'], 'c': array([0.5], dtype=float32)}
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.place != len(data):
        raise UncurseError(f"this UBJSON file goes on after its end, at byte {reader.place}; save the model again")
    return value


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self.place = 0

    def _take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self.place:
            raise UncurseError(f"this UBJSON file ends at byte {len(self._data)}, too early; save the model again")
        self.place += count
        return self._data[self.place - count : self.place]

    def _number(self, marker: bytes, count: int = 1) -> Any:
        if marker not in _NUMBERS:
            raise UncurseError(f"byte {self.place} of this UBJSON file is {marker!r}, no number; save the model again")
        dtype = np.dtype(_NUMBERS[marker])
        if count > len(self._data):
            count = -1
        return np.frombuffer(self._take(count * dtype.itemsize), dtype).astype(dtype.newbyteorder("="))

    def _length(self) -> int:
        length = self._number(self._take(1))[0]
        if length != int(length) or length < 0:
            raise UncurseError(
                f"a length before byte {self.place} of this UBJSON file is {length}; save the model again"
            )
        return int(length)

    def _text(self) -> str:
        try:
            return self._take(self._length()).decode()
        except UnicodeDecodeError:
            raise UncurseError(
                f"a text before byte {self.place} of this file is no UTF-8; save the model again"
            ) from None

    def value(self, depth: int, marker: bytes | None = None) -> Any:
        if depth > _DEEPEST:
            raise UncurseError(f"this UBJSON file is nested deeper than {_DEEPEST} levels; it is no XGBoost model")
        marker = self._take(1) if marker is None else marker
        if marker == b"{":
            made = {}
            while (ahead := self._take(1)) != b"}":
                self.place -= len(ahead)
                name = self._text()
                made[name] = self.value(depth + 1)
            return made
        if marker == b"[":
            return self._array(depth)
        if marker == b"S":
            return self._text()
        if marker in (b"T", b"F", b"Z", b"N"):
            return {b"T": True, b"F": False}.get(marker)
        return self._number(marker)[0].item()

    def _array(self, depth: int) -> Any:
        ahead = self._take(1)
        if ahead == b"$":
            marker = self._take(1)
            if self._take(1) != b"#":
                raise UncurseError("a typed array of this UBJSON file has no length; save the model again")
            return self._number(marker, self._length())
        if ahead == b"#":
            return [self.value(depth + 1) for _ in range(self._length())]
        made = []
        while ahead != b"]":
            made.append(self.value(depth + 1, ahead))
            ahead = self._take(1)
        return made


def dumps(value: Any) -> bytes:
    """Back to bytes; numbers as 64 bits, arrays of numpy as they are."""
    if isinstance(value, dict):
        return b"{" + b"".join(_text(name) + dumps(part) for name, part in value.items()) + b"}"
    if isinstance(value, np.ndarray):
        head = b"[$" + _MARKERS[value.dtype] + b"#L" + struct.pack(">q", len(value))
        return head + value.astype(value.dtype.newbyteorder(">")).tobytes()
    if isinstance(value, list):
        return b"[" + b"".join(map(dumps, value)) + b"]"
    if isinstance(value, str):
        return b"S" + _text(value)
    if value is None or isinstance(value, bool):
        return {None: b"Z", True: b"T", False: b"F"}[value]
    return b"L" + struct.pack(">q", value) if isinstance(value, int) else b"D" + struct.pack(">d", value)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return b"L" + struct.pack(">q", len(encoded)) + encoded


__all__ = ["dumps", "loads"]
