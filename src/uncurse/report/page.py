"""The page: one HTML file, no script, no request. Sections that have nothing to show are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..version import __version__
from . import sections, words
from .guide import GUIDE
from .markup import radios, section, text
from .sheet import sheet
from .style import SERIES
from .words import decimals, number, percent, share

if TYPE_CHECKING:
    from . import Report
    from .data import Method

# Nothing may be loaded and nothing may run: were a name ever to become markup, it would still be inert.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
THEMES = (("theme-auto", "auto"), ("theme-light", "light"), ("theme-dark", "dark"))


def render(report: Report) -> str:
    """The whole document."""
    parts = [
        _headline(report),
        sections.errors(report),
        sections.reliability(report),
        sections.binned(report),
        sections.gaussian(report),
        sections.shrinkage(report),
        sections.drift(report),
        _done(report),
        _guide(),
    ]
    style = sheet(len(report.methods[0].evaluation.rows))
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{text(report.title)}</title>\n<style>\n{style}\n</style>\n</head>\n<body>",
            f"<header><h1>{text(report.title)}</h1>{radios('theme', 'Colours', THEMES)}</header>\n<main>",
            *(part for part in parts if part),
            f"</main>\n<footer>uncurse {text(__version__)}. One file; it loads nothing and sends nothing.</footer>",
            "</body>\n</html>\n",
        ]
    )


def _headline(report: Report) -> str:
    top = words.headline(report.methods, report.selection)
    said = "".join(text(v) if k == "text" else f'<span class="{k}">{text(v)}</span>' for k, v in top["sentence"])
    before, after = top["before"], top["after"]
    numbers = _number("Calibration error" if after is None else "As served", before)
    if after is not None:
        numbers += _number(f"After {after['name']}", after)
    return (
        '<section class="headline" aria-label="In one sentence">'
        f'<p class="says">{said}</p><dl class="pair">{numbers}</dl></section>'
    )


def _number(name: str, row: dict[str, Any]) -> str:
    d = decimals(row["high"] - row["low"])
    return (
        f'<div style="--tone:var(--s{row["series"] % len(SERIES)})"><dt>{text(name)}</dt>'
        f'<dd class="big">{percent(row["value"], d)}</dd>'
        f'<dd class="range">95% interval {percent(row["low"], d)} to {percent(row["high"], d)}</dd></div>'
    )


def _done(report: Report) -> str:
    first = report.methods[0].evaluation
    facts: dict[str, str] = {str(key): _values(str(key), value) for key, value in report.facts.items()}
    facts["evaluated"] = f"{number(first.total)} rows; ECE and MCE over {first.n_bins} {text(first.strategy)} bins"
    shown = "".join(f"<div><dt>{text(key)}</dt><dd>{value}</dd></div>" for key, value in facts.items())
    for method in report.methods:
        lines = _about(method)
        if lines:
            shown += f"<div><dt>{text(method.name)}</dt><dd>{'<br>'.join(lines)}</dd></div>"
    return section("done", "What was done", f'<dl class="facts">{shown}</dl>')


def _about(method: Method) -> list[str]:
    """What a fit says of itself, a line each."""
    about = method.about or {}
    lines = []
    kinds = [f"{key} {about[key]}" for key in ("method", "link", "replicas", "calibrator") if about.get(key)]
    if about.get("shape") == "free":
        kinds.append("free shape")
    if kinds:
        lines.append(text(", ".join(kinds)))
    if about.get("reason"):
        lines.append(text(f"why: {about['reason']}"))
    if "line_probability" in about:
        lines.append(text(f"probability that the labels lie on a straight line: {about['line_probability']:.2f}"))
    if about.get("remaining_error"):
        left = [
            f"{share(one['alpha'])}: {percent(one['low'])} to {percent(one['high'])}"
            for one in about["remaining_error"]
        ]
        level = share(about["remaining_error"][0]["level"])
        lines.append(text(f"error expected on the top of its pool, {level} intervals: {', '.join(left)}"))
    for role in ("pool", "labelled"):
        summary = about.get(role) or {}
        parts = [*summary.get("sources", ())]
        if "rows" in summary:
            parts.append(f"{summary['rows']:,} rows")
        if summary.get("columns"):
            parts.append("columns " + ", ".join(summary["columns"]))
        if parts:
            lines.append(text(f"{role}: " + ", ".join(parts)))
    if about.get("command"):
        lines.append(f"<code>{text(about['command'])}</code>")
    if about.get("version"):
        lines.append(text(f"fitted with uncurse {about['version']}"))
    return lines


def _values(key: str, value: str | Sequence[str]) -> str:
    lines = [value] if isinstance(value, str) else value
    made = "<br>".join(text(line) for line in lines)
    return f"<code>{made}</code>" if key.lower() == "command" else made


def _guide() -> str:
    words_ = "".join(f"<dt>{text(term)}</dt><dd>{text(meaning)}</dd>" for term, meaning in GUIDE)
    return section("read", "How to read it", f'<dl class="read">{words_}</dl>')


__all__ = ["POLICY", "THEMES", "render"]
