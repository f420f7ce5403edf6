"""What the commands read: logs or evidence, reconciled with the options, and maps with their records."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import documents
from ..errors import UncurseError
from ..validation import warn_user
from .output import working

if TYPE_CHECKING:
    from ..debias import FitRecord
    from ..evidence import Evidence, LogSpec
    from ..maps import ScoreMap

_MAX_SHARES = 1_000


@dataclass(frozen=True)
class LogOptions:
    """Options that describe a log; None where an option is not given.

    Parameters
    ----------
    scores : tuple of str, optional
        Columns of the scores, the served one first.
    label, weight, group, request : str, optional
        Columns.
    top_k : int, optional
        Rows kept per request.
    scale, link : str, optional
        Scale of the scores and link of the method.
    negative_rate : float, optional
        Negative-sampling rate.
    engine : str, optional
        Engine that reads files.
    """

    scores: tuple[str, ...] | None = None
    label: str | None = None
    weight: str | None = None
    group: str | None = None
    request: str | None = None
    top_k: int | None = None
    scale: str | None = None
    link: str | None = None
    negative_rate: float | None = None
    engine: str | None = None

    def spec(self, scores_option: str) -> LogSpec:
        """Return the description of a log; raise UncurseError if an option that only the user can know is missing."""
        from ..evidence import LogSpec, TopK

        if self.scores is None:
            raise UncurseError(f"{scores_option} is missing; name the column of the served score")
        if self.scale is None:
            raise UncurseError("--scale is missing; name the scale of the scores: logit, probability or value")
        if self.top_k is not None and self.request is None:
            raise UncurseError("--top-k needs --request, the column of requests")
        top_k = None if self.request is None else TopK(self.request, self.top_k or 1)
        link = self.link or "logistic"
        return LogSpec(self.scores, self.scale, self.label, self.weight, self.group, top_k, link, self.negative_rate)

    def check(self, spec: LogSpec, sources: str, scores_option: str) -> None:
        """Raise UncurseError if an option contradicts evidence that was collected before."""
        held: dict[str, Any] = {
            name: getattr(spec, name) for name in ("label", "weight", "group", "scale", "link", "negative_rate")
        }
        held["request"], held["top_k"] = (None, None) if spec.top_k is None else (spec.top_k.request, spec.top_k.k)
        held["scores"] = spec.scores[: len(self.scores or ())] if scores_option == "--score" else spec.scores
        for name, value in held.items():
            given = getattr(self, name)
            if given is not None and given != value:
                option = scores_option if name == "scores" else option_name(name)
                raise UncurseError(
                    f"{option} is {value_text(given)}, but {sources} was collected with {value_text(value)}; leave the "
                    "option out, or collect the log again"
                )
        if self.engine is not None:
            raise UncurseError(f"--engine {self.engine} reads logs, and {sources} is evidence; leave it out")


def option_name(name: str) -> str:
    """Return the option that sets an argument: ``--top-k`` for ``top_k``."""
    return "--" + name.replace("_", "-")


def value_text(value: object) -> str:
    """Return the value of an option as it is typed; "none" if there is none."""
    return "none" if value is None else ",".join(value) if isinstance(value, tuple) else str(value)


def column_names(text: str | None, option: str = "--scores") -> tuple[str, ...] | None:
    """Return comma-separated column names; None if the option is not given."""
    if text is None:
        return None
    if option == "--score" and "," not in text:
        return (text,)  # as it is, with spaces
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UncurseError(f"{option} is empty; name a column, such as {option} s0")
    if option == "--score" and len(names) > 1:
        raise UncurseError(f"--score is {text}; name the served column alone")
    return names


def read_evidence(
    sources: Sequence[str],
    options: LogOptions,
    *,
    scores_option: str = "--scores",
    need_label: bool = False,
    replica_counts: bool = False,
) -> Evidence:
    """Read logs or evidence files, and reconcile them with the options.

    Parameters
    ----------
    sources : sequence of str
        Logs, or evidence files (``.json``), which are merged.
    options : LogOptions
        Options of the command. Evidence that contradicts one is an error.
    scores_option : {"--scores", "--score"}, default="--scores"
        Option that names the score columns; ``--score`` names the served one alone.
    need_label, replica_counts : bool, default=False
        Parts that the command needs.

    Returns
    -------
    Evidence
    """
    from ..evidence import Evidence, merged

    names = ", ".join(sources)
    real = [os.path.realpath(source) for source in sources]
    repeated = [source for source, path in zip(sources, real, strict=True) if real.count(path) > 1]
    if repeated:
        raise UncurseError(f"{' and '.join(dict.fromkeys(repeated))} is named twice; its rows would count twice")
    if any(not source for source in sources):
        raise UncurseError("the path of a log is empty; name a file, a glob or a folder")
    files = [input_file(source) for source in sources]
    evidence_files = [is_evidence(source) for source in sources]
    if any(evidence_files) and not all(evidence_files):
        raise UncurseError(f"{names} are logs and evidence mixed; collect the logs first")
    if not all(evidence_files):
        if need_label and options.label is None:
            raise UncurseError("--label is missing; name the column of 0/1 labels")
        return collect_logs(sources, options.spec(scores_option), replica_counts, options.engine)
    evidence = merged(Evidence.load(file) for file in files)
    options.check(evidence.spec, names, scores_option)
    if need_label and evidence.spec.label is None:
        raise UncurseError(f"{names} was collected without labels; collect it again with --label")
    if replica_counts and evidence.replica_counts is None:
        raise UncurseError(
            f"{names} was collected without replica counts; collect it again without --no-replica-counts, or use "
            "--method vad with neither --shape free nor --straight"
        )
    return evidence


def collect_logs(sources: Sequence[str], spec: LogSpec, replica_counts: bool, engine: str | None) -> Evidence:
    """Collect the evidence of logs with a progress bar."""
    from dataclasses import replace

    from ..logs import collect
    from ..logs.files import count_rows

    files = [input_file(source) for source in sources]
    counted = engine in (None, "polars") and spec.top_k is None
    with working("reading", lambda: count_rows(files) if counted else None) as advance:
        evidence = collect(
            files,
            spec.scores,
            label=spec.label,
            weight=spec.weight,
            group=spec.group,
            top_k=spec.top_k,
            scale=spec.scale,
            link=spec.link,
            negative_rate=spec.negative_rate,
            replica_counts=replica_counts,
            engine=engine or "polars",
            progress=advance,
        )
    return replace(evidence, sources=tuple(sources))


@cache
def _standard_input() -> str:
    """Copy standard input to a temporary file; its first bytes tell its kind."""
    if sys.stdin is None:
        raise UncurseError("standard input is closed; name a file")
    context = documents.temporary_folder(tempfile.gettempdir())
    path = context.__enter__() / "stdin"
    atexit.register(context.__exit__, None, None, None)
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with path.open("rb") as file:
        head = file.read(4)
    kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"{": ".json"}
    suffix = next((suffix for start, suffix in kinds.items() if head.startswith(start)), ".csv")
    return str(path.rename(path.with_name("stdin" + suffix)))


def input_file(source: str) -> str:
    """Return the path of an input; ``-`` is standard input."""
    return _standard_input() if source == "-" else source


def is_evidence(source: str) -> bool:
    """Return whether an input is an evidence file rather than a log."""
    return input_file(source).lower().endswith(".json")


def without_temporary_path(message: str) -> str:
    """Return a message that names standard input instead of the file that it was copied to."""
    return message.replace(_standard_input(), "standard input") if _standard_input.cache_info().currsize else message


def check_pool(names: Sequence[str], pool: Evidence) -> None:
    """Raise UncurseError unless these are all candidates, scored by two models or more."""
    if pool.spec.top_k is not None:
        raise UncurseError(
            f"{', '.join(names)} holds only the {pool.spec.top_k}, where λ would be far too low; collect the whole "
            "pool, without --request"
        )
    if len(pool.spec.scores) < 2:
        raise UncurseError(
            f"--scores names one column, {pool.spec.scores[0]!r}; name two or more, the served one first: train the "
            "model once more, on a bootstrap of its rows, and score the pool with it"
        )


def load_map(path: str) -> tuple[ScoreMap, FitRecord | None]:
    """Read a map and how it was fitted."""
    from ..debias import load_record
    from ..maps import load

    file = input_file(path) if path else path
    if not file or os.path.isdir(file):
        raise UncurseError(f"{path!r} is not a map file; name a file that fit wrote")
    return load(file), load_record(file)


def check_served(path: str, record: FitRecord, score: str) -> None:
    """Check that a map is used on the score that it was fitted to; warn if the column has another name."""
    from ..debias import KINDS

    columns = record.pool.columns
    if not KINDS[record.replicas].served_is_a_column:
        if score in columns:
            raise UncurseError(
                f"{path} takes the mean of {', '.join(columns)}, and {score} is one of them; use a column of the mean"
            )
    elif score != columns[0]:
        warn_user(f"{path} was fitted to the score column {columns[0]!r}, and is used on {score!r}")


def share(text: str, option: str, most: float = 1.0) -> float:
    """Return a share written as 0.02 or 2%."""
    number = text.strip()
    percent = number.endswith("%")
    try:
        value = float(number.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        value = float("nan")
    if not 0 < value <= (most if percent else 1):
        raise UncurseError(f"{option} is {text!r}; pass a share such as 2% or 0.02")
    return value


def shares(text: str | None, selection: str | None) -> list[float]:
    """Return the shares of ``--alpha``: 2%,5% or 0.02:0.10:0.01 with both ends, or both, separated by commas."""
    if text is None:
        text = "1" if selection is not None else "0.02:0.10:0.01"
    found: list[float] = []
    for part in text.split(","):
        ends = part.split(":")
        if len(ends) not in (1, 3):
            raise UncurseError(f"--alpha is {text!r}; pass shares such as 2%,5%, or first:last:step")
        first, *rest = [share(end, "--alpha") for end in ends]
        if not rest:
            found.append(first)
            continue
        last, step = rest
        count = int((last - first) / step + 1e-9) + 1 if last >= first else 0
        if not 0 < count <= _MAX_SHARES:
            raise UncurseError(f"--alpha is {text!r}, {count:,} shares; use between 1 and {_MAX_SHARES:,}")
        found += [round(first + i * step, 12) for i in range(count)]
    return found
