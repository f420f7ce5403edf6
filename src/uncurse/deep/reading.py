"""Criteo's and Avazu's click logs, read once in memory that does not grow with them, and encoded to one file.

Rows are parsed in blocks, categories numbered as they appear, and columns kept in a temporary file; when all training
rows are known, the columns are written again with their final codes.
"""

from __future__ import annotations

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

from ..documents import replacing
from ..errors import UncurseError
from ..threads import cores
from ..validation import check_choice, check_count
from .blocks import blocks, find_layout, open_log
from .encoded import Column, Encoded, write
from .parsing import SHOWN, Bytes, Layout, Parsed, fault, parse
from .vocabularies import Codes, Vocabulary, smallest

Mask = NDArray[np.bool_]
Progress = Callable[[int], None]  # told how many rows were read since the last time
Training = Mask | Callable[[int, int], Mask] | None

_HELD = 32 << 20  # bytes of columns that stay in memory; the rest waits in a temporary file

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
    progress: Progress | None = None,
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
        stream = open_log(source, stack)
        try:
            spill = stack.enter_context(tempfile.TemporaryFile(dir=target.parent))
        except OSError as error:
            raise UncurseError(f"cannot write {target}: {error.strerror}") from None
        threads = stack.enter_context(ThreadPoolExecutor(cores()))
        training = training if training is None or callable(training) else np.asarray(training)
        job = _Job(source, limit, training, vocabulary, least, float(bad_share), spill, threads)
        try:
            layout, pending = find_layout(stream, kind, source)
            job.read(blocks(stream, pending, source, ahead=_ahead()), layout, header=kind == "avazu", progress=progress)
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


# ---------------------------------------------------------------------------- rows


@dataclass
class _Spilled:
    """A column in pieces of growing types, in memory or in the temporary file, and its largest value."""

    top: int = 0
    pieces: list[NDArray[Any] | tuple[int, int, np.dtype[Any]]] = field(default_factory=list)  # or offset, rows, type


