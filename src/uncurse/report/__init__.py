"""One offline page, or figures as files, of how true the selected predictions are before and after a map."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import documents
from ..errors import UncurseError
from . import data, given
from .data import Method
from .given import clean
from .summaries import describe

if TYPE_CHECKING:
    from .figures import Figure


@dataclass(frozen=True)
class Report:
    """Methods side by side on the same selected rows.

    Parameters
    ----------
    methods
        The scores as served first, then maps; all evaluated on the same shares.
    served
        `describe` of the evaluated log's served scores.
    facts
        What was done: inputs, rows, versions, command; shown as text.
    title
        Of the page.
    selection
        What was selected where it was not a share of all rows, such as ``"top 1 of each request"``.

    Examples
    --------
    >>> from uncurse import evaluate
    >>> y, p = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.3, 0.6, 0.8, 0.7]
    >>> report = Report([Method("as served", evaluate(y, p, [0.5, 1.0]))])
    >>> report.headline
    'On the top 50% the scores are within noise of true: +20% (95% interval −64% to +104%).'
    """

    methods: Sequence[Method]
    served: Mapping[str, Any] | None = None
    facts: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    title: str = "How true are the selected predictions?"
    selection: str | None = None

    def __post_init__(self) -> None:
        # What is drawn comes from files and logs: from here on, texts and shapes are as they should be.
        methods = [Method(clean(m.name), m.evaluation, given.about(m.about)) for m in data.check(self.methods)]
        facts = {k: clean(v) if isinstance(v, str) else [clean(one) for one in v] for k, v in self.facts.items()}
        # Winners of requests are maxima: what they look like says nothing of the pool.
        served = None if self.selection else given.scores(self.served)
        made = {
            "methods": tuple(methods), "served": served, "facts": facts, "title": clean(self.title),
            "selection": None if self.selection is None else clean(self.selection),
        }  # fmt: skip
        for name, value in made.items():
            object.__setattr__(self, name, value)

    @property
    def headline(self) -> str:
        """Before and after on the smallest selection, in one sentence."""
        from . import words

        return words.plain(words.headline(self.methods, self.selection)["sentence"])

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page, atomically: one file that loads nothing."""
        from .page import render

        documents.write(path, render(self))

    def figures(self) -> dict[str, Figure]:
        """Every figure of the page as an Altair chart, by name."""
        from . import figures as draw
        from .style import WIDE

        methods, chosen = self.methods, self.selection
        rows, ece, mce = data.defined(data.errors(methods)), data.binned(methods, "ece"), data.binned(methods, "mce")
        made: dict[str, Figure] = {}
        if rows:
            made["calibration-error"] = draw.calibration_error(rows, WIDE, selection=chosen)
        names = data.share_names(methods)
        for place in data.order(methods):
            made[f"reliability-{names[place]}"] = draw.reliability(data.reliability(methods, place), WIDE)
        made["ece-mce"] = draw.binned_errors(ece, mce, WIDE, selection=chosen)
        judged = data.scores_judged(methods, self.served)
        if judged is not None:
            scale = judged[1].get("scale", "logit")
            made["scores"] = draw.score_histogram(data.histogram(judged[1]), WIDE, scale=scale)
        lambdas = data.lambdas(methods)
        if lambdas:
            made["lambda"] = draw.lambda_points(lambdas, WIDE)
        for series, method in enumerate(methods):
            groups, _ = data.groups(method)
            if groups:
                whole = given.finite((method.about or {}).get("lambda"))
                made[f"lambda-groups-{series}"] = draw.lambda_groups(groups, whole, WIDE, series=series)
        drift = data.drift(methods, self.served)
        if drift:
            made["drift"] = draw.drift(drift, WIDE)
        return made

    def save_figures(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write every figure as SVG and as PNG; returns the files."""
        from .drawing import to_png, to_svg

        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UncurseError(f"cannot write to {folder}: {error.strerror}") from None
        written = []
        for name, figure in self.figures().items():
            for kind, content in (("svg", to_svg(figure).encode()), ("png", to_png(figure))):
                written.append(target / f"{name}.{kind}")
                try:
                    with documents.replacing(written[-1]) as temporary:
                        temporary.write_bytes(content)
                except OSError as error:
                    raise UncurseError(f"cannot write {written[-1]}: {error.strerror}") from None
        return written


__all__ = ["Method", "Report", "describe"]
