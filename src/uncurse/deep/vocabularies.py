"""Values of a category numbered as they appear, in a hash table of numpy's: 16–32 bytes for each distinct value.

A Python dict takes some 100 bytes for a value and a microsecond for a row; here a row takes about 10 ns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cores import chunks

Keys = NDArray[np.uint64]
Codes = NDArray[Any]  # uint8, uint16 or uint32, the smallest that does

KEY_BITS = 34  # a slot is a number (30 bits) above a key: 0 where a value is missing, else the value + 1
_KEY = np.uint64((1 << KEY_BITS) - 1)
_SHIFT = np.uint64(KEY_BITS)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio: the top bits of the product spread any run of keys


class Vocabulary:
    """The values of one field, numbered 2, 3, … in order of first appearance; 0 is a missing value, 1 an unknown one.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> vocabulary.number(np.array([70, 0, 5, 70], np.uint64)).tolist()
    [2, 0, 3, 2]
    >>> vocabulary.number(np.array([9, 5], np.uint64)).tolist(), vocabulary.size
    ([4, 3], 5)
    """

    def __init__(self) -> None:
        self.size = 2  # codes given out or reserved
        self._slots: Keys = np.zeros(16, np.uint64)  # linear probing; 0 is free, and slot 0 is that of missing values
        self._counts: NDArray[Any] | None = None

    def number(self, keys: Keys) -> Codes:
        """The number of each key; new keys get the next ones."""
        found = self._slots[self._home(keys)]
        found ^= keys  # the number alone is left where the key is the same
        missed = np.flatnonzero((found & _KEY) != 0)
        found >>= _SHIFT
        if missed.size:
            found[missed] = self._add(keys[missed])
        return found.astype(smallest(self.size - 1))

    def count(self, numbers: Codes, least: int) -> None:
        """Count these rows' values: how often each was seen, or only whether it was where `least` is 1."""
        if self._counts is None:
            self._counts = np.zeros(self.size, bool if least == 1 else np.uint32)
        if len(self._counts) < self.size:
            larger = np.zeros(2 * self.size, self._counts.dtype)
            larger[: len(self._counts)] = self._counts
            self._counts = larger
        if least == 1:
            self._counts[numbers] = True
        else:
            np.add.at(self._counts, numbers, np.uint32(1))

    def close(self, least: int) -> NDArray[np.uint32] | None:
        """The final code of each number, and the table's memory back; None where none changes.

        Numbers not counted `least` times become 1, unknown; the others move up.
        """
        self._slots = np.zeros(0, np.uint64)
        if self._counts is None:
            return None
        known = self._counts[: self.size] >= least
        self._counts = None
        known[:2] = False
        codes = np.cumsum(known, dtype=np.uint32)
        codes += 1
        codes[~known] = 1
        codes[0] = 0
        return codes

    def _home(self, keys: Keys) -> NDArray[np.int64]:
        home = keys * _GOLDEN
        home >>= np.uint64(65 - len(self._slots).bit_length())
        return home.view(np.int64)

    def _add(self, keys: Keys) -> Keys:
        """The numbers of keys that are new, or not at home; in row order."""
        while 2 * (self.size + len(keys)) > len(self._slots):
            self._grow()
        at = self._place(keys)
        slots = self._slots
        new = np.flatnonzero(slots[at] >> _SHIFT == 0)
        there, values = at[new], keys[new]
        # A value may come several times: every row signs its slot, in reverse, so the first signature stays.
        signatures = np.arange(1, len(new) + 1, dtype=np.uint64) << _SHIFT
        slots[there[::-1]] = (signatures | values)[::-1]
        first = np.flatnonzero(slots[there] == (signatures | values))
        numbers = np.arange(self.size, self.size + len(first), dtype=np.uint64)
        slots[there[first]] = numbers << _SHIFT | values[first]
        self.size += len(first)
        return slots[at] >> _SHIFT

    def _place(self, keys: Keys) -> NDArray[np.int64]:
        """The slot of each key, free ones claimed for those that have none."""
        slots, at = self._slots, self._home(keys)
        pending = np.arange(len(keys))
        while pending.size:
            wanted, here = keys[pending], at[pending]
            free = (slots[here] == 0) & (here != 0)
            slots[here[free]] = wanted[free]  # of two keys one stays, and the other looks further
            pending = pending[(slots[here] ^ wanted) & _KEY != 0]
            at[pending] = (at[pending] + 1) & (len(slots) - 1)
        return at

    def _grow(self) -> None:
        entries = self._slots[self._slots != 0]
        self._slots = np.zeros(2 * len(self._slots), np.uint64)
        for part in chunks(len(entries), 1 << 20):
            self._slots[self._place(entries[part] & _KEY)] = entries[part]


def smallest(top: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds 0 … top.

    >>> smallest(255), smallest(256)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)


__all__ = ["KEY_BITS", "Codes", "Keys", "Vocabulary", "smallest"]
