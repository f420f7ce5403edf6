"""Codes of the values of a category, numbered as they appear."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .lines import MISSING, smallest

_BITS = np.int64(30)  # of a code; an entry is a value above its code
_MASK = np.int64((1 << 30) - 1)
_FREE, _UNKNOWN = np.int64(MISSING - 1) << _BITS, MISSING + 1


class Vocabulary:
    """Codes of the values of one category: 0 missing, 1 unknown, then 2, 3, … in order of first appearance.

    A hash table with open addressing, 16 to 64 bytes per value. Frequent values appear early and so stand where their
    hash says: most rows cost one look.

    Examples
    --------
    >>> vocabulary = Vocabulary()
    >>> vocabulary.number(np.array([70, MISSING, 5, 70])).tolist()
    [2, 0, 3, 2]
    >>> vocabulary.number(np.array([9, 5])).tolist(), vocabulary.size
    ([4, 3], 5)
    """

    def __init__(self, values: NDArray[Any] | None = None) -> None:
        self.size = 0
        self.counts = np.zeros(0, np.uint32)
        self._slots = np.full(1 << 10, _FREE)
        self._add(np.array([MISSING, _UNKNOWN]))
        if values is not None:
            self._add(values.astype(np.int64))
        self.growing = values is None

    def number(self, values: NDArray[np.int64]) -> NDArray[Any]:
        """Return the codes of values. New values get the next codes, or 1 if the vocabulary was given."""
        entries = self._slots[self._home(values)]
        missed = np.flatnonzero(entries >> _BITS != values)
        if missed.size:
            entries[missed] = self._add(values[missed]) if self.growing else self._find(values[missed])
        return (entries & _MASK).astype(smallest(self.size - 1))

    def count(self, codes: NDArray[Any]) -> None:
        """Count how often values occur."""
        if len(self.counts) < self.size:
            self.counts = np.append(self.counts, np.zeros(self.size, np.uint32))
        np.add.at(self.counts, codes, np.uint32(1))

    def values(self) -> NDArray[np.int64]:
        """Return the values in the order of their codes, from 0."""
        entries = self._slots[self._slots != _FREE]
        values = np.empty(self.size, np.int64)
        values[entries & _MASK] = entries >> _BITS
        return values

    def _home(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        spread = values.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # 2⁶⁴ / golden ratio
        spread >>= np.uint64(65 - len(self._slots).bit_length())
        return spread.view(np.int64)

    def _find(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries of values, and of unknown values one with code 1."""
        at, left = self._home(values), np.arange(len(values))
        while left.size:
            here = self._slots[at[left]]
            left = left[(here >> _BITS != values[left]) & (here != _FREE)]
            at[left] = (at[left] + 1) & (len(self._slots) - 1)
        entries = self._slots[at]
        return np.where(entries == _FREE, 1, entries)

    def _add(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entries of values. New values get the next codes."""
        total = self.size + len(values)
        total *= 4 if total < 1 << 17 else 2
        if total > len(self._slots):
            known, self.size = self.values(), 0
            self._slots = np.full(1 << total.bit_length(), _FREE)
            self._add(known)
        signed = values << _BITS | np.arange(self.size, self.size + len(values))
        at, left = self._home(values), np.arange(len(values))
        while left.size:
            free = left[self._slots[at[left]] == _FREE]
            self._slots[at[free][::-1]] = signed[free][::-1]  # in reverse: the first row of a slot signs it
            left = left[self._slots[at[left]] >> _BITS != values[left]]
            at[left] = (at[left] + 1) & (len(self._slots) - 1)
        new = np.flatnonzero(self._slots[at] == signed)  # the first rows of new values
        self._slots[at[new]] = values[new] << _BITS | np.arange(self.size, self.size + len(new))
        self.size += len(new)
        return self._slots[at]


__all__ = ["Vocabulary"]
