"""Lines of a click log, many at once: bytes to labels, numbers and keys of categories, and the lines that are neither.

Eight characters are one 64-bit word, so that a field takes a load and some twenty integer operations, 10 ns in numpy.
A line is good or bad by itself, whatever block it came in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..threads import chunks
from .vocabularies import Codes, Keys, smallest

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]

LONGEST = 1 << 16  # bytes of a line; real ones have a few hundred
MARGIN = 8  # bytes before the first line of a block: a field is loaded with the 8 bytes up to its end
SHOWN = 5  # bad lines are all counted, the first few shown
_LARGEST = (1 << 31) - 1  # of a whole number

_ZEROS, _TOPS = np.uint64(0x3030303030303030), np.uint64(0x8080808080808080)
# The last 0 … 8 characters of a word. Its first character is the lowest byte.
_LAST = np.array([(1 << 64) - (1 << 8 * (8 - size)) for size in range(9)], np.uint64)


@dataclass(frozen=True)
class Layout:
    """What the columns of a log are: ``skip``, ``label``, ``number``, ``hex``, ``whole`` or ``hour``."""

    separator: int
    names: tuple[str, ...]
    roles: tuple[str, ...]

    def of(self, *roles: str) -> tuple[str, ...]:
        """The names of the columns with such a role."""
        return tuple(name for name, role in zip(self.names, self.roles, strict=True) if role in roles)


@dataclass
class Parsed:
    """The good rows of a block, and its bad lines."""

    label: Bytes
    numbers: list[Codes]
    keys: list[Keys]
    lines: int
    bad: Places  # lines of the block, from 0
    shown: list[bytes] = field(default_factory=list)  # the first few of them

    def first(self, rows: int) -> Parsed:
        """The first rows only, and the bad lines before the last of them."""
        last = np.delete(np.arange(self.lines), self.bad)[rows - 1]
        numbers, keys = ([part[:rows] for part in parts] for parts in (self.numbers, self.keys))
        bad = self.bad[self.bad < last]
        return Parsed(self.label[:rows], numbers, keys, int(last) + 1, bad, self.shown[: len(bad)])


def parse(block: Bytes, layout: Layout) -> Parsed:
    """All lines of a block, which starts with `MARGIN` bytes of anything and ends with a line's end."""
    # Places are those behind the margin; the word at such a place is then the 8 bytes up to it.
    words, block = np.ndarray((len(block) - 7,), "<u8", block, strides=(1,)), block[MARGIN:]
    starts_of_lines, ends_of_lines, rows, ends = _split(block, layout)
    good = np.ones(ends.shape[1], bool)
    label: Bytes = np.zeros(0, np.uint8)
    numbers: list[NDArray[Any]] = []
    keys: list[Keys] = []
    start = starts_of_lines[rows]
    for role, end in zip(layout.roles, ends, strict=True):
        if role == "label":
            label = block.take(start) - np.uint8(48)
            good &= (label < 2) & (end - start == 1)
        elif role == "number":
            value, fine = _whole(block, words, start, end)
            numbers.append(_packed(value))
            good &= fine
        elif role != "skip":
            key, fine = _KEYS[role](block, words, start, end)
            keys.append(key)
            good &= fine
        start = end + 1
    if not good.all():
        rows, label = rows[good], label[good]
        numbers, keys = [part[good] for part in numbers], [part[good] for part in keys]
    bad = np.delete(np.arange(len(ends_of_lines)), rows)
    shown = [block[starts_of_lines[i] : ends_of_lines[i]].tobytes() for i in bad[:SHOWN]]
    return Parsed(label, numbers, keys, len(ends_of_lines), bad, shown)


def _packed(values: Places) -> Codes:
    """Negative numbers to 0, the rest in the smallest type."""
    if values.min(initial=0) < 0:
        values = np.maximum(values, 0)
    return values.astype(smallest(int(values.max(initial=0))))


