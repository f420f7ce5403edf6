"""What the commands say: tables for a terminal, records for a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..debias.auto import Auto
    from ..debias.tower import Tower
    from ..debias.vad import VAD
    from ..evidence import Evidence
    from ..report import Method


def fit_text(
    fitted: VAD | Tower | Auto, about: Mapping[str, Any], pool: Evidence, out: Path
) -> tuple[str, dict[str, Any]]:
    """What `fit` found."""
    from ..debias.vad import VAD

    lines, record = _vad_text(fitted, pool) if isinstance(fitted, VAD) else _other_text(fitted, about, pool)
    if "straight_loss" in about:
        record["straight_loss"] = about["straight_loss"]
        loss = 100 * about["straight_loss"]
        lines.append(f"written as a straight line, which differs by at most {loss:.2g}% on the top 1% to 10%")
    for left in about["remaining_error"]:
        record |= {f"remaining_error_{end}_{left['alpha']:g}": left[end] for end in ("low", "high")}
    if about["remaining_error"]:
        intervals = about["remaining_error"]
        texts = [f"{100 * one['alpha']:g}%: {_signed(one['low'])} to {_signed(one['high'])}" for one in intervals]
        lines.append(f"remaining error on the top, {100 * intervals[0]['level']:g}% intervals: {', '.join(texts)}")
    lines.append(f"written to {out}; next: uncurse apply {out} LOG --score {pool.spec.scores[0]} -o OUT")
    return "\n".join(lines), {**record, "out": str(out)}


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}%"


def _other_text(fitted: Tower | Auto, about: Mapping[str, Any], pool: Evidence) -> tuple[list[str], dict[str, Any]]:
    """Of `Tower`, and of what `Auto` chose."""
    labelled = (about["labelled"] or {}).get("rows", 0)
    straight = about.get("line_probability")
    record: dict[str, Any] = {
        "method": about["method"],
        "reason": about.get("reason", ""),
        "rows": pool.rows,
        "labelled_rows": labelled,
        "groups": len(pool.groups),
        "line_probability": "" if straight is None else straight,
        "lambda": "" if about.get("lambda") is None else about["lambda"],
        "map": fitted.map_.kind,
    }
    rows = f"{pool.rows:,} pool rows" + (f" and {labelled:,} labelled rows" if labelled else "")
    lines = [f"{about['method']}, from {rows} of {', '.join(pool.spec.scores)}"]
    if about.get("reason"):
        lines.append(f"why: {about['reason']}")
    if straight is not None:
        lines.append(f"P(the labels lie on a straight line of the denoised logit) = {straight:.2f}")
    if pool.groups:
        lines.append(f"{len(pool.groups):,} groups, a map each")
    return lines, record


def _vad_text(vad: VAD, pool: Evidence) -> tuple[list[str], dict[str, Any]]:
    from ..maps import Affine

    record: dict[str, Any] = {
        "lambda": vad.lambda_,
        "standard_error": vad.standard_error_,
        "center": vad.center_,
        "noise_variance": vad.noise_variance_,
        "score_variance": vad.score_variance_,
        "rows": pool.rows,
        "groups": len(pool.groups),
        "map": vad.map_.kind,
        "slope": getattr(vad.map_, "slope", ""),
        "intercept": getattr(vad.map_, "intercept", ""),
    }
    lines = [
        f"λ = {vad.lambda_:.4f} ± {vad.standard_error_:.4f} (over pool rows) about {vad.center_:.4f}, from "
        f"{pool.rows:,} rows of {', '.join(pool.spec.scores)}"
    ]
    if isinstance(vad.map_, Affine) and vad.map_.link == "logistic":
        sign = "-" if vad.map_.intercept < 0 else "+"
        line = f"prediction = 1 / (1 + exp(-({vad.map_.slope:.6g} · logit {sign} {abs(vad.map_.intercept):.6g})))"
        lines.append(line + (", where logit = ln(p / (1 - p))" if vad.map_.scale == "probability" else ""))
    elif not pool.groups:
        lines.append(f"the map is a {vad.map_.kind}, not two numbers: uncurse apply and uncurse.load use it")
    if pool.groups:
        values = vad.group_lambda_.values()
        lines.append(f"{len(pool.groups):,} groups, λ from {min(values):.4f} to {max(values):.4f}")
    return lines, record


def evaluation_text(methods: Sequence[Method], log: Evidence) -> str:
    """A line for each share, a column for each method; then ECE with its floor."""
    width = max(20, *(len(m.name) + 2 for m in methods))
    chosen = log.spec.top_k or f"selected by {log.spec.scores[0]}"
    lines = [
        f"{log.rows:,} rows, label {log.spec.label}, {chosen}",
        "",
        "Calibration error (predicted / observed − 1), ± one standard error",
    ]
    lines.append(f"{'top':>6}  {'selected':>12}" + "".join(f"{m.name:>{width}}" for m in methods))
    table = list(zip(*(m.evaluation.rows for m in methods), strict=True))
    for rows in table:
        line = f"{100 * rows[0].alpha:>5.4g}%  {rows[0].selected:>12,.0f}"
        for row in rows:
            error = row.calibration_error
            line += f"{f'{100 * error:+.2f}% ± {100 * error.standard_error:.2f}%':>{width}}"
        lines.append(line)
    lines += ["", "ECE (noise floor)", f"{'top':>6}  {'':>12}" + "".join(f"{m.name:>{width}}" for m in methods)]
    for rows in table:
        line = f"{100 * rows[0].alpha:>5.4g}%  {'':>12}"
        line += "".join(f"{f'{float(r.ece):.5f} ({r.ece.floor:.5f})':>{width}}" for r in rows)
        lines.append(line)
    return "\n".join(lines)


def evaluation_records(methods: Sequence[Method]) -> list[dict[str, Any]]:
    """Every method at every share, flat."""
    records = []
    for method in methods:
        for row in method.evaluation.rows:
            records.append(
                {
                    "method": method.name,
                    "alpha": row.alpha,
                    "selected": row.selected,
                    "predicted": row.predicted,
                    "observed": row.observed,
                    "calibration_error": float(row.calibration_error),
                    "standard_error": row.calibration_error.standard_error,
                    "ece": float(row.ece),
                    "ece_floor": row.ece.floor,
                    "mce": float(row.mce),
                    "mce_floor": row.mce.floor,
                    "log_loss": float(row.log_loss),
                    "brier": float(row.brier),
                }
            )
    return records


__all__ = ["evaluation_records", "evaluation_text", "fit_text"]
