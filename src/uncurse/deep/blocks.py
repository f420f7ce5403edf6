"""The bytes of a click log in blocks of whole lines, and which columns the lines have."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from ..errors import UncurseError
from .parsing import LONGEST, MARGIN, Bytes, Layout

BLOCK = 7 << 20  # bytes: some 30,000 rows; with fewer, threads wait for Python's lock, with more, for memory
_PEEK = 1 << 16  # bytes that hold the header, and lines that tell whether there is a row index

CRITEO = Layout(
    separator=9,
    names=("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))),
    roles=("label", *["number"] * 13, *["hex"] * 26),
)
_SITE = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category")
_HEX = (*_SITE, "device_id", "device_ip", "device_model")
_WHOLE = ("device_type", "device_conn_type", *(f"C{i}" for i in range(14, 22)))
AVAZU = Layout(
    separator=44,
    names=("id", "click", "hour", "C1", "banner_pos", *_HEX, *_WHOLE),
    roles=("skip", "label", "hour", "whole", "whole", *["hex"] * len(_HEX), *["whole"] * len(_WHOLE)),
)
INDEXED = Layout(44, ("", *AVAZU.names), ("skip", *AVAZU.roles))  # with the row index that data frames write


def open_log(source: Path, stack: ExitStack) -> BinaryIO:
    """The bytes of a log, unzipped where it is."""
    try:
        file = stack.enter_context(source.open("rb"))
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
    except OSError as error:
        raise UncurseError(f"cannot read {source}: {error.strerror}") from None
    return cast(BinaryIO, stack.enter_context(gzip.open(file))) if zipped else file


def _read(stream: BinaryIO, into: memoryview, source: Path) -> int:
    """Fill the memory as far as the stream goes."""
    done = 0
    try:
        while done < len(into):
            got = stream.readinto(into[done:])  # type: ignore[attr-defined]
            if not got:
                break
            done += got
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UncurseError(f"{source} is not a whole gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise UncurseError(f"cannot read {source}: {error.strerror}") from None
    return done


def count_lines(path: str | os.PathLike[str], most: int) -> int:
    """How many lines a log has, gzipped or not, up to `most`."""
    source, memory, lines, last = Path(path), bytearray(1 << 24), 0, 10
    with ExitStack() as stack:
        stream = open_log(source, stack)
        while lines < most and (got := _read(stream, memoryview(memory), source)):
            lines, last = lines + memory.count(b"\n", 0, got), memory[got - 1]
    return min(most, lines + (last != 10))


def find_layout(stream: BinaryIO, kind: str, source: Path) -> tuple[Layout, bytes]:
    """The columns of the log, and what was read to know them but is not the header."""
    head = bytearray(1 if kind == "criteo" else _PEEK)
    head = head[: _read(stream, memoryview(head), source)]
    if not head:
        raise UncurseError(f"{source} is empty; pass a log with at least one line")
    if kind == "criteo":
        return CRITEO, bytes(head)
    header, _, rest = bytes(head).partition(b"\n")
    names = tuple(header.decode("utf-8-sig", "replace").removesuffix("\r").split(","))
    if names in (INDEXED.names, ("Unnamed: 0", *AVAZU.names)):
        return INDEXED, rest
    if names != AVAZU.names:
        missing = [name for name in AVAZU.names if name not in names]
        what = f"lacks {', '.join(missing[:3])}" if missing else f"has {len(names)} names in another order"
        raise UncurseError(f"{source} does not start with Avazu's header: it {what}; pass Avazu's train file")
    commas = [line.count(b",") for line in rest.split(b"\n")]
    indexed = commas.count(len(AVAZU.names)) > commas.count(len(AVAZU.names) - 1)
    return (INDEXED if indexed else AVAZU), rest


def blocks(stream: BinaryIO, pending: bytes, source: Path, *, ahead: int) -> Iterator[Bytes]:
    """Blocks of whole lines behind `MARGIN` bytes. Of a line longer than any good one only the start is kept.

    Memory is used again: a block holds until `ahead` more are read.
    """
    skipping = False
    room = MARGIN + max(len(pending), LONGEST + 1) + BLOCK + 1
    memory = cycle([np.empty(room, np.uint8) for _ in range(ahead + 1)])
    block, over = next(memory), False
    while not over:
        start = MARGIN + len(pending)
        block[MARGIN:start] = np.frombuffer(pending, np.uint8)
        got = _read(stream, block[start : start + BLOCK].data, source)
        end, over = start + got, got < BLOCK
        if skipping:  # the rest of the long line, whose start is what is pending
            found = np.flatnonzero(block[start:end] == 10)[:1]
            rest = block[start + int(found[0]) : end] if found.size else block[:0]
            block[start : start + len(rest)] = rest.copy()
            end, skipping = start + len(rest), not found.size
        if over and end > MARGIN and block[end - 1] != 10:
            block[end] = 10
            end += 1
        cut = end
        while cut > MARGIN and block[cut - 1] != 10:  # as long as one line
            step = max(MARGIN, cut - 4096)
            found = np.flatnonzero(block[step:cut] == 10)
            cut = step + int(found[-1]) + 1 if found.size else step
        pending = block[cut : min(end, cut + LONGEST + 1)].tobytes()
        skipping = skipping or end - cut > LONGEST
        if cut > MARGIN:
            yield block[:cut]
            block = next(memory)


__all__ = ["AVAZU", "BLOCK", "CRITEO", "INDEXED", "blocks", "count_lines", "find_layout", "open_log"]
