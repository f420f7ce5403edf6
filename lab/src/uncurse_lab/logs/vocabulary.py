"""Codes of the values of a category, numbered as they appear."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from uncurse.threads import chunks

Keys = NDArray[np.int64]
_UNKNOWN = 1  # code of an unknown key, and of a free slot
_PART = 8_000  # keys added at once: their slots and codes stay in the cache


class Vocabulary:
    """Codes of the keys of one category: 0 for key 0, a missing value; 1 unknown; 2, 3, … in order of first appearance.

    A hash table with open addressing: slots hold codes, and `keys` holds the key of each code. Frequent keys appear
    early and so stand where their hash says: most rows cost one look.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> vocabulary.number(np.array([70, 0, 5, 70])).tolist()
    [2, 0, 3, 2]
    >>> vocabulary.number(np.array([9, 5])).tolist(), vocabulary.keys[: vocabulary.size].tolist()
    ([4, 3], [0, -1, 70, 5, 9])
    """

    def __init__(self) -> None:
        self.known = np.zeros(0, bool)  # of each code, whether it was marked
        self._rebuild(np.zeros(0, np.int64))

    def number(self, keys: Keys) -> NDArray[Any]:
        """Return the codes of keys. New keys get the next codes."""
        codes = self._slots.take(self._home(keys))
        missed = np.flatnonzero(self.keys.take(codes) != keys)
        for part in chunks(len(missed), _PART):
            if self.size + _PART > len(self.keys):
                self._rebuild(self.keys[2 : self.size])
            codes[missed[part]] = self._add(keys[missed[part]])
        return codes.astype(smallest(self.size - 1))

    def mark(self, codes: NDArray[Any]) -> None:
        """Mark the codes of training rows."""
        if len(self.known) < self.size:
            self.known = np.append(self.known, np.zeros(self.size, bool))
        self.known[codes] = True

    def _home(self, keys: Keys) -> NDArray[np.int64]:
        spread = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio
        spread >>= np.uint64(65 - len(self._slots).bit_length())
        return spread.view(np.int64)

    def _add(self, keys: Keys) -> NDArray[np.uint32]:
        """Return the codes of keys, probing one slot after the other."""
        size, room = self.size, self.size + len(keys)
        self.keys[size:room] = keys
        own = np.arange(size, room, dtype=np.uint32)  # codes as if all keys were new and distinct
        at = self._home(keys)
        left, look, wanted, code = np.arange(len(keys)), at, keys, own
        while left.size:
            found = self._slots.take(look)
            self._slots[look[::-1]] = np.where(found == _UNKNOWN, code, found)[::-1]  # the first row of a key wins
            found = self._slots.take(look)
            other = np.flatnonzero(self.keys.take(found) != wanted)
            left, wanted, code = left.take(other), wanted.take(other), code.take(other)
            look = (look.take(other) + 1) & (len(self._slots) - 1)
            at[left] = look
        new = np.flatnonzero(self._slots.take(at) == own)
        self._slots[at.take(new)] = own[: len(new)]
        self.keys[size : size + len(new)] = keys.take(new)
        self.size += len(new)
        return self._slots.take(at)

    def _rebuild(self, known: Keys) -> None:
        """Make room for at least three times as many keys, with four slots each, or two in a large table."""
        room = 3 * len(known) + _PART + 2
        each = 4 if room < 1 << 18 else 2
        self._slots = np.full(1 << (each * room - 1).bit_length(), _UNKNOWN, np.uint32)
        self.keys = np.empty(len(self._slots) // each, np.int64)
        self.size = 0
        self._add(np.zeros(1, np.int64))
        self.keys[_UNKNOWN], self.size = -1, 2  # -1 is no key
        for part in chunks(len(known), _PART):
            self._add(known[part])


def smallest(top: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds 0 … top.

    >>> smallest(255), smallest(256)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)
