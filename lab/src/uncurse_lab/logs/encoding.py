"""Encode a click log: read it once, number the values of its categories, and write one Arrow file.

Codes are final only when all training rows are known. Until then the columns wait in a temporary file, so memory holds
a few blocks and the vocabularies, whatever the length of the log.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from uncurse.documents import replacing
from uncurse.errors import UncurseError
from uncurse.threads import cores
from uncurse.validation import check_choice, check_count, check_number

from .encoded import Encoded, write
from .lines import Layout, Parsed, fault, from_keys, open_log, parse, read_header
from .vocabulary import Vocabulary, smallest

Mask = NDArray[np.bool_]
Training = Mask | Callable[[int, int], Mask] | None
Result = TypeVar("Result")
Progress = Callable[[int], None]  # receives the number of rows read since the last call

KINDS = ("criteo", "avazu")
SHOWN = 5  # bad lines that are described; all are counted


def encode(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    kind: str,
    rows: int | None = None,
    training: Training = None,
    vocabulary: str = "training",
    bad_share: float = 0.01,
    progress: Progress | None = None,
) -> Encoded:
    """Read a click log once and write it as one compact file that memory-maps.

    Parameters
    ----------
    source : path
        Criteo's ``train.txt`` or Avazu's ``train``, as text or gzipped.
    target : path
        File to write; it appears when it is complete.
    kind : {"criteo", "avazu"}
        Format of the log.
    rows : int, optional
        Number of valid rows to read; all by default.
    training : mask of the valid rows, or callable (start, stop) -> mask, optional
        Which rows are training rows; all by default.
    vocabulary : {"training", "all"}, default="training"
        Which values are known: those of the training rows, or those of all rows as in DLRM's reference implementation.
    bad_share : float, default=0.01
        Bad lines are skipped and counted; a larger share of them is an error.
    progress : callable, optional
        Receives the number of rows read since the last call.

    Returns
    -------
    Encoded
        The encoded log.

    Examples
    --------
    >>> folder = Path(tempfile.mkdtemp())
    >>> line = "1" + 13 * "\\t3" + 25 * "\\t{0:08x}" + "\\t\\n"
    >>> _ = (folder / "day1.txt").write_text("".join(line.format(i) for i in (7, 9, 7, 8)))
    >>> training = np.array([True, True, True, False])
    >>> first = encode(folder / "day1.txt", folder / "day1.clicks", kind="criteo", training=training)
    >>> first.clicks().codes[:, [0, 25]].tolist()  # 8 is in no training row, the last category always missing
    [[2, 0], [3, 0], [2, 0], [1, 0]]
    """
    check_choice("kind", kind, KINDS)
    check_choice("vocabulary", vocabulary, ("training", "all"))
    limit = None if rows is None else check_count(rows, "rows")
    if not 0 <= check_number(bad_share, "bad_share") <= 1:
        raise UncurseError(f"bad_share={bad_share!r} is not a share; pass a number from 0 to 1, such as 0.01")
    source, target = Path(source), Path(target)
    for path, what in ((source, "the log in it"), (target, "a file to write")):
        if path.is_dir():
            raise UncurseError(f"{path} is a folder; pass {what}")
    if not source.exists():
        raise UncurseError(f"there is no file {source}; pass the path of the log")
    if target.exists() and target.samefile(source):
        raise UncurseError(f"{target} is the log itself; write the encoded rows to another file")
    try:
        with ExitStack() as stack:
            stream = open_log(source, stack)
            spill = stack.enter_context(tempfile.TemporaryFile(dir=target.parent))
            threads = stack.enter_context(ThreadPoolExecutor(max(1, cores() - 1)))
            stack.callback(threads.shutdown, cancel_futures=True)
            layout, blocks = read_header(stream, source, kind)
            training = training if training is None or callable(training) else np.atleast_1d(training)
            job = _Job(source, layout, limit, training, vocabulary, float(bad_share), spill)
            job.read(blocks, threads, header=kind == "avazu", progress=progress)
            with replacing(target) as temporary:
                write(temporary, job.batches(threads), {"kind": kind, **job.about()})
    except OSError as error:
        raise UncurseError(f"cannot write {target}: {os.strerror(error.errno) if error.errno else error}") from None
    return Encoded.open(target)


@dataclass
class _Job:
    """One pass over a log: counts, vocabularies, and columns in the temporary file."""

    source: Path
    layout: Layout
    limit: int | None
    training: Training
    vocabulary: str
    bad_share: float
    spill: IO[bytes]
    rows: int = 0
    training_rows: int = 0
    training_crc: int = 0
    lines: int = 0
    bad: int = 0
    first_bad: list[tuple[int, str]] = field(default_factory=list)
    kept: list[tuple[Any, int]] = field(default_factory=list)  # schema and bytes of each batch in the temporary file

    def __post_init__(self) -> None:
        self.columns = self.layout.names("label", "number") + self.layout.categories
        self.types = [np.dtype(np.uint8)] * len(self.columns)  # that hold all values so far
        self.vocabularies = {name: Vocabulary() for name in self.layout.categories}

    def read(
        self, blocks: Iterator[bytes], threads: ThreadPoolExecutor, *, header: bool, progress: Progress | None
    ) -> None:
        """Read all blocks: threads parse them ahead, this one numbers and keeps the rows in order."""
        for block, parsed in _ahead(threads, lambda block: parse(block, self.layout), blocks):
            if self.limit is not None and self.rows + len(parsed.label) >= self.limit:
                parsed = parsed.first(self.limit - self.rows)
            self._note(block, parsed, header)
            if len(parsed.label):
                self._keep(parsed)
                if progress is not None:
                    progress(len(parsed.label))
            if self.rows == self.limit:
                break
        self._check()

    def _note(self, block: bytes, parsed: Parsed, header: bool) -> None:
        """Count the bad lines. Stop at a log that starts with nothing else: it is of another kind."""
        shown = parsed.bad[: SHOWN - len(self.first_bad)]
        lines = block.split(b"\n") if len(shown) else []
        self.first_bad += [(self.lines + int(i) + 1 + header, fault(lines[i], self.layout)) for i in shown]
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
        if isinstance(self.training, np.ndarray) and self.training.shape != (self.rows,):
            raise UncurseError(
                f"training has shape {self.training.shape} and {self.source} has {self.rows:,} good rows; pass a mask "
                "with one entry for each"
            )
        if self.vocabulary == "training" and not self.training_rows:
            raise UncurseError(
                f"none of the {self.rows:,} rows is a training row, so no value would be known; mark some in training"
            )

    def _keep(self, parsed: Parsed) -> None:
        """Number the categories of a block, and write its columns to the temporary file."""
        count = len(parsed.label)
        mask = self._training_mask(self.rows, self.rows + count)
        self.rows += count
        self.training_rows += count if mask is None else int(np.count_nonzero(mask))
        self.training_crc = 0 if mask is None else zlib.crc32(mask.tobytes(), self.training_crc)
        training = mask if self.vocabulary == "training" else None
        columns = [parsed.label, *parsed.numbers]
        for vocabulary, keys in zip(self.vocabularies.values(), parsed.categories, strict=True):
            codes = vocabulary.number(keys)
            if training is not None:
                vocabulary.mark(codes[training])
            columns.append(codes)
        self.types = [np.promote_types(a, part.dtype) for a, part in zip(self.types, columns, strict=True)]
        batch = pa.RecordBatch.from_arrays([pa.array(part) for part in columns], self.columns)
        self.kept.append((batch.schema, self.spill.write(batch.serialize())))

    def _training_mask(self, start: int, stop: int) -> Mask | None:
        if self.training is None:
            return None
        mask = np.asarray(self.training(start, stop)) if callable(self.training) else self.training[start:stop]
        if mask.dtype != bool or mask.shape != (stop - start,):
            raise UncurseError(
                f"training gave {mask.dtype} of shape {mask.shape} for rows {start} to {stop}; "
                f"a mask is bool, of shape ({stop - start},)"
            )
        return mask

    def batches(self, threads: ThreadPoolExecutor) -> Iterator[Any]:
        """Yield the columns with their final codes and types."""
        dictionaries, finals = {}, {}
        for name, vocabulary in self.vocabularies.items():
            keys = vocabulary.keys[: vocabulary.size]
            if len(vocabulary.known):
                known = vocabulary.known[: len(keys)]
                known[:2] = True
                keys = keys[known]
                finals[name] = np.where(known, np.cumsum(known) - 1, 1).astype(smallest(len(keys) - 1))
            values = pa.array(from_keys(keys[2:], self.layout.kinds[name]))
            dictionaries[name] = pa.concat_arrays([pa.nulls(2, values.type), values])
        self.vocabularies = {}

        def finish(batch: Any) -> Any:
            arrays = []
            for name, kind, column in zip(self.columns, self.types, batch.columns, strict=True):
                values = column.to_numpy()
                array = pa.array(finals[name][values] if name in finals else values.astype(kind, copy=False))
                if name in dictionaries:
                    array = pa.DictionaryArray.from_arrays(array, dictionaries[name], safe=False)
                arrays.append(array)
            return pa.RecordBatch.from_arrays(arrays, self.columns)

        return (batch for _, batch in _ahead(threads, finish, self._kept()))

    def _kept(self) -> Iterator[Any]:
        self.spill.seek(0)
        for schema, size in self.kept:
            yield pa.ipc.read_record_batch(pa.py_buffer(self.spill.read(size)), schema)

    def about(self) -> dict[str, Any]:
        """Return what the file says of how it was made."""
        return {
            "source": self.source.name,
            "source_bytes": self.source.stat().st_size,
            "vocabulary": self.vocabulary,
            "training_rows": self.training_rows,
            "training_crc": self.training_crc,
            "lines": self.lines,
            "bad_lines": self.bad,
            "first_bad": self.first_bad,
        }


def _ahead(
    threads: ThreadPoolExecutor, function: Callable[[Any], Result], items: Iterator[Any]
) -> Iterator[tuple[Any, Result]]:
    """Apply a function to items in threads, and yield items and results in order.

    Instead of waiting, this thread does the last items that no thread has begun; so it is one of the `cores()`.
    """
    running: deque[tuple[Any, Future[Result]]] = deque()

    def first() -> tuple[Any, Result]:
        item, future = running.popleft()
        for i in reversed(range(len(running))):
            if future.done() or not running[i][1].cancel():
                break
            running[i] = running[i][0], Future()
            running[i][1].set_result(function(running[i][0]))
        return item, future.result()

    for item in items:
        running.append((item, threads.submit(function, item)))
        if len(running) > cores() + 1:
            yield first()
    while running:
        yield first()
