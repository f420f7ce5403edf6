"""The tables of the real-data experiments as text for a terminal, and as Markdown for the documentation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np

from ..text_tables import aligned, markdown_table
from .clicks_tables import CALIBRATORS, MAIN_BINS, OUTCOMES, Cell, ClickTables, Finding, Lambda

_WIDTH = 118
_PAPERS_MODELS = 80
_ENOUGH = 5  # replications to judge by
_METRICS = {
    "calibration_error": "Calibration error, %",
    "ece": "ECE",
    "mce": "MCE",
    "log_loss_reduction": "Log-loss reduction, %",
}
_PAIRS = (("Original", "original", 2), ("VAD+", "vad", 2))
_APPENDIX = (*_PAIRS, ("VAD(p)+", "vad_identity", 2), ("VAD+ (S=3)", "vad", 3))
_CURVED = (*_APPENDIX, ("curvature", "vad_curvature", 2))
_MORE_S = (_PAIRS[0], *((f"VAD+ (S={s})", "vad", s) for s in (4, 5, 6)))
_ENDS, _BETWEEN = (0.02, 0.1), (0.03, 0.05, 0.07, 0.09)

Columns = Sequence[tuple[str, str, int]]  # title, variant, S


@dataclass(frozen=True)
class Grid:
    """A table of text under a title; the first `left` columns are names."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1


@dataclass(frozen=True)
class Block:
    """Lines to be shown as they are."""

    lines: tuple[str, ...]


def text(tables: ClickTables, *, everything: bool = True) -> str:
    """For a terminal of 120 columns: every table, or the main ones."""
    lines: list[str] = []
    for part in _parts(tables, everything):
        if isinstance(part, str):
            lines += ["", textwrap.fill(part, _WIDTH)]
        elif isinstance(part, Block):
            lines += ["", *part.lines]
        else:
            lines += ["", part.title, *_aligned(part)]
    return "\n".join(lines[1:])


def markdown(tables: ClickTables) -> str:
    """The same as Markdown."""
    lines: list[str] = []
    for part in _parts(tables, True):
        if isinstance(part, str):
            lines += ["", part]
        elif isinstance(part, Block):
            lines += ["", "```text", *part.lines, "```"]
        else:
            lines += ["", f"**{part.title}**", "", markdown_table([part.header, *part.rows], left=part.left)]
    return "\n".join(lines[1:]) + "\n"


def _aligned(grid: Grid) -> list[str]:
    rows, last = [grid.header], ""
    for row in grid.rows:
        rows.append(("" if grid.left > 1 and row[0] == last else row[0], *row[1:]))  # do not repeat a name
        last = row[0]
    return aligned(rows, left=grid.left)


def _parts(tables: ClickTables, everything: bool) -> Iterator[str | Grid | Block]:
    yield _head(tables)
    yield from _settings(tables)
    yield _LEGEND
    criteo = tables.dataset == "criteo"
    for metric in ("calibration_error", "ece"):
        if criteo:
            yield from _grid(tables, metric, _ENDS, _PAIRS, "main text")
    for metric in ("calibration_error", "ece", "mce"):
        if everything or not criteo:
            yield from _grid(tables, metric, _BETWEEN, _APPENDIX if criteo else _PAIRS, "appendix")
    if everything or not criteo:
        yield from _log_loss(tables)
    if criteo and everything:
        for metric, bins in (("ece", (30, 40)), ("ece", (60, 70)), ("mce", (30, 40)), ("mce", (60, 70))):
            yield from _grid(tables, metric, _BETWEEN, _PAIRS, "appendix", bins=bins)
        for metric in ("calibration_error", "ece", "mce"):
            yield from _grid(tables, metric, _BETWEEN, _MORE_S, "appendix")
    yield from _grid(tables, "calibration_error", tables.alphas, _CURVED, "VAD alone", names=CALIBRATORS[:1])
    yield from _against_truth(tables, tables.alphas if everything else _ENDS)
    yield from _findings(tables, everything)
    yield _lambdas(tables.lambdas)
    yield from _shape(tables, everything)


def _head(tables: ClickTables) -> str:
    sizes = tables.sizes
    text = (
        f"{tables.dataset.capitalize()}: {tables.models} models, {sizes['labelled']:,.0f} labelled rows "
        f"({sizes['labelled_rate']:.1%} positive), a pool of {sizes['pool']:,.0f}, {sizes['test']:,.0f} test rows "
        f"({sizes['test_rate']:.1%} positive). Cells are the mean ± its standard error over replications, and in "
        "brackets the paper's mean. The standard errors are over models, all on the same test rows."
    )
    top = tables.get("calibration_error", tables.alphas[0])
    if top is not None and top.row_error is not None:
        text += (
            f" The clicks of these rows leave a calibration error of the top {_share(top.alpha)} uncertain by "
            f"{_number(top.row_error, top.metric)}% however many models there are."
        )
    far, count = tables.far()
    if tables.models < _PAPERS_MODELS:
        text += f" A small run: it shows the way, not the paper's figures, which are of {_PAPERS_MODELS} models."
    elif count and tables.about.get("data") != "a world":
        text += f" {far} of {count} cells lie more than 3 combined standard errors from the paper's."
    return text


