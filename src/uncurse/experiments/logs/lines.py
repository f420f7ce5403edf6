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

from ...errors import UncurseError
from ...threads import chunks

BLOCK = 4 << 20  # bytes: about 17,000 rows, whose dictionaries fit in the cache
LONGEST = 1 << 16  # bytes of a line; real lines have a few hundred
Mask = NDArray[np.bool_]

MISSING = -(1 << 32)  # less than any value
_LARGEST = (1 << 31) - 1

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
    """Yield blocks of complete lines. Of a line that crosses a block's end at most `LONGEST` more bytes are kept."""
    with _reading(source):
        while block := stream.read(BLOCK):
            rest = stream.readline(LONGEST + 1)
            block += rest
            while rest and not rest.endswith(b"\n"):
                rest = stream.readline(LONGEST)
            yield block if block.endswith(b"\n") else block + b"\n"


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
    categories: list[NDArray[np.int64]]  # an integer for each value, `MISSING` where there is none
    lines: int
    bad: NDArray[np.intp]

    def first(self, rows: int) -> Parsed:
        """Return the first rows, and the bad lines before the last of them."""
        last = np.delete(np.arange(self.lines), self.bad)[rows - 1]
        numbers, categories = ([part[:rows] for part in parts] for parts in (self.numbers, self.categories))
        return Parsed(self.label[:rows], numbers, categories, int(last) + 1, self.bad[self.bad < last])


def parse(block: bytes, layout: Layout) -> Parsed:
    """Parse a block of complete lines."""
    text = _clean(block, layout)
    strict = any(part in text for part in (b" ", b"x", b"X"))  # PyArrow reads " 16 " and "0x10" as 16
    try:
        columns, valid, skipped = _columns(text, layout, _CHECKED if strict else _FAST)
    except pa.ArrowInvalid:  # a text is not of its column's type
        columns, valid, skipped = _columns(text, layout, _CHECKED)
    lines = len(valid) + len(skipped)
    rows = np.delete(np.arange(lines), skipped)
    if not valid.all():
        columns = {name: values[valid] for name, values in columns.items()}
    label, *numbers = (np.maximum(columns[name], 0) for name in layout.names("label", "number"))
    numbers = [part.astype(smallest(int(part.max(initial=0)))) for part in numbers]
    categories = [columns[name] for name in layout.categories]
    return Parsed(label.astype(np.uint8), numbers, categories, lines, np.delete(np.arange(lines), rows[valid]))


def _clean(block: bytes, layout: Layout) -> bytes:
    """Remove carriage returns, and replace lines that are too long or hold bytes that are not printable ASCII."""
    text = block.replace(b"\r\n", b"\n") if b"\r" in block else block
    odd = b"\r" in text or b"\0" in text or not text.isascii()
    if layout.names("skip"):  # the only fields whose bytes are not checked later
        content = np.frombuffer(text, np.uint8)
        control = sum(np.count_nonzero(content[part] < 32) for part in chunks(len(content)))
        odd = odd or b"\x7f" in text or bool(control > text.count(b"\n"))
    if not odd and not _has_long_line(block):
        return text
    lines = block.split(b"\n")
    allowed = re.compile(rb"[ -~" + layout.separator.encode() + rb"]*\r?")
    # A line of one field is no line of a log, so PyArrow skips it.
    lines = [line if len(line) <= LONGEST and allowed.fullmatch(line) else b"-" for line in lines]
    return b"\n".join(lines).replace(b"\r\n", b"\n")


def _has_long_line(block: bytes) -> bool:
    start = 0
    while len(block) - start > LONGEST:
        start = block.rfind(b"\n", start, start + LONGEST + 1) + 1
        if not start:
            return True
    return False


_TEXTS = pa.dictionary(pa.int32(), pa.string())
_CHECKED = dict.fromkeys(_RULES, _TEXTS)  # every text is checked, once per distinct text of the block
_FAST = _CHECKED | {"number": pa.int32(), "whole": pa.string(), "hex": pa.binary(8)}