def _split(block: Bytes, layout: Layout) -> tuple[Places, Places, Places, Places]:
    """Where lines start and end, which have all their fields and only printable bytes, and where those fields end.

    The last is (fields, good lines), so that a field's ends lie side by side.
    """
    fields = len(layout.names)
    places, separators = _marks(block, layout.separator)
    ends = places[fields - 1 :: fields]
    # All marks but every so manieth are separators, and those are line ends: all lines have all fields.
    whole = separators == (fields - 1) * len(ends) == len(places) - len(ends) and bool((block[ends] == 10).all())
    ends = ends.copy() if whole else np.flatnonzero(block == 10)
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1] + 1
    if whole and int((ends - starts).max()) <= LONGEST:
        by_field = _room("ends", len(places)).reshape(fields, -1)
        np.copyto(by_field, places.reshape(-1, fields).T)
        return starts, ends, np.arange(len(ends)), by_field
    last = np.searchsorted(places, ends)
    first = np.concatenate([[0], last[:-1] + 1])
    separating = np.concatenate([[0], np.cumsum(block[places] == layout.separator)])
    right = separating[last] - separating[first] == fields - 1
    before = places[np.maximum(last - 1, 0)]
    returned = (last > first) & (before == ends - 1) & (block[before] == 13)  # \r\n: the field ends before the \r
    right &= (last - first == fields - 1 + returned) & (ends - starts <= LONGEST)
    rows = np.flatnonzero(right)
    return starts, ends, rows, places[first[rows] + np.arange(fields)[:, None]]


def _marks(block: Bytes, separator: int) -> tuple[Places, int]:
    """Where separators and bytes that are not printable are (line ends, and what should not be there)."""
    found, separators, places = 0, 0, _room("places", len(block))
    for part in chunks(len(block), 1 << 18):
        text = block[part]
        odd = (text - np.uint8(32)) > 94
        separating = text == separator
        separators += int(np.count_nonzero(separating))
        if separator >= 32:  # a tab is odd itself
            odd |= separating
        here = np.flatnonzero(odd)
        np.add(here, part.start, out=places[found : found + len(here)])
        found += len(here)
    return places[:found], separators


def _room(name: str, size: int) -> Places:
    """Memory of this thread's own, used again for every block: fresh pages cost as much as the work on them."""
    if not hasattr(_thread, name) or len(getattr(_thread, name)) < size:
        setattr(_thread, name, np.empty(size, np.int64))
    room: Places = getattr(_thread, name)[:size]
    return room


_thread = threading.local()


# ---------------------------------------------------------------------------- fields


def _hex(block: Bytes, words: Keys, start: Places, end: Places) -> tuple[Keys, NDArray[np.bool_]]:
    """Keys of up to eight hexadecimal digits, 0 for none."""
    size = end - start
    text = words[end]
    text ^= _ZEROS  # digits become 0 … 9
    full = bool((size == 8).all())
    if not full:
        text &= _LAST.take(size, mode="clip")
    text &= np.uint64(0xDFDFDFDFDFDFDFDF)  # a … f of either case become 0x51 … 0x56
    # Bytes are below 128 here, so a sum of bytes carries into no other: the top bit of b + (128 − c) says b ≥ c.
    tops, sums = text + np.uint64(0x7676767676767676), text + np.uint64(0x2F2F2F2F2F2F2F2F)  # ≥ 0x0a, ≥ 0x51
    tops ^= sums
    tops ^= np.add(text, np.uint64(0x2929292929292929), out=sums)  # ≥ 0x57
    fine: Any = True
    if np.bitwise_or.reduce(tops) & _TOPS:
        fine = tops & _TOPS == 0
    letters = np.right_shift(text, np.uint64(6), out=sums)
    letters &= np.uint64(0x0101010101010101)
    letters *= np.uint64(9)
    text &= np.uint64(0x0F0F0F0F0F0F0F0F)
    text += letters
    keys = _side_by_side(text)
    if not full:
        keys[size == 0] = 0
        fine = fine & (size <= 8)
    return keys, fine


def _whole_keys(block: Bytes, words: Keys, start: Places, end: Places) -> tuple[Keys, NDArray[np.bool_]]:
    """Keys of whole numbers of up to eight digits, 0 for none."""
    size = end - start
    digits, fine = _digits(words, size, end)
    keys = _side_by_side(digits)
    keys[size == 0] = 0
    fine &= size <= 8
    signed = np.flatnonzero(~fine)
    if signed.size:
        at, size, stop = start[signed], size[signed] - 1, end[signed]
        digits, right = _digits(words, size, stop)
        keys[signed] = _side_by_side(digits) | (digits != 0).astype(np.uint64) << np.uint64(33)  # −0 is 0
        fine[signed] = right & (block[at] == 45) & (size >= 1) & (size <= 8)
    return keys, fine


def _side_by_side(halves: Keys) -> Keys:
    """Eight half bytes in 32 bits, + 1: a key, which may have them in any order."""
    keys = halves >> np.uint64(28)
    keys |= halves
    keys &= np.uint64(0xFFFFFFFF)
    keys += np.uint64(1)
    return keys


