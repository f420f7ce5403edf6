"""Read the lines of a click log in blocks, and parse a block with PyArrow.

PyArrow parses and dictionary-encodes the fields; the checks here run once per distinct text of a block. PyArrow's own
streaming reader is not used: it stops at a line longer than its block and does not report which rows it skipped.
"""

from __future__ import annotations

import gzip
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from uncurse.errors import UncurseError
from uncurse.threads import chunks

from .vocabulary import Keys, smallest

BLOCK = 4 << 20  # bytes: about 17,000 rows
LONGEST = 1 << 16  # bytes of a line; real lines have a few hundred
Mask = NDArray[np.bool_]

_LARGEST = (1 << 31) - 1
_SHIFT = 1 << 32  # makes keys of whole numbers positive

#: For each kind of field: the texts that are valid, and how to describe them.
_RULES = {
    "skip": (r"[ -~]*", "not text"),
    "label": (r"[01]", "not 0 or 1"),
    "number": (r"-?0*[0-9]{1,10}", f"not a whole number up to {_LARGEST:,}"),
    "whole": (r"-?[0-9]{1,8}", "not a whole number of up to eight digits"),
    "hex": (r"[0-9a-fA-F]{1,8}", "not up to eight hexadecimal digits"),
    "hour": (r"[0-9]{6}([01][0-9]|2[0-3])", "not YYMMDDHH"),
}


@dataclass(frozen=True)
class Layout:
    """Columns of a log: the kind of each is a key of `_RULES`. All but skip, label and number are categories."""

    separator: str
    kinds: dict[str, str]

    def names(self, *kinds: str) -> list[str]:
        """Return the names of the columns of some kinds."""
        return [name for name, kind in self.kinds.items() if kind in kinds]

    @property
    def categories(self) -> list[str]:
        """The names of the categories."""
        return self.names("whole", "hex", "hour")


CRITEO = Layout(
    "\t",
    {"label": "label"}
    | dict.fromkeys((f"I{i}" for i in range(1, 14)), "number")
    | dict.fromkeys((f"C{i}" for i in range(1, 27)), "hex"),
)
_HEX = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category")
_WHOLE = ("device_type", "device_conn_type", *(f"C{i}" for i in range(14, 22)))
AVAZU = Layout(
    ",",
    {"id": "skip", "click": "label", "hour": "hour", "C1": "whole", "banner_pos": "whole"}
    | dict.fromkeys((*_HEX, "device_id", "device_ip", "device_model"), "hex")
    | dict.fromkeys(_WHOLE, "whole"),
)
INDEXED = Layout(",", {"": "skip", **AVAZU.kinds})  # with the row index that data frames write


# ---------------------------------------------------------------------------- blocks of lines


@contextmanager
def _reading(source: Path) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UncurseError(f"{source} is not a whole gzip file ({error}); fetch it again") from None
    except OSError as error:
        raise UncurseError(f"cannot read {source}: {error.strerror}") from None


def open_log(source: Path, stack: ExitStack) -> BinaryIO:
    """Open a log, gzipped or not."""
    with _reading(source):
        file = stack.enter_context(source.open("rb"))
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
    return cast(BinaryIO, stack.enter_context(gzip.open(file))) if zipped else file


def blocks(stream: BinaryIO, source: Path) -> Iterator[bytes]:
    """Yield blocks of complete lines. Of a line longer than `LONGEST` the rest may be left out."""
    rest = b""
    with _reading(source):
        while read := stream.read(BLOCK):
            end = read.rfind(b"\n") + 1
            if end:
                yield b"".join((rest, memoryview(read)[:end]))
                rest = b""
            rest = (rest + read[end:])[: LONGEST + 2]
    if rest:
        yield rest + b"\n"


def count_lines(path: str | os.PathLike[str], most: int) -> int:
    """Count the lines of a log, gzipped or not, up to `most`."""
    lines = 0
    with ExitStack() as stack:
        for block in blocks(open_log(Path(path), stack), Path(path)):
            lines += block.count(b"\n")
            if lines >= most:
                break
    return min(most, lines)


def read_header(stream: BinaryIO, source: Path, kind: str) -> tuple[Layout, Iterator[bytes]]:
    """Return the columns of a log, and the blocks after its header."""
    with _reading(source):
        header = b"" if kind == "criteo" else stream.readline(LONGEST)
    lines = blocks(stream, source)
    first = next(lines, b"")
    if not header and not first:
        raise UncurseError(f"{source} is empty; pass a log with at least one line")
    following = (block for part in ([first] if first else [], lines) for block in part)
    if kind == "criteo":
        return CRITEO, following
    names = header.decode("utf-8-sig", "replace").removesuffix("\n").removesuffix("\r").split(",")
    expected = list(AVAZU.kinds)
    if names in (["", *expected], ["Unnamed: 0", *expected]):
        return INDEXED, following
    if names != expected:
        missing = [name for name in expected if name not in names]
        what = f"lacks {', '.join(missing[:3])}" if missing else f"has {len(names)} names in another order"
        raise UncurseError(f"{source} does not start with Avazu's header: it {what}; pass Avazu's train file")
    commas = [line.count(b",") for line in first[: LONGEST - len(header)].split(b"\n")]
    return INDEXED if commas.count(len(expected)) > commas.count(len(expected) - 1) else AVAZU, following