def _settings(tables: ClickTables) -> Iterator[Block]:
    if tables.about:
        yield Block(tuple(f"{name}: {_plain(value)}" for name, value in tables.about.items()))


_LEGEND = (
    "Vanilla: the model as it is. VAD+: the calibrator in tandem with VAD (for Vanilla VAD alone); VAD(p)+: on "
    "probabilities, not logits; S: models used, 2 where nothing is said; curvature: VAD with the bend of the link. "
    "floor: what the metric would be if every prediction were true. Log-loss reduction: below zero is better."
)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


# ---------------------------------------------------------------------------- numbers


def _number(value: float, metric: str, sign: str = "") -> str:
    """Percent with two digits; ECE and MCE with four and no leading zero."""
    if metric in ("ece", "mce"):
        return f"{value:{sign}.4f}".replace("0.", ".", 1)
    return f"{100 * value:{sign}.2f}"


def _with_error(value: float, error: float, metric: str, sign: str = "") -> str:
    tail = "" if np.isnan(error) else f"±{_number(error, metric)}"
    return _number(value, metric, sign) + tail


def _cell(cell: Cell | None) -> str:
    if cell is None:
        return ""
    paper = "" if cell.paper_mean is None else f" [{_number(cell.paper_mean, cell.metric)}]"
    return _with_error(cell.mean, cell.standard_error, cell.metric) + paper


def _share(alpha: float) -> str:
    return f"{100 * alpha:g}%"


# ---------------------------------------------------------------------------- tables


def _grid(
    tables: ClickTables,
    metric: str,
    alphas: Sequence[float],
    columns: Columns,
    where: str,
    *,
    bins: Sequence[int] = (),
    names: Sequence[str] = CALIBRATORS,
) -> Iterator[Grid]:
    """α and method down, variants across (for each number of bins where several are given); nothing where empty."""
    across = [(title, variant, s, m) for m in bins or (None,) for title, variant, s in columns]
    header = ["α", "method", *(f"{title} M={m}" if m else title for title, _, _, m in across)]
    title = f"{_METRICS[metric]} ({where})"
    if metric in ("ece", "mce"):
        title = f"{_METRICS[metric]}, {' and '.join(map(str, bins)) or MAIN_BINS} bins of equal count ({where})"
        header.append(f"floor M={bins[-1]}" if bins else "floor")
    rows = []
    for alpha, name in product(alphas, names):
        cells = [tables.get(metric, alpha, name, variant, s, m) for _, variant, s, m in across]
        floors = [_number(cell.floor, metric) for cell in cells if cell is not None and cell.floor is not None]
        if any(cells):
            rows.append((_share(alpha), name, *map(_cell, cells), *floors[-1:]))
    yield from _filled(title, header, rows)