def _hour_keys(block: Bytes, words: Keys, start: Places, end: Places) -> tuple[Keys, NDArray[np.bool_]]:
    """Keys of the hour of the day in YYMMDDHH, 0 for none."""
    value, fine = _whole(block, words, start, end)
    hour = value % 100
    empty = end == start
    fine &= ((end - start == 8) & (hour < 24) & (value >= 0)) | empty
    keys = (hour + 1).view(np.uint64)
    keys[empty] = 0
    return keys, fine


_KEYS: dict[str, Callable[[Bytes, Keys, Places, Places], tuple[Keys, NDArray[np.bool_]]]] = {
    "hex": _hex,
    "whole": _whole_keys,
    "hour": _hour_keys,
}


def _whole(block: Bytes, words: Keys, start: Places, end: Places) -> tuple[Places, NDArray[np.bool_]]:
    """Whole numbers from −2³¹ + 1 to 2³¹ − 1, 0 where there is none."""
    size = end - start
    digits, fine = _digits(words, size, end)
    value = _value(digits)
    fine &= size <= 8
    rare = np.flatnonzero(~fine)  # a sign, more than eight digits, or no number
    if rare.size:
        at, stop = start[rare], end[rare]
        negative = block[at] == 45
        size = stop - at - negative
        low, right = _digits(words, size, stop)
        # The first two of ten digits; where there are none the load is of nothing, which is 0.
        high, right_too = _digits(words, np.clip(size - 8, 0, 2), np.maximum(stop - 8, 0))
        total = _value(high) * 100_000_000 + _value(low)
        value[rare] = np.where(negative, -total, total)
        fine[rare] = right & right_too & (size >= 1) & (size <= 10) & (total <= _LARGEST)
    return value, fine


def _digits(words: Keys, size: Places, end: Places) -> tuple[Keys, NDArray[np.bool_]]:
    """The last `size` characters before `end`, eight at most, as a byte 0 … 9 each behind zeros; and where they are."""
    digits = words[end]
    digits ^= _ZEROS
    digits &= _LAST.take(size, mode="clip")
    tops = digits + np.uint64(0x7676767676767676)
    tops &= _TOPS
    return digits, tops == 0


def _value(digits: Keys) -> Places:
    """Σ 10^(7−i) dᵢ: pairs, then fours and eights in one multiplication each."""
    even = digits * np.uint64(10)
    even += digits >> np.uint64(8)
    odd = even >> np.uint64(16)
    for part, scale in ((even, 100 + (1_000_000 << 32)), (odd, 1 + (10_000 << 32))):
        part &= np.uint64(0x000000FF000000FF)
        part *= np.uint64(scale)
    even += odd
    even >>= np.uint64(32)
    return even.view(np.int64)


# ---------------------------------------------------------------------------- what is wrong with a line


def fault(line: bytes, layout: Layout) -> str:
    """Why a line is bad, in words."""
    if len(line) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    line = line.removesuffix(b"\r")
    separator = bytes([layout.separator])
    odd = sorted(set(line) - set(range(32, 127)) - {layout.separator})
    if odd:
        return f"holds the byte 0x{odd[0]:02x}, which is no text"
    values = line.split(separator)
    if len(values) != len(layout.names):
        return f"{len(values)} fields instead of {len(layout.names)}"
    for name, role, value in zip(layout.names, layout.roles, values, strict=True):
        text = value.decode("ascii")
        if (role == "label" or text) and not _FITS[role](text):
            return f"{name} is {text[:20]!r}, {_WANTED[role]}"
    return "not readable"  # pragma: no cover


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isdigit() and len(digits) <= 10 and int(digits) <= _LARGEST


_FITS: dict[str, Callable[[str], bool]] = {
    "skip": lambda text: True,
    "label": lambda text: text in ("0", "1"),
    "number": _is_whole,
    "whole": lambda text: _is_whole(text) and len(text.removeprefix("-")) <= 8,
    "hex": lambda text: len(text) <= 8 and set(text) <= set("0123456789abcdefABCDEF"),
    "hour": lambda text: len(text) == 8 and text.isdigit() and int(text[6:]) < 24,
}
_WANTED = {
    "label": "not 0 or 1",
    "number": f"not a whole number up to {_LARGEST:,}",
    "whole": "not a whole number of up to eight digits",
    "hex": "not up to eight hexadecimal digits",
    "hour": "not YYMMDDHH",
}

__all__ = ["LONGEST", "MARGIN", "SHOWN", "Bytes", "Layout", "Parsed", "fault", "parse"]