# ---------------------------------------------------------------------------- parsing a block


@dataclass(frozen=True)
class Parsed:
    """The valid rows of a block, and which of its lines are bad."""

    label: NDArray[Any]
    numbers: list[NDArray[Any]]  # 0 where missing or negative
    categories: list[Keys]  # 0 where missing
    lines: int
    bad: NDArray[np.intp]

    def first(self, rows: int) -> Parsed:
        """Return the first rows, and the bad lines before the last of them."""
        last = np.delete(np.arange(self.lines), self.bad)[rows - 1]
        numbers = [_narrow(part[:rows]) for part in self.numbers]
        categories = [part[:rows] for part in self.categories]
        return Parsed(self.label[:rows], numbers, categories, int(last) + 1, self.bad[self.bad < last])


def parse(block: bytes, layout: Layout) -> Parsed:
    """Parse a block of complete lines."""
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    try:
        columns, bad = _plain_columns(text, layout), np.zeros(0, np.intp)
    except pa.ArrowInvalid:
        columns, bad = _checked_columns(text, layout)
    split = 1 + len(layout.names("number"))
    label, *numbers = (_narrow(np.maximum(values, 0)) for values in columns[:split])
    return Parsed(label, numbers, columns[split:], len(label) + len(bad), bad)


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(smallest(int(values.max(initial=0))))


_TEXTS = pa.dictionary(pa.int32(), pa.string())
_CHECKED = dict.fromkeys(_RULES, _TEXTS) | {"skip": None}  # every text is checked, once per distinct text of the block
_PLAIN = dict.fromkeys(_RULES, pa.int32()) | {"skip": pa.binary(), "hex": pa.binary(8)}
_BOUNDS = {
    "label": (0, 1),
    "number": (-_LARGEST, _LARGEST),
    "whole": (1 - 10**8, 10**8 - 1),
    "hour": (10**7, 10**8 - 1),
}


def _plain_columns(text: bytes, layout: Layout) -> list[NDArray[Any]]:
    """Return the columns of a block if all its lines are good and in the usual spelling; raise for any other.

    PyArrow reads " 07" and "0x7" as 7, and eight bytes of any kind. Two sums show that there are none: numbers without
    zeros in front and the other fields have as many characters as the text, and only separators and the minus signs
    of negative numbers come before "0" in ASCII.
    """
    columns: list[NDArray[Any]] = []
    good, characters, negative = b"\r" not in text, 0, 0  # PyArrow ends a line there
    for kind, array in _arrays(text, layout, _PLAIN):
        content = array.buffers()[1]
        if kind == "skip":  # alone makes lines long
            ends = np.frombuffer(content, np.int32, len(array) + 1)
            good &= bool(np.diff(ends).max() < LONGEST // 2)
            characters += int(ends[-1])
            continue
        if kind == "hex":
            characters += 8 * (len(array) - array.null_count)
            columns.append(np.frombuffer(content, np.int64, len(array)))
            continue
        values = np.frombuffer(content, np.int32, len(array))  # 0 where missing
        (low, high), least, most = _BOUNDS[kind], int(values.min()), int(values.max())
        good &= low <= least and most <= high and not (kind in ("label", "hour") and array.null_count)
        if least < 0:
            below = values[values < 0]
            negative += len(below)
            characters += _digits(-below, -least)  # and a minus sign each instead of the digit of 0 below
        numbers = np.maximum(values, 0).astype(smallest(most)) if kind in ("label", "number") else values
        characters += _digits(numbers, most) - array.null_count
        if kind == "hour":
            values = values % 100
            good &= bool(values.max() < 24)
        if kind in ("hour", "whole"):
            numbers = to_keys(values, kind)
            if array.null_count:
                numbers[array.is_null().to_numpy(zero_copy_only=False)] = 0
        columns.append(numbers)
    separators, low_bytes = len(columns[0]) * len(layout.kinds), 0
    for part in chunks(len(text), 1 << 18):
        piece = np.frombuffer(text, np.int8)[part]
        low_bytes += int(np.count_nonzero(piece < ord("0")))
        good &= piece.max() <= ord("f") and (piece - ord(":")).view(np.uint8).min() >= ord("a") - ord(":")
    good &= characters + separators == len(text) and low_bytes == separators + negative
    if not good:
        raise pa.ArrowInvalid("unusual")
    return columns


def _digits(values: NDArray[Any], most: int) -> int:
    """Count the digits of whole numbers up to `most`; a negative one counts as 0."""
    powers = (10**i for i in range(1, len(str(most))))
    return len(values) + sum(int(np.count_nonzero(values >= power)) for power in powers)


def _checked_columns(text: bytes, layout: Layout) -> tuple[list[NDArray[Any]], NDArray[np.intp]]:
    """Return the columns of the good lines of a block, and the places of the bad lines."""
    allowed = re.compile(rb"[ -~" + layout.separator.encode() + rb"]*")
    lines = text.split(b"\n")[:-1]
    # A line of one field is no line of a log, so PyArrow skips it.
    lines = [line if len(line) <= LONGEST and allowed.fullmatch(line) else b"-" for line in lines]
    skipped: list[int] = []
    arrays = _arrays(b"\n".join([*lines, b""]), layout, _CHECKED, skipped)
    columns, valid = zip(*(_from_texts(array, kind) for kind, array in arrays), strict=True)
    good = np.all(valid, axis=0)
    places = np.delete(np.arange(len(lines)), skipped)[good]
    return [values[good] for values in columns], np.delete(np.arange(len(lines)), places)


def _arrays(
    text: bytes, layout: Layout, types: dict[str, Any], skipped: list[int] | None = None
) -> list[tuple[str, Any]]:
    """Return kinds and columns of the lines that have all fields; `skipped` gets the places of the other lines."""

    def skip(row: Any) -> str:
        cast(list[int], skipped).append(row.number - 1)
        return "skip"

    kept = {name: types[kind] for name, kind in layout.kinds.items() if types[kind]}
    read = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(layout.kinds))
    parse = csv.ParseOptions(delimiter=layout.separator, quote_char=False, double_quote=False, ignore_empty_lines=False)
    if skipped is not None:
        parse.invalid_row_handler = skip
    convert = csv.ConvertOptions(column_types=kept, include_columns=list(kept), null_values=[""], check_utf8=False)
    convert.strings_can_be_null = True
    table = csv.read_csv(pa.BufferReader(text), read, parse, convert)
    return [(layout.kinds[name], table.column(name).chunk(0)) for name in kept]


