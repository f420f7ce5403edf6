"""What the commands read: logs or evidence, reconciled with the options, and maps with their records."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from .. import documents
from ..errors import UncurseError
from .output import working

if TYPE_CHECKING:
    from ..debias import FitRecord
    from ..evidence import Evidence, LogSpec
    from ..logs import Settled
    from ..maps import ScoreMap

#: Options that describe a log, by the fields of `LogSpec` (and "request"); None where an option is not given.
LogOptions = Mapping[str, Any]


def check_same(name: str, held: Mapping[str, object], remedy: str) -> None:
    """Check that all that hold an option, such as this command and a file, have one value; the error names both."""
    (first, value), *others = held.items()
    for source, other in others:
        if other != value:
            mine, theirs = (",".join(v) if isinstance(v, tuple) else "none" if v is None else v for v in (value, other))
            raise UncurseError(f"{option_name(name)} is {mine} in {first}, and {theirs} in {source}; {remedy}")


def option_name(name: str) -> str:
    """Return the option that sets an argument: ``--top-k`` for ``top_k``."""
    return "--" + name.replace("_", "-")


def column_names(text: str, option: str = "--scores") -> tuple[str, ...]:
    """Return comma-separated column names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UncurseError(f"{option} is empty; name a column, such as {option} s0")
    return names


def log_spec(given: LogOptions, scores_option: str = "--scores") -> LogSpec:
    """Return the description of a log; an option that only the user can know must be given."""
    from ..evidence import LogSpec, TopK

    if given["scores"] is None:
        raise UncurseError(f"{scores_option} is missing; name the column of the served score")
    if given["scale"] is None:
        raise UncurseError("--scale is missing; name the scale of the scores: logit, probability or value")
    fields = {name: value for name, value in given.items() if value is not None}
    request, k = fields.pop("request", None), fields.pop("top_k", None)
    if k is not None and request is None:
        raise UncurseError("--top-k needs --request, the column of requests")
    return LogSpec(**fields, top_k=None if request is None else TopK(request, k or 1))


def label_options(spec: LogSpec) -> str:
    """Return the options that read the labels of the same kind of rows from another log."""
    weight = "" if spec.weight is None else f" --weight {spec.weight}"
    selection = "" if spec.top_k is None else f" --request {spec.top_k.request} --top-k {spec.top_k.k}"
    return f"--label {spec.label}{weight}{selection}"


def check_engine(engine: str | None, sources: Sequence[str]) -> None:
    """Refuse an engine if there is no log for it to read."""
    if engine is not None and all(map(is_evidence, sources)):
        raise UncurseError(f"--engine {engine} reads logs, and {', '.join(sources)} is evidence; leave it out")


def read_evidence(
    sources: Sequence[str],
    given: LogOptions,
    engine: str | None,
    *,
    scores_option: str = "--scores",
    need_label: bool = False,
    replica_counts: bool = False,
    settled: Settled | None = None,
    half_life: float | None = None,
    scale_from: str | None = None,
) -> Evidence:
    """Read logs, or merge evidence files, with the parts that a command needs; both must fit the given options.

    With a half-life, in files, evidence files are in order of time, and older ones count less. `scale_from` is the map
    that the scale was taken from.
    """
    from ..evidence import merged

    names = ", ".join(sources)
    if not any(map(is_evidence, sources)):
        if need_label and given["label"] is None:
            raise UncurseError("--label is missing; name the column of 0/1 labels")
        spec = log_spec(given, scores_option)
        return collect_logs(sources, spec, replica_counts, engine, settled, scale_from)
    if not all(map(is_evidence, sources)):
        raise UncurseError(f"{names} are logs and evidence mixed; collect the logs first")
    for i, source in enumerate(sources):
        if os.path.realpath(source) in map(os.path.realpath, sources[:i]):
            raise UncurseError(f"{source} is named twice; its rows would count twice")
    evidence = merged(_in_order(sources, half_life), half_life)
    _check_collected(evidence.spec, names, given, scores_option)
    if need_label and evidence.spec.label is None:
        raise UncurseError(f"{names} was collected without labels; collect it again with --label")
    if replica_counts and len(evidence.spec.scores) < 2:
        raise UncurseError(
            f"{names} was collected with the score column {evidence.spec.scores[0]!r} alone; collect it again with all "
            f"columns ({scores_option}), the served one first"
        )
    if replica_counts and evidence.replica_counts is None:
        raise UncurseError(
            f"{names} was collected without replica counts; collect it again without --no-replica-counts, or use "
            "--method vad with neither --shape free nor --straight"
        )
    return evidence


def _in_order(sources: Sequence[str], half_life: float | None) -> Iterator[Evidence]:
    """Read evidence files; with a half-life, check that their times, as far as known, do not go backwards."""
    from ..evidence import Evidence

    newest: tuple[str, str] | None = None
    for source in sources:
        evidence = Evidence.load(input_file(source))
        if half_life is not None and evidence.as_of is not None:
            if newest is not None and evidence.as_of < newest[1]:
                raise UncurseError(
                    f"{source} is as of {evidence.as_of} and comes after {newest[0]}, as of {newest[1]}; with "
                    "--half-life name the files from the oldest to the newest"
                )
            newest = source, evidence.as_of
        yield evidence


