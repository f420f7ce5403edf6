"""Criteo's and Avazu's click logs, read once in memory that does not grow with them, and encoded to one file.

Rows are parsed in blocks, categories numbered as they appear, and columns kept in a temporary file; when all training
rows are known, the columns are written again with their final codes.
"""

from __future__ import annotations

import gzip
import io
import os
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..cores import cores
from ..documents import replacing
from ..links import UncurseError, check_choice, check_count
from .encoded import Column, Encoded, write
from .parsing import LONGEST, MARGIN, SHOWN, Bytes, Layout, Parsed, fault, parse
from .vocabularies import Codes, Vocabulary, smallest

Mask = NDArray[np.bool_]
Training = Mask | Callable[[int, int], Mask] | None

_BLOCK = 1 << 22  # bytes: some 17,000 rows, whose columns stay in the cache
_PEEK = 100  # lines that tell whether there is a row index

_CRITEO = Layout(
    separator=9,
    names=("label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))),
    roles=("label", *["number"] * 13, *["hex"] * 26),
)
_HEX = ("site_id", "site_domain", "site_category", "app_id", "app_domain", "app_category")
_HEX += ("device_id", "device_ip", "device_model")
_WHOLE = ("device_type", "device_conn_type", *(f"C{i}" for i in range(14, 22)))
_AVAZU = Layout(
    separator=44,
    names=("id", "click", "hour", "C1", "banner_pos", *_HEX, *_WHOLE),
    roles=("skip", "label", "hour", "whole", "whole", *["hex"] * len(_HEX), *["whole"] * len(_WHOLE)),
)
_INDEXED = Layout(44, ("", *_AVAZU.names), ("skip", *_AVAZU.roles))  # with the row index that data frames write

#: The logs that are read.
KINDS = ("criteo", "avazu")


def encode(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kind: str,
    rows: int | None = None,
    training: Training = None,
    vocabulary: str = "training",
    min_count: int = 1,
    bad_share: float = 0.01,
    progress: Callable[[int], None] | None = None,
) -> Encoded:
    """Read a click log once and write it as one compact file that memory-maps.

    Parameters
    ----------
    source : path
        Criteo's ``train.txt`` or Avazu's ``train``, as text or gzipped.
    target : path
        The file to write; it appears when it is complete.
    kind : {"criteo", "avazu"}
    rows : int, optional
        Only the first so many good rows.
    training : mask of the good rows, or callable (start, stop) -> mask, optional
        Which rows are training rows; all by default.
    vocabulary : {"training", "all"}
        Whose values are known: those of the training rows, or of all rows as in DLRM's reference implementation.
    min_count : int
        How often a value must be seen there to be known.
    bad_share : float
        Bad lines are skipped and counted; more than this share of them is an error.
    progress : callable, optional
        Told the number of rows done since the last time.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = "1" + 13 * "\\t3" + 25 * "\\t{0:08x}" + "\\t\\n"
    >>> _ = (folder / "train.txt").write_text("".join(line.format(i) for i in (7, 9, 7, 8)))
    >>> encoded = encode(
    ...     folder / "train.txt", folder / "train.clicks", kind="criteo", training=np.array([True, True, True, False])
    ... )
    >>> encoded.clicks().codes[:, [0, 25]].tolist()  # 8 is in no training row, the last category always missing
    [[2, 0], [3, 0], [2, 0], [1, 0]]
    """
    check_choice("kind", kind, KINDS)
    check_choice("vocabulary", vocabulary, ("training", "all"))
    limit = None if rows is None else check_count(rows, "rows")
    least = check_count(min_count, "min_count")
    if isinstance(bad_share, bool) or not isinstance(bad_share, int | float) or not 0 <= bad_share <= 1:
        raise UncurseError(f"bad_share={bad_share!r} is not a share; pass a number from 0 to 1, such as 0.01")
    source, target = Path(source), Path(target)
    _check_paths(source, target)
    with ExitStack() as stack:
        stream = _open(source, stack)
        try:
            spill = stack.enter_context(tempfile.TemporaryFile(dir=target.parent))
        except OSError as error:
            raise UncurseError(f"cannot write {target}: {error.strerror}") from None
        threads = stack.enter_context(ThreadPoolExecutor(cores()))
        job = _Job(source, limit, training, vocabulary, least, float(bad_share), spill, threads)
        try:
            layout, pending = _layout(stream, kind, source)
            blocks = _blocks(stream, pending, source)
            job.read(blocks, layout, header=kind == "avazu", progress=progress)
            with replacing(target) as temporary:
                write(temporary, job.rows, job.columns(layout), {"log": kind, **job.about()})
        except OSError as error:
            raise UncurseError(f"cannot write {target}: {error.strerror}") from None
        finally:
            threads.shutdown(cancel_futures=True)
    return Encoded.open(target)


def _check_paths(source: Path, target: Path) -> None:
    if source.is_dir():
        raise UncurseError(f"{source} is a folder; pass the log in it, such as {source / 'train.txt'}")
    if not source.exists():
        raise UncurseError(f"there is no file {source}; pass the path of the log")
    if target.is_dir():
        raise UncurseError(f"{target} is a folder; pass a file to write, such as {target / (source.stem + '.clicks')}")
    if target.exists() and target.samefile(source):
        raise UncurseError(f"{target} is the log itself; write the encoded rows to another file")


# ---------------------------------------------------------------------------- bytes


def _open(source: Path, stack: ExitStack) -> IO[bytes]:
    try:
        file = stack.enter_context(source.open("rb"))
        zipped = file.peek(2)[:2] == b"\x1f\x8b"
    except OSError as error:
        raise UncurseError(f"cannot read {source}: {error.strerror}") from None
    return stack.enter_context(gzip.open(file)) if zipped else file  # type: ignore[return-value]


def _read(stream: IO[bytes], into: memoryview, source: Path) -> int:
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


def _layout(stream: IO[bytes], kind: str, source: Path) -> tuple[Layout, bytes]:
    """The columns of the log, and what was read to know them but is not the header."""
    head = bytearray(_PEEK * 1024)
    head = head[: _read(stream, memoryview(head), source)]
    if not head:
        raise UncurseError(f"{source} is empty; pass a log with at least one line")
    if kind == "criteo":
        return _CRITEO, bytes(head)
    header, _, rest = bytes(head).partition(b"\n")
    names = tuple(header.decode("utf-8-sig", "replace").removesuffix("\r").split(","))
    if names in (_INDEXED.names, ("Unnamed: 0", *_AVAZU.names)):
        return _INDEXED, rest
    if names != _AVAZU.names:
        missing = [name for name in _AVAZU.names if name not in names]
        what = f"lacks {', '.join(missing[:3])}" if missing else f"has {len(names)} names in another order"
        raise UncurseError(f"{source} does not start with Avazu's header: it {what}; pass Avazu's train file")
    commas = [line.count(b",") for line in rest.split(b"\n")[:_PEEK]]
    indexed = commas.count(len(_AVAZU.names)) > commas.count(len(_AVAZU.names) - 1)
    return (_INDEXED if indexed else _AVAZU), rest


def _blocks(stream: IO[bytes], pending: bytes, source: Path) -> Iterator[Bytes]:
    """Blocks of whole lines behind `MARGIN` bytes. Of a line longer than any good one only the start is kept."""
    skipping = False
    while True:
        start = MARGIN + len(pending)
        block = np.empty(start + _BLOCK + 1, np.uint8)
        block[MARGIN:start] = np.frombuffer(pending, np.uint8)
        got = _read(stream, memoryview(block)[start:-1], source)
        end, over = start + got, got < _BLOCK
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
        if over:
            return


# ---------------------------------------------------------------------------- rows


@dataclass
class _Spilled:
    """A column in the temporary file: pieces of growing types, and the largest value."""

    top: int = 0
    pieces: list[tuple[int, int, np.dtype[Any]]] = field(default_factory=list)  # offset, rows, type


class _Job:
    """One pass over a log: what is counted, numbered and kept."""

    def __init__(
        self,
        source: Path,
        limit: int | None,
        training: Training,
        vocabulary: str,
        least: int,
        bad_share: float,
        spill: IO[bytes],
        threads: ThreadPoolExecutor,
    ) -> None:
        self.source, self.limit, self.training, self.rule = source, limit, training, vocabulary
        self.least, self.bad_share, self.spill, self.threads = least, bad_share, spill, threads
        self.rows = self.training_rows = self.lines = self.bad = 0
        self.first_bad: list[tuple[int, str]] = []
        self.label, self.numbers, self.codes = _Spilled(top=1), list[_Spilled](), list[_Spilled]()
        self.vocabularies: list[Vocabulary] = []
        self._lock, self._end = threading.Lock(), 0

    def read(
        self, blocks: Iterator[Bytes], layout: Layout, *, header: bool, progress: Callable[[int], None] | None
    ) -> None:
        """All blocks: parsed ahead in threads, kept in order."""
        self.numbers = [_Spilled() for _ in layout.of("number")]
        self.vocabularies = [Vocabulary() for _ in layout.of("hex", "whole", "hour")]
        self.codes = [_Spilled() for _ in self.vocabularies]
        for parsed in _ahead(self.threads, blocks, layout):
            left = len(parsed.label) if self.limit is None else self.limit - self.rows
            if left < len(parsed.label):
                parsed = parsed.first(left)
            self._note(parsed, layout, header)
            if len(parsed.label):
                self._keep(parsed)
                if progress is not None:
                    progress(len(parsed.label))
            if self.rows == self.limit:
                break
        self._check()

    def _note(self, parsed: Parsed, layout: Layout, header: bool) -> None:
        """Count the bad lines, and refuse a log whose first block is nothing else."""
        for i, line in list(zip(parsed.bad, parsed.shown, strict=False))[: SHOWN - len(self.first_bad)]:
            self.first_bad.append((self.lines + int(i) + 1 + header, fault(line, layout)))
        self.lines += parsed.lines
        self.bad += len(parsed.bad)
        if self.rows == len(parsed.label) == 0 and self.lines >= 1_000:
            self._check()

    def _check(self) -> None:
        if not self.rows or self.bad > self.bad_share * self.lines:
            if not self.bad:
                raise UncurseError(f"{self.source} has no row; pass a log with at least one line")
            line, reason = self.first_bad[0]
            raise UncurseError(
                f"{self.bad:,} of the first {self.lines:,} lines of {self.source} are bad ({self.bad / self.lines:.1%}, "
                f"more than bad_share={self.bad_share:g}), first line {line}: {reason}; "
                "check the kind of log, repair it, or raise bad_share"
            )
        if isinstance(self.training, np.ndarray) and len(self.training) != self.rows:
            self._refuse_training(len(self.training), self.rows)
        if self.rule == "training" and not self.training_rows:
            raise UncurseError(f"none of the {self.rows:,} rows is a training row, so no value would be known")

    def _refuse_training(self, given: int, rows: int) -> None:
        raise UncurseError(f"training has {given:,} rows and {self.source} has {rows:,} good ones; pass one for each row")

    def _keep(self, parsed: Parsed) -> None:
        count = len(parsed.label)
        mask = self._training_rows(self.rows, self.rows + count)
        self.training_rows += count if mask is None else int(np.count_nonzero(mask))
        counted = None if self.rule == "all" else mask
        counting = counted is not None or self.least > 1

        def number(fields: range) -> list[Codes]:
            found = []
            for j in fields:
                vocabulary = self.vocabularies[j]
                codes = vocabulary.number(parsed.keys[j])
                if counting:
                    vocabulary.count(codes if counted is None else codes[counted], self.least)
                found.append(codes)
            return found

        shares = min(cores(), len(self.codes))
        fields = [range(i, len(self.codes), shares) for i in range(shares)]
        running = [self.threads.submit(number, part) for part in fields]
        self._spill(self.label, parsed.label)
        for spilled, values in zip(self.numbers, parsed.numbers, strict=True):
            spilled.top = max(spilled.top, int(values.max()))
            self._spill(spilled, values)
        for part, future in zip(fields, running, strict=True):
            for j, codes in zip(part, future.result(), strict=True):
                self._spill(self.codes[j], codes)
        self.rows += count

    def _training_rows(self, start: int, stop: int) -> Mask | None:
        if self.training is None:
            return None
        if callable(self.training):
            mask = np.asarray(self.training(start, stop))
        else:
            mask = np.asarray(self.training)
            if mask.ndim == 1 and len(mask) < stop:
                self._refuse_training(len(mask), stop)
            mask = mask[start:stop]
        if mask.dtype != bool or mask.shape != (stop - start,):
            raise UncurseError(
                f"training gave {mask.dtype} of shape {mask.shape} for rows {start} to {stop}; "
                f"a mask is bool, of shape ({stop - start},)"
            )
        return mask

    # ------------------------------------------------------------------------ columns

    def _spill(self, column: _Spilled, values: NDArray[Any]) -> None:
        self.spill.write(np.ascontiguousarray(values).data)
        column.pieces.append((self._end, len(values), values.dtype))
        self._end += values.nbytes

    def _pieces(self, column: _Spilled) -> Iterator[NDArray[Any]]:
        for offset, rows, kind in column.pieces:
            with self._lock:
                self.spill.seek(offset)
                content = self.spill.read(rows * kind.itemsize)
            yield np.frombuffer(content, kind)

    def columns(self, layout: Layout) -> list[Column]:
        """What to write, with the final codes."""
        found = [self._plain("label", "label", self.label)]
        found += [self._plain(n, "number", s) for n, s in zip(layout.of("number"), self.numbers, strict=True)]
        names = layout.of("hex", "whole", "hour")
        for name, spilled, vocabulary in zip(names, self.codes, self.vocabularies, strict=True):
            found.append(self._coded(name, spilled, vocabulary.size, vocabulary.close(self.least)))
        return found

    def _plain(self, name: str, role: str, spilled: _Spilled) -> Column:
        return Column(name, role, smallest(spilled.top), spilled.top + 1, lambda: self._pieces(spilled))

    def _coded(self, name: str, spilled: _Spilled, size: int, final: NDArray[np.uint32] | None) -> Column:
        size = size if final is None else max(2, int(final.max()) + 1)
        kind = smallest(size - 1)
        final = None if final is None else final.astype(kind)

        def pieces() -> Iterator[NDArray[Any]]:
            return self._pieces(spilled) if final is None else (final[numbers] for numbers in self._pieces(spilled))

        return Column(name, "category", kind, size, pieces)

    def about(self) -> dict[str, Any]:
        """The header's part on how it was read."""
        return {
            "vocabulary": self.rule,
            "min_count": self.least,
            "training_rows": self.training_rows,
            "lines": self.lines,
            "bad_lines": self.bad,
            "first_bad": self.first_bad,
        }


def _ahead(threads: ThreadPoolExecutor, blocks: Iterator[Bytes], layout: Layout) -> Iterator[Parsed]:
    """Parsed blocks in order, some of them begun before they are asked for."""
    running: deque[Future[Parsed]] = deque()
    for block in blocks:
        running.append(threads.submit(parse, block, layout))
        if len(running) > cores():
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


__all__ = ["KINDS", "Encoded", "encode"]
