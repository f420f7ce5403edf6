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

from ..errors import UncurseError
from ..validation import warn_user
from .output import working

if TYPE_CHECKING:
    from ..evidence import Evidence, LogSpec
    from ..logs import Settled
    from ..methods import Fitted

#: Options that describe a log, by the fields of `LogSpec` (and "request"); None where an option is not given.
LogOptions = Mapping[str, Any]


def check_same(name: str, held: Mapping[str, object], remedy: str) -> None:
    """Check that all that hold an option, such as this command and a file, have one value; the error names both."""
    (first, value), *others = held.items()
    for source, other in others:
        if other != value:
            mine, theirs = (",".join(v) if isinstance(v, tuple) else "none" if v is None else v for v in (value, other))
            option = "--" + name.replace("_", "-")
            raise UncurseError(f"{option} is {mine} in {first}, and {theirs} in {source}; {remedy}")


def column_names(text: str, option: str = "--scores") -> tuple[str, ...]:
    """Return comma-separated column names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UncurseError(f"{option} is empty; name a column, such as {option} s0")
    return names


def served_column(scores: str | None) -> tuple[str, ...] | None:
    """Return the first column of --scores, which is served; None if the option is not given."""
    return None if scores is None else column_names(scores)[:1]


def log_spec(given: LogOptions) -> LogSpec:
    """Return the description of a log; an option that only the user can know must be given."""
    from ..evidence import LogSpec, TopK

    if given["scores"] is None:
        raise UncurseError("--scores is missing; name the column of the served score")
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


def read_evidence(
    sources: Sequence[str],
    given: LogOptions,
    *,
    need_label: bool = False,
    settled: Settled | None = None,
    half_life: float | None = None,
    scale_from: str | None = None,
) -> Evidence:
    """Read logs, or merge evidence files; both must fit the given options.

    With a half-life, in files, evidence files are in order of time, and older ones count less. `scale_from` is the map
    that the scale was taken from.
    """
    from ..evidence import merged

    names, missing = ", ".join(sources), given.get("missing")
    given = {name: value for name, value in given.items() if name != "missing"}
    if not any(map(is_evidence, sources)):
        if need_label and given["label"] is None:
            raise UncurseError("--label is missing; name the column of 0/1 labels")
        return collect_logs(sources, log_spec(given), settled, scale_from, missing)
    if missing is not None:
        raise UncurseError(f"--missing {missing} needs rows, and {names} is evidence; leave the option out")
    if not all(map(is_evidence, sources)):
        raise UncurseError(f"{names} are logs and evidence mixed; collect the logs first")
    for i, source in enumerate(sources):
        if os.path.realpath(source) in map(os.path.realpath, sources[:i]):
            raise UncurseError(f"{source} is named twice; its rows would count twice")
    evidence = merged(_in_order(sources, half_life), half_life)
    spec = evidence.spec
    held = {**vars(spec), "request": spec.top_k and spec.top_k.request, "top_k": spec.top_k and spec.top_k.k}
    for name, value in given.items():
        own = held[name][: len(value)] if name == "scores" and value is not None else held[name]
        if value is not None:
            check_same(name, {"this command": value, names: own}, "leave the option out, or collect the log again")
    if need_label and spec.label is None:
        raise UncurseError(f"{names} was collected without labels; collect it again with --label")
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


def read_for_maps(
    sources: Sequence[str], maps: Mapping[str, Fitted], given: LogOptions, settled: Settled | None = None
) -> Evidence:
    """Read labeled rows with the options that maps, by their files, were fitted with; all must fit together."""
    options = dict(given)
    if not any(map(is_evidence, sources)):  # evidence is checked against what is given; a log needs all options
        for name in ("scale", "negative_sampling_rate", "segment", "scores"):
            held = {path: _held(fitted, name) for path, fitted in maps.items() if _held(fitted, name, "") != ""}
            if options.get(name) is not None:
                held = {"this command": options[name], **({} if name in ("scores", "segment") else held)}
            if held:
                if name != "scores":  # a wrong score is found below, with its own remedy
                    check_same(name, held, "use each map with the options that it was fitted with")
                options[name] = next(iter(held.values()))
    scale_from = next(iter(maps), None)
    rows = read_evidence(sources, options, need_label=True, settled=settled, scale_from=scale_from)
    for path, fitted in maps.items():
        _check_map(path, fitted, rows, ", ".join(sources))
    return rows


def _held(fitted: Fitted, name: str, unknown: Any = None) -> Any:
    """Return the value of an option that a map was fitted with; `unknown` if the map does not have it."""
    from ..maps import Segmented
    from ..methods.noise import replica_kind

    record = fitted.record
    if name == "scale":
        return fitted.map.scale
    if record is None or (name == "segment" and not isinstance(fitted.map, Segmented)):
        return unknown
    if name == "scores":
        return record.pool.columns[:1] if replica_kind(record.replicas).served_is_a_column else unknown
    return getattr(record, name)


def _check_map(path: str, fitted: Fitted, rows: Evidence, names: str) -> None:
    """Check that a map takes the scores of some rows."""
    from ..maps import Segmented

    spec, record = rows.spec, fitted.record
    check_same("scale", {path: fitted.map.scale, names: spec.scale}, "use one scale")
    if isinstance(fitted.map, Segmented):
        if not rows.segments:
            column = (None if record is None else record.segment) or "COLUMN"
            raise UncurseError(f"{path} has a map for each segment; collect {names} again with --segment {column}")
        unknown = sum(part.rows for name, part in rows.segments.items() if name not in fitted.map.maps)
        if unknown:
            warn_user(
                f"{unknown:,} of {rows.rows:,} rows have a {spec.segment} without a map in {path}; they get the "
                "default map"
            )
    if record is None:
        return
    rates = {path: record.negative_sampling_rate, names: spec.negative_sampling_rate}
    check_same("negative_sampling_rate", rates, f"collect {names} again")
    check_served(path, fitted, spec.scores[0])
    if set(map(os.path.realpath, record.label_sources)) & set(map(os.path.realpath, rows.sources)):
        warn_user(f"{path} was fitted to the labels of {names}; use other rows, say of another day")


def collect_logs(
    sources: Sequence[str],
    spec: LogSpec,
    settled: Settled | None = None,
    scale_from: str | None = None,
    missing: str | None = None,
) -> Evidence:
    """Collect the evidence of logs with a progress bar; `scale_from` is the map that the scale was taken from."""
    from ..logs.collecting import collect_spec
    from ..logs.files import count_rows

    files = [input_file(source) for source in sources]
    with working("reading", lambda: count_rows(files) if spec.top_k is None else None) as advance:
        options: Any = {"progress": advance, "settled": settled, "missing": missing or "refuse"}
        if scale_from is not None:  # commands that take the scale from a map do not take another one
            options["scale_remedy"] = (
                f"name a column of logits, which {scale_from} was fitted to, or fit a map of probabilities"
            )
        evidence = collect_spec(files, spec, **options)
    return replace(evidence, sources=tuple(sources))


@cache
def _standard_input() -> str:
    """Copy standard input to a temporary file; its first bytes tell its kind."""
    if sys.stdin is None:
        raise UncurseError("standard input is closed; name a file")
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "stdin")
    with open(path, "wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with open(path, "rb") as file:
        head = file.read(4)
    kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"{": ".json"}
    suffix = next((suffix for start, suffix in kinds.items() if head.startswith(start)), ".csv")
    os.rename(path, path + suffix)
    return path + suffix


def input_file(source: str) -> str:
    """Return the path of an input; ``-`` is standard input."""
    return _standard_input() if source == "-" else source


def is_evidence(source: str) -> bool:
    """Return whether an input is an evidence file rather than a log."""
    return input_file(source).lower().endswith(".json")


def without_temporary_path(message: str) -> str:
    """Return a message that names standard input instead of the file that it was copied to."""
    return message.replace(_standard_input(), "standard input") if _standard_input.cache_info().currsize else message


def load_map(path: str) -> Fitted:
    """Read a map and how it was fitted."""
    from ..methods import load

    file = input_file(path)
    if not file or os.path.isdir(file):
        raise UncurseError(f"{path!r} is not a map file; name a file that fit wrote")
    return load(file)


def check_served(path: str, fitted: Fitted, score: str) -> None:
    """Check that a map is used on the score that it was fitted to."""
    from ..evidence.from_arrays import column_names as names_of_arrays

    if fitted.record is None:
        return
    columns, served = fitted.record.pool.columns, _held(fitted, "scores")
    if served is None and score in columns:
        raise UncurseError(
            f"{path} takes the mean of {', '.join(columns)}, and {score} is one of them; use a column of the mean"
        )
    if served is not None and score != columns[0] and columns[:1] != names_of_arrays(1):  # arrays have no names
        raise UncurseError(
            f"{path} was fitted to the score column {columns[0]!r}, not to {score!r}; rename the column if it is the "
            "same score, or fit a map to it"
        )


def log_facts(sources: Sequence[str], evidence: Evidence, **more: Any) -> dict[str, str | list[str]]:
    """Describe the rows that were read, for a report, without options that were not used."""
    spec = evidence.spec
    facts: dict[str, Any] = {
        "Log": list(sources),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{spec.scores[0]} ({spec.scale})",
        "Label": spec.label,
        "Weight": spec.weight,
        "Segment": spec.segment,
        "Negative-sampling rate": None if spec.negative_sampling_rate is None else f"{spec.negative_sampling_rate:g}",
        "Selection": None if spec.top_k is None else str(spec.top_k),
        **more,
    }
    return {name: fact for name, fact in facts.items() if fact}