def read_for_map(
    sources: Sequence[str],
    map_file: str,
    fitted: tuple[ScoreMap, FitRecord | None],
    given: LogOptions,
    engine: str | None,
    settled: Settled | None = None,
) -> Evidence:
    """Read labelled rows with the options that a map was fitted with; both must fit together."""
    from ..debias.replica_kinds import replica_kind
    from ..maps import Grouped

    score_map, record = fitted
    names, by_group = ", ".join(sources), isinstance(score_map, Grouped)
    of_map: dict[str, Any] = {"scale": score_map.scale}
    if record is not None:
        of_map["negative_rate"] = record.negative_rate
        if by_group:
            of_map["group"] = record.group
        if replica_kind(record.replicas).served_is_a_column:
            of_map["scores"] = record.pool.columns[:1]
    if not any(map(is_evidence, sources)):  # evidence is checked against what was given; a log needs all options
        given = {**given, **{name: value for name, value in of_map.items() if given.get(name) is None}}
    options: Any = {"scores_option": "--score", "need_label": True, "settled": settled, "scale_from": map_file}
    rows = read_evidence(sources, given, engine, **options)
    remedy = f"collect {names} again"
    check_same("scale", {map_file: score_map.scale, names: rows.spec.scale}, remedy)
    if record is not None:
        check_same("negative_rate", {map_file: record.negative_rate, names: rows.spec.negative_rate}, remedy)
    if by_group and not rows.groups:
        column = (None if record is None else record.group) or "COLUMN"
        raise UncurseError(f"{map_file} has a map for each group; {remedy} with --group {column}")
    return rows


def _check_collected(spec: LogSpec, names: str, given: LogOptions, scores_option: str) -> None:
    """Check that no option contradicts evidence that was collected before."""
    held = {**vars(spec), "request": spec.top_k and spec.top_k.request, "top_k": spec.top_k and spec.top_k.k}
    if scores_option == "--score":
        given, held["score"] = {**given, "score": given["scores"], "scores": None}, spec.scores[:1]
    for name, value in given.items():
        if value is not None:
            remedy = "leave the option out, or collect the log again"
            check_same(name, {"this command": value, names: held[name]}, remedy)


def collect_logs(
    sources: Sequence[str],
    spec: LogSpec,
    replica_counts: bool,
    engine: str | None,
    settled: Settled | None = None,
    scale_from: str | None = None,
) -> Evidence:
    """Collect the evidence of logs with a progress bar; `scale_from` is the map that the scale was taken from."""
    from ..logs import collect_spec
    from ..logs.files import count_rows

    files = [input_file(source) for source in sources]
    counted = engine in (None, "polars") and spec.top_k is None
    with working("reading", lambda: count_rows(files) if counted else None) as advance:
        options: Any = {"engine": engine or "polars", "progress": advance, "settled": settled}
        if scale_from is not None:  # commands that take the scale from a map do not take another one
            options["scale_remedy"] = (
                f"name a column of logits, which {scale_from} was fitted to, or fit a map of probabilities"
            )
        evidence = collect_spec(files, spec, replica_counts, **options)
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


def load_map(path: str) -> tuple[ScoreMap, FitRecord | None]:
    """Read a map and how it was fitted."""
    from ..debias import load_record
    from ..maps import load

    file = input_file(path)
    if not file or os.path.isdir(file):
        raise UncurseError(f"{path!r} is not a map file; name a file that fit wrote")
    return load(file), load_record(file)


def check_served(path: str, record: FitRecord, score: str) -> None:
    """Check that a map is used on the score that it was fitted to."""
    from ..debias.replica_kinds import replica_kind
    from ..evidence.from_arrays import column_names as names_of_arrays

    columns = record.pool.columns
    if not replica_kind(record.replicas).served_is_a_column:
        if score in columns:
            raise UncurseError(
                f"{path} takes the mean of {', '.join(columns)}, and {score} is one of them; use a column of the mean"
            )
    elif score != columns[0] and columns[:1] != names_of_arrays(1):  # arrays have no names
        raise UncurseError(
            f"{path} was fitted to the score column {columns[0]!r}, not to {score!r}; rename the column if it is the "
            "same score, or fit a map to it"
        )


def log_facts(sources: Sequence[str], evidence: Evidence) -> dict[str, str | list[str] | None]:
    """Describe the rows that were read, for a report; None for options that were not used."""
    spec = evidence.spec
    return {
        "Log": list(sources),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{spec.scores[0]} ({spec.scale})",
        "Label": spec.label,
        "Weight": spec.weight,
        "Group": spec.group,
        "Negative-sampling rate": None if spec.negative_rate is None else f"{spec.negative_rate:g}",
        "Selection": None if spec.top_k is None else str(spec.top_k),
    }
