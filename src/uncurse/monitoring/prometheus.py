"""A verdict in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable

from .sequential import Calibration
from .verdict import Verdict

_DECISIONS = ("keep", "watch", "alarm")


def prometheus_text(verdict: Verdict, name: str = "") -> str:
    """Write a verdict as metrics that Prometheus reads from a text file; `name` is the value of the label "map"."""
    lines: list[str] = []

    def add(metric: str, text: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> None:
        known = [(labels, value) for labels, value in samples if value is not None]
        if known:
            lines.extend([f"# HELP uncurse_{metric} {text}", f"# TYPE uncurse_{metric} gauge"])
        for labels, value in known:
            pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in {"map": name, **labels}.items())
            lines.append(f"uncurse_{metric}{{{pairs}}} {value:.17g}")

    parts: list[tuple[dict[str, str], Calibration]] = [({"rows": "since_fit"}, verdict.since_fit)]
    parts += [({"rows": "latest"}, verdict.latest)]
    parts += [({"rows": "since_fit", "prediction": part.name}, part) for part in verdict.buckets]
    parts += [({"rows": "since_fit", "segment": part.name}, part) for part in verdict.segments]
    add("decision", "1 for the decision.", (({"decision": one}, float(one == verdict.decision)) for one in _DECISIONS))
    add("days", "Days seen since the fit.", [({}, float(verdict.days))])
    add("rows", "Labeled rows.", ((labels, part.rows) for labels, part in parts))
    add("predicted", "Sum of predictions.", ((labels, part.predicted) for labels, part in parts))
    add("observed", "Sum of labels.", ((labels, part.observed) for labels, part in parts))
    add("error", "Sum of predictions / sum of labels - 1.", ((labels, part.error) for labels, part in parts))
    for end in ("low", "high"):
        text = f"{'Lower' if end == 'low' else 'Upper'} end of the 95% confidence sequence of the error."
        add(f"error_{end}", text, ((labels, getattr(part, end)) for labels, part in parts))
    add("e_value", "Evidence against the map; 20 raises an alarm.", ((labels, part.e_value) for labels, part in parts))
    add(
        "positives_needed",
        "Further positives until an error of 5% is decided.",
        [({}, float(verdict.positives_needed))],
    )
    if verdict.scores is not None:
        add("score_mean_change", "Change of the mean score in standard deviations.", [({}, verdict.scores.mean)])
        add(
            "score_spread_ratio", "Spread of the scores relative to those compared with.", [({}, verdict.scores.spread)]
        )
        add("score_stability_index", "Population stability index of the scores.", [({}, verdict.scores.stability)])
    if verdict.shrinkage is not None:
        add("lambda", "Lambda of the new rows.", [({}, verdict.shrinkage.after)])
        add("lambda_change", "Change of lambda in standard errors.", [({}, verdict.shrinkage.standard_errors)])
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
