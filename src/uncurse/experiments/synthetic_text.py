"""The tables of the synthetic experiment as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from ..text_tables import aligned
from .synthetic import ALPHAS, GOLDEN, METHODS, Cell, Tables

_TITLES = {
    "calibration_error": ("Calibration error, %", 100),
    "ece": ("ECE, 10 bins of equal count", 1),
    "mce": ("MCE", 1),
    "log_loss_reduction": ("Log-loss reduction, %", 100),
}


def golden_text(figures: Mapping[float, Mapping[str, float]]) -> str:
    """Compare our figures for the authors' random stream with theirs."""
    table = [("α", "figure", "ours", "theirs", "difference")]
    for alpha, row in figures.items():
        for name, ours in row.items():
            theirs = GOLDEN[alpha][name]
            table.append((f"{100 * alpha:g}%", name, f"{ours:.6f}", f"{theirs:g}", f"{ours - theirs:+.1e}"))
    return "\n".join(["The authors' random stream, means over 100 replications:", "", *aligned(table, left=2)])


def text(tables: Tables) -> str:
    """Return every table of the experiment beside the paper's."""
    lines = [
        f"Means ± standard errors over {tables.replications} replications (seed {tables.seed}). In brackets: the",
        "paper's figure, and the difference in combined standard errors.",
    ]
    for metric, (title, unit) in _TITLES.items():
        methods = METHODS[:4] if metric != "log_loss_reduction" else ("VAD",)
        floor = metric in ("ece", "mce")
        table = [("α", *methods, *(["noise floor"] if floor else []))]
        for alpha in ALPHAS:
            cells = [_cell(tables.cell(metric, alpha, method), unit) for method in methods]
            floors = [f"{tables.cell(metric + '_floor', alpha, 'VAD').mean:.4f}"] if floor else []
            table.append((f"{100 * alpha:g}%", *cells, *floors))
        lines += ["", title, *aligned(table)]
    table = [("method", "top 2%", "top 5%", "top 10%", "λ")]
    for method in METHODS:
        row = [method]
        for alpha in (0.02, 0.05, 0.1):
            ours, true = (tables.cell(name, alpha, method) for name in ("calibration_error", "true_error"))
            row.append(f"{100 * ours.mean:+.2f} ± {100 * ours.standard_error:.2f} ({100 * true.mean:+.2f})")
        table.append((*row, f"{tables.lambdas[method]:.4f}" if method in tables.lambdas else ""))
    title = "Calibration error, %, with other replicas (in brackets: against the true probabilities), and mean λ"
    far, count = tables.far()
    lines += ["", title, *aligned(table)]
    lines += ["", f"{far} of {count} cells lie more than 3 combined standard errors from the paper's."]
    return "\n".join(lines)


def _cell(cell: Cell, unit: int) -> str:
    digits = 2 if unit == 100 else 4
    text = f"{unit * cell.mean:.{digits}f}±{unit * cell.standard_error:.{digits}f}"
    if cell.paper_mean is not None:
        text += f" [{unit * cell.paper_mean:.{digits}f} {cell.distance:+.1f}]"
    return text


__all__ = ["golden_text", "text"]
