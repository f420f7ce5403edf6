"""The tables of the experiments on click logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from uncurse.text import share

from ..render import Part, TextTable
from .tables import (
    CALIBRATORS,
    MAIN_BINS,
    OUTCOMES,
    PAPER_CALIBRATORS,
    REPLICA_METHODS,
    ClickTables,
    Finding,
    count_far,
)

_PAPERS_MODELS = 80
_ENOUGH = 5  # groups of networks, or worlds, to judge by
_UNDER_FITTED = 1.1  # Platt slope of the mean of all networks, which have little noise left
_METRICS = {
    "calibration_error": "Calibration error, %",
    "ece": "ECE",
    "mce": "MCE",
    "log_loss_reduction": "Log-loss reduction, %",
}
# Columns: title, variant and S.
_PAIRS = (("Original", "original", 2), ("VAD+", "vad", 2))
_APPENDIX = (*_PAIRS, ("VAD(p)+", "vad_identity", 2), ("VAD+ (S=3)", "vad", 3))
_CURVED = (*_APPENDIX, ("curvature", "vad_curvature", 2))
_MORE_S = (_PAIRS[0], *((f"VAD+ (S={s})", "vad", s) for s in (4, 5, 6)))
_ENDS, _BETWEEN = (0.02, 0.1, 1.0), (0.03, 0.05, 0.07, 0.09)


def parts(tables: ClickTables, brief: bool = False) -> Iterator[Part]:
    """Yield every table, or the main ones."""
    everything = not brief
    yield _head(tables)
    steep = [slope for facts in tables.networks if (slope := facts.get("Platt slope of the mean", 1)) > _UNDER_FITTED]
    if steep:
        yield (
            f"The networks are under-fitted (Platt slope of their mean {max(steep):.2f}): they under-predict the "
            "winners and VAD over-corrects; this run checks that the commands work, not the paper's findings."
        )
    if tables.about:
        yield [f"{name}: {_plain(value)}" for name, value in tables.about.items()]
    yield _networks(tables)
    yield _LEGEND
    criteo = tables.dataset == "criteo"
    main = _ENDS if criteo else (*_BETWEEN, 1.0)
    yield from _table(tables, "calibration_error", main, _PAIRS, "main text" if criteo else "appendix", step=True)
    if criteo:
        yield from _table(tables, "ece", _ENDS, _PAIRS, "main text")
    for metric in ("calibration_error", "ece", "mce"):
        if everything or (metric != "calibration_error" and not criteo):
            yield from _table(tables, metric, _BETWEEN, _APPENDIX if criteo else _PAIRS, "appendix")
    if everything or not criteo:
        columns = (("VAD+ against the same method alone", "vad", 2),)
        yield from _table(tables, "log_loss_reduction", tables.alphas, columns, "appendix")
    if criteo and everything:
        for metric, bins in product(("ece", "mce"), ((30, 40), (60, 70))):
            yield from _table(tables, metric, _BETWEEN, _PAIRS, "appendix", bins=bins, names=PAPER_CALIBRATORS)
        for metric in ("calibration_error", "ece", "mce"):
            yield from _table(tables, metric, _BETWEEN, _MORE_S, "appendix")
    yield from _table(tables, "calibration_error", tables.alphas, _CURVED, "VAD alone", names=CALIBRATORS[:1])
    yield from _more_tables(tables, [a for a in tables.alphas if everything or a in main])
    yield from _findings(tables, everything)
    yield _lambdas(tables)
    yield _shape(tables)


def _head(tables: ClickTables) -> str:
    sizes, several = tables.sizes, tables.worlds > 1
    text = (
        f"{tables.dataset.capitalize()}: {tables.models} networks{f' in each of {tables.worlds} worlds' * several}, "
        f"{sizes['labeled']:,.0f} labeled rows ({sizes['labeled_rate']:.1%} positive), a pool of "
        f"{sizes['pool']:,.0f}, {sizes['test']:,.0f} test rows ({sizes['test_rate']:.1%} positive). A cell is the "
        "mean with its standard error in parentheses, and in brackets the paper's mean. "
    )
    text += _ERRORS[several]
    far, count = count_far(tables.cells)
    if tables.models < _PAPERS_MODELS and not several:
        text += f" A small run: the paper's figures are of {_PAPERS_MODELS} networks."
    elif count and tables.about.get("data") != "a world":
        text += f" {far} of {count} cells lie more than 3 combined standard errors from the paper's."
    return text


def _networks(tables: ClickTables) -> TextTable:
    def one(value: Any) -> str:
        values = value if isinstance(value, list | tuple) else [value]
        return " ".join(f"{v:.4f}" if isinstance(v, float) else str(v) for v in values)

    names = list(dict.fromkeys(name for facts in tables.networks for name in facts))
    rows = [(name, *(one(facts.get(name, "")) for facts in tables.networks)) for name in names]
    title = "Networks: log loss by epoch, Platt slopes (above 1: under-fitted), level Σf/Σy − 1 on labeled rows"
    return TextTable(title, [("quantity", *(f"world {w}" for w in range(tables.worlds))), *rows])


_ERRORS = {
    False: "The standard error counts networks, in blocks that share none, and test clicks. It does not count other "
    "labeled rows or another world; --worlds does.",
    True: "Standard errors: a/b is a within worlds (networks and test clicks) and b between worlds, which also counts "
    "other labeled rows and other worlds.",
}
_LEGEND = (
    "Vanilla: the network as it is. Level corrected: its logit shifted so that Σf = Σy on labeled rows. VAD+: the "
    "calibrator in tandem with VAD (for both Vanilla rows VAD alone); VAD's step: VAD+ minus Original; VAD(p)+: on "
    "probabilities instead of logits; S: networks used, 2 by default; curvature: VAD with the curvature of the link. "
    "floor: expected value of the metric if every prediction were true. Log-loss reduction: below zero is better."
)


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {part}" for name, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _number(value: float, metric: str, sign: str = "") -> str:
    """Percent with two digits; ECE and MCE with four and no leading zero."""
    if metric in ("ece", "mce"):
        return f"{value:{sign}.4f}".replace("0.", ".", 1)
    return f"{100 * value:{sign}.2f}"


def _cell(tables: ClickTables, metric: str, *place: Any) -> str:
    cell, rms = tables.get(metric, *place), tables.get("true_rms", *place)
    if cell is None:
        return ""
    errors = [e for e in (cell.within, cell.world_error) if e is not None and not np.isnan(e)]
    error = "(" + "/".join(_number(e, metric) for e in errors) + ")" if errors else ""
    paper = "" if cell.paper_mean is None else f" [{_number(cell.paper_mean, metric)}]"
    root = f" {_number(rms.mean, metric)}" if rms and metric == "true_error" else ""
    return _number(cell.mean, metric) + error + paper + root


def _table(
    tables: ClickTables,
    metric: str,
    alphas: Sequence[float],
    columns: Sequence[tuple[Any, ...]],
    where: str = "",
    *,
    title: str = "",
    bins: Sequence[int] = (),
    names: Sequence[str] = CALIBRATORS,
    step: bool = False,
    empty_rows: bool = False,
) -> Iterator[TextTable]:
    """α and method down, columns across, for each number of bins if there are several; nothing if all are empty."""
    binned = metric in ("ece", "mce")
    how = f", {' and '.join(map(str, bins)) or MAIN_BINS} bins of equal count" if binned else ""
    columns = [(f"{name} M={m}", variant, s, m) for m in bins for name, variant, s in columns] or columns
    header = ["α", "method", *(name for name, *_ in columns), *[f"floor M={bins[-1]}" if bins else "floor"] * binned]
    rows = [tuple(header + ["VAD's step"] * step)]
    for alpha, name in product(alphas, names):
        places = [(alpha, name, *place) for _, *place in columns]
        cells = [cell for place in places if (cell := tables.get(metric, *place))]
        texts = [_cell(tables, metric, *place) for place in places]
        texts += [_number(cell.floor, metric) for cell in cells if cell.floor is not None][-1:]
        texts += [_cell(tables, f"{metric}_step", alpha, name, "vad")] * step
        if empty_rows or cells:
            rows.append((share(alpha), name, *texts))
    kept = [i for i in range(len(rows[0])) if i < 2 or any(row[i] for row in rows[1:])]
    if len(kept) > 2:
        shown = [[row[i] for i in kept] for row in rows]
        yield TextTable(title or f"{_METRICS[metric]}{how} ({where})", shown, left=2, gap=1)


def _more_tables(tables: ClickTables, alphas: Sequence[float]) -> Iterator[TextTable]:
    """Errors against the truth, and VAD, labels and Auto by kind of replica."""
    true = "Error against the true probabilities, %: mean (standard error) and rms over replications"
    alone = (*_APPENDIX[:3], _CURVED[-1])
    kinds = dict.fromkeys(cell.variant for cell in tables.cells if cell.calibrator in REPLICA_METHODS)
    replicas = [("twin by seed" if kind == "seeds" else kind, kind) for kind in kinds]
    by_kind = "by kind of replica"
    for title, metric, names, columns, step in (
        (true, "true_error", CALIBRATORS, _APPENDIX[:3], True),
        ("The same for VAD alone", "true_error", CALIBRATORS[:1], alone, False),
        (f"Calibration error, %, S = 2, {by_kind}", "calibration_error", REPLICA_METHODS, replicas, False),
        (f"{true}, {by_kind}", "true_error", REPLICA_METHODS, replicas, False),
    ):
        yield from _table(tables, metric, alphas, columns, title=title, names=names, step=step, empty_rows=True)


def _lambdas(tables: ClickTables) -> TextTable:
    def one(mean: float, sd: float) -> str:
        return f"{mean:.4f}" + ("" if np.isnan(sd) else f" ({sd:.4f})")

    rows = [("S", "replicas", "link", "count", "λ pool", "λ labeled", "ratio, for tandems", "V / V by seed")]
    twins = [row for row in tables.lambdas if (row.replicas, row.kind, row.link) == (2, "seeds", "logistic")]
    for row in tables.lambdas:
        # Var(l) is that of the served network whatever the replica, so V ∝ 1 − λ.
        share = f"{(1 - row.pool) / (1 - twins[0].pool):.2f}" if twins and row.kind != "seeds" else ""
        values = one(row.pool, row.pool_sd), one(row.labeled, row.labeled_sd), one(row.ratio, row.ratio_sd)
        rows.append((str(row.replicas), row.kind, row.link, str(row.count), *values, share))
    return TextTable("λ: mean (standard deviation) over replications", rows, left=3)


def _findings(tables: ClickTables, everything: bool) -> Iterator[Part]:
    found = tables.claims
    if not found:
        return
    groups = tables.worlds if tables.worlds > 1 else tables.models // 2
    if groups < _ENOUGH:
        what = f"{groups} worlds" if tables.worlds > 1 else f"{groups} pairs of networks"
        yield f"Too few replications to judge the paper's findings: {what}; {_ENOUGH} are enough."
        return
    rows: list[tuple[str, ...]] = [("finding of the paper", "metric", *OUTCOMES, "in the paper")]
    for claim, metric in dict.fromkeys((f.claim, f.metric) for f in found):
        group = [f for f in found if (f.claim, f.metric) == (claim, metric)]
        counts = [str(sum(f.outcome == outcome for f in group)) for outcome in OUTCOMES]
        theirs = sum(f.paper_difference < 0 for f in group)
        rows.append((claim, _METRICS[metric].split(",")[0], *counts, f"{theirs} of {len(group)}"))
    yield TextTable(
        "The paper's findings: one verdict for each calibrator, at the largest α that the paper prints", rows, left=2
    )
    against = [f for f in found if f.outcome == "contradicted"]
    shown = found if everything else against
    if shown:
        title = "Each verdict" if everything else "Contradicted"
        title += ": our statistic (standard error) [the paper's]; the finding holds below zero"
        header = ("finding of the paper", "metric", "calibrator", "α", "statistic", "outcome", "holds at")
        yield TextTable(title, [header, *map(_verdict, shown)], left=3, gap=1)
    if not against:
        yield "None is contradicted."


def _verdict(f: Finding) -> tuple[str, ...]:
    error = "" if np.isnan(f.error) else f" ({_number(f.error, f.metric)})"
    statistic = f"{_number(f.difference, f.metric, '+')}{error} [{_number(f.paper_difference, f.metric, '+')}]"
    place = f.claim, _METRICS[f.metric].split()[0], f.calibrator.split()[0], share(f.alpha)
    return *place, statistic, f.outcome, f"{f.same_sign} of {f.printed} α"


def _shape(tables: ClickTables) -> str:
    shape = tables.shape
    return (
        f"The served logit of the first network on the pool: mean {shape.mean:.3f}, sd {shape.sd:.3f}, skewness "
        f"{shape.skewness:+.2f}, excess kurtosis {shape.excess_kurtosis:+.2f}. Kolmogorov-Smirnov distance to the "
        f"fitted normal distribution {shape.distance:.4f}, p = {shape.p_value:.2g} (Lilliefors, {shape.n:,} rows); "
        "the paper could not reject normality at 5%."
    )