def _from_texts(column: Any, kind: str) -> tuple[NDArray[Any], Mask]:
    """Return the numbers or keys of dictionary-encoded texts, 0 for missing ones, and which rows are valid."""
    matches = pc.match_substring_regex(column.dictionary, f"^({_RULES[kind][0]})$")
    texts = pc.binary_join_element_wise("0x" if kind == "hex" else "", pc.if_else(matches, column.dictionary, "0"), "")
    values, valid = texts.cast(pa.int64()).to_numpy(), matches.to_numpy(zero_copy_only=False)
    if kind == "number":
        valid = valid & (np.abs(values) <= _LARGEST)
    elif kind != "label":
        values = to_keys(values % 100 if kind == "hour" else values, kind)
    indices = column.indices.fill_null(len(values)).to_numpy()
    return np.append(values, 0)[indices], np.append(valid, kind != "label")[indices]


def to_keys(values: NDArray[Any], kind: str) -> Keys:
    """Return a positive key for each value of a category: its eight hexadecimal characters, or the shifted number."""
    if kind == "hex":
        return np.frombuffer(values.astype(">u4").tobytes().hex().encode(), np.int64)
    return values.astype(np.int64) + _SHIFT


def from_keys(keys: Keys, kind: str) -> NDArray[Any]:
    """Return the values of keys.

    >>> from_keys(to_keys(np.array([10, 1 << 31]), "hex"), "hex"), from_keys(to_keys(np.array([-1]), "whole"), "whole")
    (array([        10, 2147483648], dtype=uint32), array([-1], dtype=int32))
    """
    if kind == "hex":
        return np.frombuffer(bytes.fromhex(keys.tobytes().decode()), ">u4").astype(np.uint32)
    return (keys - _SHIFT).astype(np.int32)


def fault(line: bytes, layout: Layout) -> str:
    """Say what is wrong with a bad line."""
    line = line.removesuffix(b"\r")
    if len(line) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    odd = sorted(set(line) - set(range(32, 127)) - {ord(layout.separator)})
    if odd:
        return f"holds the byte 0x{odd[0]:02x}, which is no text"
    texts = line.decode("ascii").split(layout.separator)
    if len(texts) != len(layout.kinds):
        return f"{len(texts)} fields instead of {len(layout.kinds)}"
    for text, (name, kind) in zip(texts, layout.kinds.items(), strict=True):
        pattern, expected = _RULES[kind]
        valid = re.fullmatch(pattern, text) and (kind != "number" or abs(int(text)) <= _LARGEST)
        if not valid and (text or kind == "label"):
            return f"{name} is {text[:20]!r}, {expected}"
    return "not readable"  # pragma: no cover