@dataclass
class _Job:
    """One pass over a log: what is counted, numbered and kept."""

    source: Path
    limit: int | None
    training: Training
    rule: str
    least: int
    bad_share: float
    spill: IO[bytes]
    threads: ThreadPoolExecutor
    rows: int = 0
    training_rows: int = 0
    lines: int = 0
    bad: int = 0
    first_bad: list[tuple[int, str]] = field(default_factory=list)
    label: _Spilled = field(default_factory=lambda: _Spilled(top=1))
    numbers: list[_Spilled] = field(default_factory=list)
    codes: list[_Spilled] = field(default_factory=list)
    vocabularies: list[Vocabulary] = field(default_factory=list)
    _last: list[Future[list[Codes]] | None] = field(default_factory=lambda: [None] * cores())
    _lock: Any = field(default_factory=threading.Lock)
    training_crc: int = 0  # of the mask's bytes
    _held: int = 0  # bytes of columns in memory
    _end: int = 0  # of the temporary file

    def read(self, unparsed: Iterator[Bytes], layout: Layout, *, header: bool, progress: Progress | None) -> None:
        """All blocks: parsed ahead in threads, kept in order."""
        self.numbers = [_Spilled() for _ in layout.of("number")]
        self.vocabularies = [Vocabulary() for _ in layout.of("hex", "whole", "hour")]
        self.codes = [_Spilled() for _ in self.vocabularies]
        begun: deque[tuple[Parsed, list[Future[list[Codes]]]]] = deque()
        for parsed in _parsed(self.threads, unparsed, layout):
            left = len(parsed.label) if self.limit is None else self.limit - self.rows
            if left < len(parsed.label):
                parsed = parsed.first(left)
            self._note(parsed, layout, header)
            if len(parsed.label):
                begun.append((parsed, self._begin(parsed)))
            if len(begun) > 1:  # the next block is under way while one is written
                self._keep(*begun.popleft(), progress)
            if self.rows == self.limit:
                break
        for parsed, running in begun:
            self._keep(parsed, running, progress)
        self._check()

    def _note(self, parsed: Parsed, layout: Layout, header: bool) -> None:
        """Count the bad lines, and refuse a log that begins with nothing else: it is hardly of this kind."""
        for i, line in list(zip(parsed.bad, parsed.shown, strict=False))[: SHOWN - len(self.first_bad)]:
            self.first_bad.append((self.lines + int(i) + 1 + header, fault(line, layout)))
        self.lines += parsed.lines
        self.bad += len(parsed.bad)
        if self.bad == self.lines >= 1_000:
            self._check_share()

    def _check_share(self) -> None:
        if self.bad > self.bad_share * self.lines:
            line, reason = self.first_bad[0]
            raise UncurseError(
                f"{self.bad:,} of {self.lines:,} lines of {self.source} are bad, {self.bad / self.lines:.1%} and more "
                f"than bad_share={self.bad_share:g}, first line {line}: {reason}; "
                "check the kind of log, repair it, or raise bad_share"
            )

    def _check(self) -> None:
        self._check_share()
        if not self.rows:
            raise UncurseError(f"{self.source} has no good line; pass a log with at least one")
        if isinstance(self.training, np.ndarray) and len(self.training) != self.rows:
            self._refuse_training(len(self.training), self.rows)
        if self.rule == "training" and not self.training_rows:
            raise UncurseError(
                f"none of the {self.rows:,} rows is a training row, so no value would be known; mark some in training"
            )

    def _refuse_training(self, given: int, rows: int) -> None:
        raise UncurseError(f"training has {given:,} rows and {self.source} has {rows:,} good ones; pass one for each")

    def _begin(self, parsed: Parsed) -> list[Future[list[Codes]]]:
        """Number the categories of a block, a share of the fields in each thread, after the block before."""
        count = len(parsed.label)
        mask = self._training_rows(self.rows, self.rows + count)
        self.rows += count
        self.training_rows += count if mask is None else int(np.count_nonzero(mask))
        self.training_crc = 0 if mask is None else zlib.crc32(mask.tobytes(), self.training_crc)
        counted = None if self.rule == "all" else mask
        counting = counted is not None or self.least > 1

        def number(fields: slice, before: Future[Any] | None) -> list[Codes]:
            if before is not None:
                before.result()  # it was begun earlier, so it never waits for this one
            found = []
            for vocabulary, keys in zip(self.vocabularies[fields], parsed.keys[fields], strict=True):
                codes = vocabulary.number(keys)
                if counting:
                    vocabulary.count(codes if counted is None else codes[counted], self.least)
                found.append(codes)
            return found

        for i, before in enumerate(self._last):
            self._last[i] = self.threads.submit(number, slice(i, None, len(self._last)), before)
        return [future for future in self._last if future is not None]

    def _keep(self, parsed: Parsed, running: list[Future[list[Codes]]], progress: Progress | None) -> None:
        """Write the columns of a block to the temporary file."""
        self._spill(self.label, parsed.label)
        for spilled, values in zip(self.numbers, parsed.numbers, strict=True):
            spilled.top = max(spilled.top, int(values.max()))
            self._spill(spilled, values)
        for i, future in enumerate(running):
            for spilled, codes in zip(self.codes[i :: len(running)], future.result(), strict=True):
                self._spill(spilled, codes)
        if progress is not None:
            progress(len(parsed.label))

    def _training_rows(self, start: int, stop: int) -> Mask | None:
        if self.training is None:
            return None
        if callable(self.training):
            mask = np.asarray(self.training(start, stop))
        else:
            if self.training.ndim == 1 and len(self.training) < stop:
                self._refuse_training(len(self.training), stop)
            mask = self.training[start:stop] if self.training.ndim else self.training
        if mask.dtype != bool or mask.shape != (stop - start,):
            raise UncurseError(
                f"training gave {mask.dtype} of shape {mask.shape} for rows {start} to {stop}; "
                f"a mask is bool, of shape ({stop - start},)"
            )
        return mask

    # ------------------------------------------------------------------------ columns

    def _spill(self, column: _Spilled, values: NDArray[Any]) -> None:
        if self._held + values.nbytes <= _HELD:
            self._held += values.nbytes
            column.pieces.append(values)
            return
        self.spill.write(np.ascontiguousarray(values).data)
        column.pieces.append((self._end, len(values), values.dtype))
        self._end += values.nbytes

    def _pieces(self, column: _Spilled) -> Iterator[NDArray[Any]]:
        for piece in column.pieces:
            if isinstance(piece, np.ndarray):
                yield piece
                continue
            offset, rows, kind = piece
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
            "source": self.source.name,
            "source_bytes": self.source.stat().st_size,
            "training_crc": self.training_crc,
            "vocabulary": self.rule,
            "min_count": self.least,
            "training_rows": self.training_rows,
            "lines": self.lines,
            "bad_lines": self.bad,
            "first_bad": self.first_bad,
        }


def _parsed(threads: ThreadPoolExecutor, unparsed: Iterator[Bytes], layout: Layout) -> Iterator[Parsed]:
    """Parsed blocks in order, some of them begun before they are asked for."""
    running: deque[Future[Parsed]] = deque()
    for block in unparsed:
        running.append(threads.submit(parse, block, layout))
        if len(running) >= _ahead():
            yield running.popleft().result()
    while running:
        yield running.popleft().result()


def _ahead() -> int:
    """Blocks read before the first is done with: no core waits while rows are kept."""
    return cores() + 2


__all__ = ["KINDS", "Encoded", "encode"]