def _filled(title: str, header: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Iterator[Grid]:
    """The table without its empty columns, where anything is left beside α and method."""
    kept = [i for i in range(len(header)) if i < 2 or any(row[i] for row in rows)]
    if len(kept) > 2:
        yield Grid(title, tuple(header[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in rows), left=2)


def _log_loss(tables: ClickTables) -> Iterator[Grid]:
    metric = "log_loss_reduction"
    rows = tuple(
        (_share(alpha), *(_cell(tables.get(metric, alpha, name, "vad")) for name in CALIBRATORS))
        for alpha in tables.alphas
    )
    if any(cell for row in rows for cell in row[1:]):
        yield Grid(f"{_METRICS[metric]}, by VAD+ against the same method alone", ("α", *CALIBRATORS), rows)


def _against_truth(tables: ClickTables, alphas: Sequence[float]) -> Iterator[Grid]:
    def one(*place: Any) -> str:
        mean, rms = (tables.get(metric, *place) for metric in ("true_error", "true_rms"))
        return "" if rms is None else f"{_cell(mean)} ({_number(rms.mean, rms.metric)})"

    rows = [
        (_share(alpha), name, *(one(alpha, name, variant, s) for _, variant, s in _CURVED))
        for alpha, name in product([a for a in tables.alphas if a in alphas], CALIBRATORS)
    ]
    title = "Error against the true probabilities, %: mean ± standard error (root mean square over replications)"
    yield from _filled(title, ("α", "method", *(column[0] for column in _CURVED)), rows)


def _lambdas(lambdas: Sequence[Lambda]) -> Grid:
    def one(mean: float, sd: float) -> str:
        return f"{mean:.4f}" + ("" if np.isnan(sd) else f" ({sd:.4f})")

    rows = tuple(
        (
            str(row.replicas),
            row.link,
            str(row.count),
            one(row.pool, row.pool_sd),
            one(row.labelled, row.labelled_sd),
            one(row.ratio, row.ratio_sd),
        )
        for row in lambdas
    )
    header = ("S", "link", "replications", "λ pool", "λ labelled", "ratio, for tandems")
    return Grid("λ: mean (standard deviation) over replications", header, rows, left=2)


# ---------------------------------------------------------------------------- findings


def _findings(tables: ClickTables, everything: bool) -> Iterator[str | Grid | Block]:
    found = tables.findings()
    if not found:
        return
    most = max(f.count for f in found)
    if most < _ENOUGH:
        yield f"Too few replications to judge the paper's findings: {most}; {2 * _ENOUGH} models give {_ENOUGH}."
        return
    rows = []
    for (claim, metric), group in _grouped(found, lambda f: (f.claim, f.metric)):
        counts = [str(sum(f.outcome == outcome for f in group)) for outcome in OUTCOMES]
        theirs = sum(f.paper_difference < 0 for f in group)
        rows.append((claim, _METRICS[metric].split(",")[0], *counts, f"{theirs} of {len(group)}"))
    header = ("finding of the paper", "metric", *OUTCOMES, "its own cells")
    title = (
        "The paper's findings, at every place of its tables: clear by two standard errors over models, on these rows"
    )
    yield Grid(title, header, tuple(rows), left=2)
    if not everything:
        return
    yield from _cell_by_cell(found)
    against = tables.findings("contradicted")
    if not against:
        yield "None is contradicted."
        return
    lines = ["Contradicted (ours ± standard error, the paper's in brackets; below zero the finding holds):"]
    for (claim, metric, name, bins, sides), group in _grouped(
        against, lambda f: (f.claim, f.metric, f.calibrator, f.bins, f.sides)
    ):
        metric_name = _METRICS[metric].split(",")[0] + (f" M={bins}" if bins else "")
        places = "; ".join(
            f"{_share(f.alpha)} {_with_error(f.difference, f.error, metric, '+')}"
            f" [{_number(f.paper_difference, metric, '+')}]"
            for f in group
        )
        line = f"{claim}: {metric_name}, {name}, {' / '.join(sides)}: {places}"
        lines += textwrap.wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="      ")
    yield Block(tuple(lines))


_ASKED = {
    ("the model over-predicts", "calibration_error"): "over-predicts",
    ("a calibrator alone still over-predicts", "calibration_error"): "over-predicts",
    ("VAD+ lowers the error", "calibration_error"): "its error",
    ("VAD+ lowers the error", "ece"): "ECE",
    ("VAD+ lowers the error", "mce"): "MCE",
    ("VAD+ lowers the log loss", "log_loss_reduction"): "log loss",
}


def _cell_by_cell(found: Sequence[Finding]) -> Iterator[Grid]:
    """For pairs and 50 bins, what became of the main claims at every α and method."""
    kept: dict[tuple[float, str], dict[str, str]] = {}
    for f in found:
        column = _ASKED.get((f.claim, f.metric))
        if column and f.bins in (None, MAIN_BINS) and f.sides[0] in ("vad S=2", "original S=2"):
            kept.setdefault((f.alpha, f.calibrator), {})[column] = f.outcome
    columns = [name for name in dict.fromkeys(_ASKED.values()) if any(name in row for row in kept.values())]
    rows = [
        (_share(alpha), name, *(kept[alpha, name].get(column, "") for column in columns))
        for alpha, name in sorted(kept, key=lambda place: (place[0], CALIBRATORS.index(place[1])))
    ]
    if rows:
        title = "The same cell by cell (pairs, 50 bins): it over-predicts; VAD+ lowers its error, ECE, MCE, log loss"
        yield Grid(title, ("α", "method", *columns), tuple(rows), left=2)


def _grouped(found: Sequence[Finding], key: Any) -> Iterator[tuple[Any, list[Finding]]]:
    """Findings with the same key, in the order in which the keys first come."""
    order = {value: i for i, value in enumerate(dict.fromkeys(map(key, found)))}
    for value, group in groupby(sorted(found, key=lambda f: order[key(f)]), key):
        yield value, list(group)


# ---------------------------------------------------------------------------- the logit


def _shape(tables: ClickTables, everything: bool) -> Iterator[str | Block]:
    shape = tables.shape
    yield (
        f"The served logit of the first model on the pool: mean {shape.mean:.3f}, sd {shape.sd:.3f}, skewness "
        f"{shape.skewness:+.2f}, excess kurtosis {shape.excess_kurtosis:+.2f}. Kolmogorov-Smirnov distance to the "
        f"fitted normal {shape.distance:.4f}, p = {shape.p_value:.2g} (Lilliefors, {shape.rows:,} rows); the paper "
        "could not reject normality at 5%." + " Bars are rows, the stroke is what the normal would have." * everything
    )
    if not everything:
        return
    counts, normal = (np.add.reduceat(np.array(c, float), range(0, len(c), 2)) for c in (shape.counts, shape.expected))
    scale = 60 / max(counts.max(), normal.max())
    lines = []
    for left, rows, stroke in zip((-np.inf, *shape.edges)[::2], counts, normal, strict=True):
        at = max(0, round(stroke * scale) - 1)
        bar = ("█" * round(rows * scale)).ljust(at + 1)
        lines.append(f"{left:>8.2f}  {bar[:at]}│{bar[at + 1 :]}")
    yield Block(tuple(lines))


__all__ = ["markdown", "text"]