def _columns(text: bytes, layout: Layout, types: dict[str, Any]) -> tuple[dict[str, NDArray[Any]], Mask, list[int]]:
    """Return the rows that have all fields, which of them are valid, and the places of the other lines."""
    skipped: list[int] = []

    def skip(row: Any) -> str:
        skipped.append(row.number - 1)
        return "skip"

    kept = {name: types[kind] for name, kind in layout.kinds.items() if kind != "skip"}
    read = csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=list(layout.kinds))
    parse = csv.ParseOptions(delimiter=layout.separator, quote_char=False, double_quote=False, ignore_empty_lines=False)
    parse.invalid_row_handler = skip
    convert = csv.ConvertOptions(column_types=kept, include_columns=list(kept), null_values=[""], check_utf8=False)
    convert.strings_can_be_null = True
    table = csv.read_csv(pa.BufferReader(text), read, parse, convert)
    columns, valid = {}, np.ones(len(table), bool)
    for name in kept:
        columns[name], fine = _values(table.column(name).combine_chunks(), layout.kinds[name])
        valid &= fine
    return columns, valid, skipped


def _values(column: Any, kind: str) -> tuple[NDArray[Any], Mask | np.bool_]:
    """Return the integers that texts stand for, `MISSING` for none, and which rows are valid."""
    if column.type == pa.binary(8):
        return _from_hex(np.frombuffer(column.buffers()[1], "<u8", len(column)))
    if column.type == pa.int32():
        values = column.fill_null(0).to_numpy()
        return values, values >= -_LARGEST
    if column.type == pa.string():
        if np.diff(np.frombuffer(column.buffers()[1], np.int32, len(column) + 1)).max(initial=0) > 8:
            raise pa.ArrowInvalid("too long")
        values = column.cast(pa.int64())
        return (values.fill_null(MISSING) if values.null_count else values).to_numpy(), np.True_
    matches = pc.match_substring_regex(column.dictionary, f"^({_RULES[kind][0]})$")
    texts = pc.binary_join_element_wise("0x" if kind == "hex" else "", pc.if_else(matches, column.dictionary, "0"), "")
    values, valid = texts.cast(pa.int64()).to_numpy(), matches.to_numpy(zero_copy_only=False)
    if kind == "number":
        valid = valid & (np.abs(values) <= _LARGEST)
    indices = column.indices.fill_null(len(values)).to_numpy()
    values = np.append(values % 100 if kind == "hour" else values, MISSING)
    return values[indices], np.append(valid, kind != "label")[indices]


def _from_hex(words: NDArray[np.uint64]) -> tuple[NDArray[Any], Mask | np.bool_]:
    """Return the values of eight hexadecimal characters each, as 64-bit words; 0 is a missing value."""
    missing = words == 0
    words = words ^ _every_byte(0x30)  # digits become 0 … 9
    words &= _every_byte(0xDF)  # letters of either case become 0x51 … 0x56
    # Bytes are below 128, so no sum carries: the top bit of b + (128 − c) says b ≥ c, here for 10, 0x51 and 0x57.
    tops = words + _every_byte(128 - 10)
    tops ^= words + _every_byte(128 - 0x51)
    tops ^= words + _every_byte(128 - 0x57)
    tops &= _every_byte(128)
    letters = words >> np.uint64(6)
    letters &= _every_byte(1)
    letters *= np.uint64(9)
    words &= _every_byte(15)
    words += letters  # a byte per digit, the first digit in the lowest; now two, four and eight digits side by side
    for bits, mask in ((4, 0x00FF00FF00FF00FF), (8, 0x0000FFFF0000FFFF), (16, 0xFFFFFFFF)):
        following = words >> np.uint64(2 * bits)
        words <<= np.uint64(bits)
        words |= following
        words &= np.uint64(mask)
    values = words.view(np.int64)
    values[missing] = MISSING
    return values, (tops == 0) | missing


def _every_byte(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)


def smallest(top: int) -> np.dtype[Any]:
    """Return the smallest unsigned type that holds 0 … top.

    >>> smallest(255), smallest(256)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.dtype(np.uint8 if top < 1 << 8 else np.uint16 if top < 1 << 16 else np.uint32)


def fault(line: bytes, layout: Layout) -> str:
    """Say what is wrong with a bad line."""
    if len(line) > LONGEST:
        return f"longer than {LONGEST:,} bytes"
    line = line.removesuffix(b"\r")
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


__all__ = ["MISSING", "Layout", "Parsed", "count_lines", "fault", "open_log", "parse", "read_header", "smallest"]
