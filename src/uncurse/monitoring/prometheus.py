"""A verdict in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from .verdict import Verdict

_DECISIONS = ("keep", "watch", "alarm")
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def prometheus_text(verdict: Verdict, name: str = "") -> str:
    """Write a verdict as metrics that Prometheus reads from a text file; `name` is the value of the label "map"."""
    lines: list[str] = []

    def add(metric: str, text: str, value: float | None, labels: Mapping[str, str] | None = None) -> None:
        if value is None:
            return
        described = [f"# HELP uncurse_{metric} {text}", f"# TYPE uncurse_{metric} gauge"]
        lines.extend([] if described[1] in lines else described)
        pairs = ",".join(f'{key}="{text.translate(_ESCAPES)}"' for key, text in {"map": name, **(labels or {})}.items())
        lines.append(f"uncurse_{metric}{{{pairs}}} {value:.17g}")

    for decision in _DECISIONS:
        add("decision", "1 for the decision.", float(decision == verdict.decision), {"decision": decision})
    parts = [({"rows": "since_fit"}, verdict.since_fit), ({"rows": "latest"}, verdict.latest)]
    parts += [({"rows": "since_fit", "prediction": part.name}, part) for part in verdict.buckets]
    parts += [({"rows": "since_fit", "segment": part.name}, part) for part in verdict.segments]
    for metric, field, text in (
        ("rows", "rows", "Labeled rows."),
        ("predicted", "predicted", "Sum of predictions."),
        ("observed", "observed", "Sum of labels."),
        ("error", "error", "Sum of predictions / sum of labels - 1."),
        ("served_error", "served_error", "The error of the predictions as served, without the map."),
        ("error_low", "low", "Lower end of the 95% confidence sequence of the error."),
        ("error_high", "high", "Upper end of the 95% confidence sequence of the error."),
        ("e_value", "e_value", "Evidence against the map; 20 raises an alarm."),
    ):
        for labels, part in parts:
            add(metric, text, getattr(part, field), labels)
    add("days", "Days seen since the fit.", verdict.days)
    add("positives_needed", "Further positives until an error of 5% is decided.", verdict.positives_needed)
    if verdict.scores is not None:
        add("score_mean_change", "Change of the mean score in standard deviations.", verdict.scores.mean)
        add("score_spread_ratio", "Spread of the scores relative to those compared with.", verdict.scores.spread)
        add("score_stability_index", "Population stability index of the scores.", verdict.scores.stability)
    if verdict.shrinkage is not None:
        add("lambda", "Lambda of the new rows.", verdict.shrinkage.after)
        add("lambda_change", "Change of lambda in standard errors.", verdict.shrinkage.standard_errors)
    return "\n".join(lines) + "\n"
