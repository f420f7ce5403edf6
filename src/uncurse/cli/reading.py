"""What the commands read: logs or evidence, and maps; the options of a command must fit both."""

from __future__ import annotations

import atexit
import glob
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from ..documents import fingerprint
from ..errors import UncurseError
from ..validation import warn_user
from .output import command_line, working

if TYPE_CHECKING:
    from ..evidence import Evidence, LogSpec
    from ..logs import Settled
    from ..methods import Fitted

# Options of a log are mappings by the fields of `LogSpec`, "request" and "missing"; None where one is not given.

# ---------------------------------------------------------------------------- files


@cache
def input_file(source: str) -> str:
    """Return the path of an input; ``-`` is standard input, a copy of it whose first bytes tell its kind."""
    if source != "-":
        return source
    if sys.stdin is None:
        raise UncurseError("standard input is closed; name a file")
    folder = tempfile.mkdtemp(prefix="uncurse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    head = sys.stdin.buffer.read(4)
    kinds = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz", b"{": ".json"}
    suffix = next((suffix for start, suffix in kinds.items() if head.startswith(start)), ".csv")
    path = os.path.join(folder, f"stdin{suffix}")
    with open(path, "wb") as file:
        file.write(head)
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def is_evidence(source: str) -> bool:
    """Return whether an input is an evidence file rather than a log."""
    return input_file(source).lower().endswith(".json")


def load_map(path: str) -> Fitted:
    """Read a map and how it was fitted."""
    from ..methods import load

    return load(input_file(path))


# ---------------------------------------------------------------------------- logs and evidence


def column_names(text: str, option: str = "--scores") -> tuple[str, ...]:
    """Return comma-separated column names."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise UncurseError(f"{option} is empty; name a column, such as {option} s0")
    return names


def served_column(scores: str | None) -> tuple[str, ...] | None:
    """Return the first column of --scores, which is served; None if the option is not given."""
    return None if scores is None else column_names(scores)[:1]


def log_spec(given: Mapping[str, Any]) -> LogSpec:
    """Return the description of a log; an option that only the user can know must be given."""
    from ..evidence import LogSpec, TopK

    fields = {name: value for name, value in given.items() if value is not None and name != "missing"}
    for name, what in {"scores": "column of the served score", "scale": "scale of the scores"}.items():
        if name not in fields:
            raise UncurseError(f"--{name} is missing; name the {what}")
    request, k = fields.pop("request", None), fields.pop("top_k", None)
    if k is not None and request is None:
        raise UncurseError("--top-k needs --request, the column of requests")
    return LogSpec(**fields, top_k=None if request is None else TopK(request, k or 1))


def label_options(spec: LogSpec) -> str:
    """Return the options that read the labels of the same kind of rows from another log."""
    given = options_of(spec)
    names = (name for name in ("label", "trials", "weight", "request", "top_k") if given[name] is not None)
    return " ".join(f"--{name.replace('_', '-')} {given[name]}" for name in names)


def options_of(spec: LogSpec) -> dict[str, Any]:
    """Return the description of a log as options, from which `log_spec` makes it."""
    best = spec.top_k
    return {**vars(spec), "request": best and best.request, "top_k": best and best.k}


def collect_logs(
    sources: Sequence[str], spec: LogSpec, settled: Settled | None = None, missing: str | None = None
) -> Evidence:
    """Collect the evidence of logs and show progress."""
    from ..logs.collecting import collect_spec

    files = [input_file(source) for source in sources]
    with working("reading") as advance:
        evidence = collect_spec(files, spec, progress=advance, settled=settled, missing=missing or "error")
    return replace(evidence, sources=tuple(sources))


def read_evidence(
    sources: Sequence[str],
    given: Mapping[str, Any],
    *,
    need_label: bool = False,
    settled: Settled | None = None,
    half_life: float | None = None,
) -> Evidence:
    """Read logs, or merge evidence files, which must fit the given options.

    With a half-life, in files, evidence files are in order of time, and older ones count less.
    """
    from ..evidence import Evidence, merged

    names, missing = ", ".join(sources), given.get("missing")
    if not any(map(is_evidence, sources)):
        if need_label and given["label"] is None:
            raise UncurseError("--label is missing; name the column of 0/1 labels")
        if half_life is not None and len(sources) > 1:
            raise UncurseError(f"--half-life weights evidence files by their order, and {names} are logs; collect each")
        return collect_logs(sources, log_spec(given), settled, missing)
    if missing is not None:
        raise UncurseError(f"--missing {missing} needs rows, and {names} is evidence; leave the option out")
    if not all(map(is_evidence, sources)):
        raise UncurseError(f"{names} are logs and evidence mixed; collect the logs first")
    files = []
    for file in map(input_file, sources):  # or a quoted glob
        files += [file] if os.path.exists(file) else sorted(glob.glob(file, recursive=True)) or [file]
    parts = [Evidence.load(file) for file in files]
    if len(set(map(fingerprint, files))) < len(files):
        raise UncurseError(f"one of {names} is named twice, or a copy of another; its rows would count twice")
    times = [part.as_of for part in parts if part.as_of is not None]
    if half_life is not None and times != sorted(times):
        raise UncurseError(f"{names} are as of {', '.join(times)}; with --half-life, name the oldest file first")
    evidence = merged(parts, half_life)
    spec = evidence.spec
    held = options_of(spec)
    for name, value in given.items():
        own = held[name][: len(value)] if name == "scores" and value is not None else held.get(name)
        if value is not None and value != own:
            mine, theirs = (",".join(v) if isinstance(v, tuple) else v or "none" for v in (value, own))
            option = "--" + name.replace("_", "-")
            raise UncurseError(f"{option} is {mine}, and {theirs} in {names}; leave it out, or collect the log again")
    if need_label and spec.label is None:
        raise UncurseError(f"{names} was collected without labels; collect it again with --label")
    return evidence


# ---------------------------------------------------------------------------- rows for maps


def read_for_maps(
    sources: Sequence[str], maps: Mapping[str, Fitted], given: Mapping[str, Any], settled: Settled | None = None
) -> Evidence:
    """Read labeled rows for maps, by their files; options that are not given are those of the fits."""
    from ..maps import Segmented
    from ..methods.refresh import check_fits, check_served

    options = dict(given)
    if not any(map(is_evidence, sources)):
        for fitted in maps.values():
            options |= {name: value for name, value in _options_of(fitted).items() if options.get(name) is None}
    rows = read_evidence(sources, options, need_label=True, settled=settled)
    names = ", ".join(sources)
    for path, fitted in maps.items():
        check_fits(rows, fitted.map, fitted.record, f"evidence of {names} for {path}")
        if (record := fitted.record) is not None:
            check_served(rows.spec.scores[0], record, path)
            if record.top_k is not None and rows.spec.top_k is None:
                warn_user(
                    f"{path} is for the top {record.top_k} of each request; pass --request and --top-k, unless {names} "
                    "holds only rows that were selected so"
                )
            if is_fitted_to(fitted, rows):
                warn_user(f"{path} was fitted to the labels of {names}; use other rows, say of another day")
        if isinstance(fitted.map, Segmented):
            if not rows.segments:
                raise UncurseError(f"{path} has a map for each segment; collect {names} again with --segment")
            unknown = sum(part.rows for name, part in rows.segments.items() if name not in fitted.map.maps)
            if unknown:
                warn_user(
                    f"{unknown:,} of {rows.rows:,} rows have a {rows.spec.segment} without a map in {path}; they get "
                    "the default map"
                )
    return rows


def is_fitted_to(fitted: Fitted, rows: Evidence) -> bool:
    """Tell whether a map was fitted to the labels of a file that these rows are from."""
    labels = () if fitted.record is None else fitted.record.label_sources
    return bool(set(map(os.path.realpath, labels)) & set(map(os.path.realpath, rows.sources)))


def _options_of(fitted: Fitted) -> dict[str, Any]:
    """Return the options of a log for a map, as far as the map knows them."""
    from ..maps import Segmented
    from ..methods.noise import replica_kind

    record, found = fitted.record, {"scale": fitted.map.scale}
    if record is None:
        return found
    scores = record.pool.columns[:1] if replica_kind(record.replicas).served_is_a_column else None
    segment = record.segment if isinstance(fitted.map, Segmented) else None
    return {**found, "scores": scores, "segment": segment, "negative_sampling_rate": record.negative_sampling_rate}


def log_facts(sources: Sequence[str], evidence: Evidence, **more: Any) -> dict[str, str | list[str]]:
    """Describe the rows that were read and the program, for a report, without options that were not used."""
    spec = evidence.spec
    facts: dict[str, Any] = {
        "Log": list(sources),
        "Rows": f"{evidence.rows:,}",
        "Served score": f"{spec.scores[0]} ({spec.scale})",
        "Label": spec.label,
        "Trials": spec.trials,
        "Weight": spec.weight,
        "Segment": spec.segment,
        "Negative-sampling rate": None if spec.negative_sampling_rate is None else f"{spec.negative_sampling_rate:g}",
        "Selection": None if spec.top_k is None else str(spec.top_k),
        **more,
    }
    return {**{name: fact for name, fact in facts.items() if fact}, **program_facts()}


def program_facts() -> dict[str, str]:
    """Describe the program, for a report."""
    versions = [f"{name} {version(name)}" for name in ("uncurse", "numpy", "polars")]
    return {"Command": command_line(), "Versions": ", ".join([*versions, f"Python {platform.python_version()}"])}
