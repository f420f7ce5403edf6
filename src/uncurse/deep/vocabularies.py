"""Values of a category numbered as they appear, in a hash table of numpy's: 16–32 bytes a value where they are many.

A Python dict takes some 100 bytes for a value and a microsecond for a row; here a row takes about 10 ns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..threads import chunks

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
        self._slots: Keys = np.zeros(16, np.uint64)  # open addressing; 0 is free, and slot 0 that of missing values
        self._counts: NDArray[Any] | None = None

    def number(self, keys: Keys) -> Codes:
        """The number of each key; new keys get the next ones."""
        found = self._slots.take(self._home(keys))
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
        while self._crowded(len(keys)):
            self._grow()
        slots = self._slots
        wanted = np.arange(1, len(keys) + 1, dtype=np.uint64) << _SHIFT | keys  # signed with the row
        at = here = self._home(keys)
        pending, first = np.arange(len(keys)), []
        slots[0] = _KEY  # taken
        while pending.size:
            there = slots.take(here)
            free = np.flatnonzero(there == 0)
            if free.size:
                # All rows of a new value come to a free slot together; they sign in reverse: the first signature stays.
                claimed, claims = here[free], wanted[free]
                slots[claimed[::-1]] = claims[::-1]
                there[free] = kept = slots[claimed]
                first.append(pending[free[kept == claims]])
            there ^= wanted
            there &= _KEY
            left = np.flatnonzero(there != 0)
            pending, wanted = pending[left], wanted[left]
            here = self._next(here[left], wanted)
            at[pending] = here
        slots[0] = 0
        new = np.sort(np.concatenate(first)) if first else pending
        slots[at[new]] = np.arange(self.size, self.size + len(new), dtype=np.uint64) << _SHIFT | keys[new]
        self.size += len(new)
        return slots.take(at) >> _SHIFT

    def _next(self, slots: NDArray[np.int64], keys: Keys) -> NDArray[np.int64]:
        """Where to look further: steps are the key's own, and odd, so that they come to every slot."""
        return (slots + (keys.view(np.int64) | 1)) & (len(self._slots) - 1)

    def _crowded(self, more: int) -> bool:
        """Half full; a small table, with room to spare, is crowded at a quarter: most keys are at home."""
        small = len(self._slots) < 1 << 20
        return (4 if small else 2) * (self.size + more) > len(self._slots)

    def _grow(self) -> None:
        entries = self._slots[self._slots != 0]
        self._slots = np.zeros((4 if len(self._slots) < 1 << 18 else 2) * len(self._slots), np.uint64)
        for part in chunks(len(entries), 1 << 18):
            self._move(entries[part])

    def _move(self, entries: Keys) -> None:
        """Place entries, none of which is there."""
        slots, at = self._slots, self._home(entries & _KEY)
        slots[0] = _KEY
        while entries.size:
            free = slots.take(at) == 0
            slots[at[free]] = entries[free]  # of two one stays, and the other looks further
            left = slots.take(at) != entries
            entries = entries[left]
            at = self._next(at[left], entries)
        slots[0] = 0


def smallest(top: int) -> np.dtype[Any]:
    """The smallest unsigned type that holds 0 … top.

    >>> smallest(255), smallest(256)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)


__all__ = ["KEY_BITS", "Codes", "Keys", "Vocabulary", "smallest"]
