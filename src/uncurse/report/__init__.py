"""Reports on the calibration of the selected rows, and of a map since its fit: one offline page, or charts as files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .. import documents
from ..debias.records import FitRecord, ScoreSummary
from ..errors import UncurseError
from ..metrics import Evaluation
from ..optional import needing
from . import monitored, prose
from .monitored import Monitored

if TYPE_CHECKING:
    from .figures import Chart
    from .page import Section

#: Beginning of the error if the extra ``report`` is not installed.
REQUIREMENT = "the report needs matplotlib and jinja2"


@dataclass(frozen=True)
class Method:
    """Predictions to report on: the scores as served, or after a map.

    Parameters
    ----------
    name : str
        Name on the page.
    evaluation : Evaluation
        Result of `uncurse.evaluate` or `uncurse.metrics.evaluate_log`. All methods have the same shares.
    record : FitRecord, optional
        How the map was fitted, see `uncurse.debias.load_record`.
    value : Evaluation, optional
        Sums of value instead of counts on the same selections, see ``values`` of `uncurse.metrics.evaluate_log`.

    Examples
    --------
    >>> from uncurse import evaluate
    >>> Method("as served", evaluate([0, 1], [0.2, 0.7], [1.0])).name
    'as served'
    """

    name: str
    evaluation: Evaluation
    record: FitRecord | None = None
    value: Evaluation | None = None


class _Page:
    """A page of sections that is written as HTML, or whose charts are written as files."""

    title: str

    def _headline(self) -> prose.Headline:
        raise NotImplementedError

    def _sections(self) -> list[Section]:
        raise NotImplementedError

    @property
    def headline(self) -> str:
        """Result in one sentence."""
        return str(self._headline())

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the page: one file that works offline. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or path-like
            Target.
        """
        sections = self._sections()
        from .page import render

        documents.write(path, render(self.title, self._headline(), sections))

    def figures(self) -> dict[str, Chart]:
        """Return the charts of the page.

        Returns
        -------
        dict of str to matplotlib.figure.Figure
            Charts by name.
        """
        sections = self._sections()
        from .figures import WIDE

        return {figure.name: figure.chart(WIDE) for section in sections for figure in section.figures()}

    def save_figures(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write every chart as SVG and PNG. Files of the same name are replaced, all of them or none.

        Parameters
        ----------
        folder : str or path-like
            Target; created if it does not exist.

        Returns
        -------
        list of Path
            Written files.
        """
        charts = self.figures()
        from .figures import to_png, to_svg

        contents = {}
        for name, chart in charts.items():
            contents[f"{name}.svg"], contents[f"{name}.png"] = to_svg(chart).encode(), to_png(chart)
        path = target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            with ExitStack() as files:  # renames all temporary files at its end, or removes them after an error
                for name, content in contents.items():
                    path = target / name
                    files.enter_context(documents.replacing(path)).write_bytes(content)
        except OSError as error:
            raise UncurseError(f"cannot write {path}: {error.strerror}") from None
        return [target / name for name in contents]


@dataclass(frozen=True)
class Report(_Page):
    """Compare methods on the same selected rows.

    Parameters
    ----------
    methods : sequence of Method
        The scores as served first, then maps. The headline is about the first map: choosing the best one by its
        error on these rows would make the reported error too small.
    served : ScoreSummary, optional
        Distribution of the evaluated scores, see `uncurse.report.provenance.summarize_scores`.
    facts : mapping of str to str or sequence of str
        Inputs, versions and the command.
    title : str
        Title of the page.
    selection : str, optional
        Description of the selection if it is not a share of all rows, such as ``"top 1 of each request"``.
    value_name : str, default="value"
        What the values of the methods are, with their unit.
    since_fit : Monitored, optional
        What a monitor saw of one of the maps since its fit.

    Examples
    --------
    >>> from uncurse import evaluate
    >>> y, p = [0, 1, 0, 1, 1, 0], [0.1, 0.9, 0.3, 0.6, 0.8, 0.7]
    >>> Report([Method("as served", evaluate(y, p, [0.5, 1.0]))]).headline
    'On the top 50%, the scores have a calibration error of +20% (95% interval −64% to +104%), consistent with zero.'
    """

    methods: Sequence[Method]
    served: ScoreSummary | None = None
    facts: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    title: str = "Calibration of the selected predictions"
    selection: str | None = None
    value_name: str = "value"
    since_fit: Monitored | None = None

    def __post_init__(self) -> None:
        if not self.methods:
            raise UncurseError("a report needs at least one method; pass Method(name, evaluation)")
        shares = [row.alpha for row in self.methods[0].evaluation.rows]
        for method in self.methods[1:]:
            if [row.alpha for row in method.evaluation.rows] != shares:
                raise UncurseError(
                    f"{method.name!r} and {self.methods[0].name!r} are evaluated on different shares; use the same "
                    "alphas for all methods"
                )

    def _headline(self) -> prose.Headline:
        """Return the calibration error on the first share, as served and after the first map, in words."""
        return prose.headline(self)

    def _sections(self) -> list[Section]:
        with needing("report", REQUIREMENT):
            from . import fits, measurements, page, since_fit
        known = self.since_fit is not None
        sections = (
            measurements.calibration_error(self), measurements.outcomes(self), measurements.reliability(self),
            measurements.binned_errors(self), since_fit.section(self.since_fit) if self.since_fit else None,
            fits.distribution(self), fits.shrinkage(self), fits.drift(self), fits.provenance(self),
            page.Section("terms", "Terms", (), (page.Terms(monitor=known),)),
        )  # fmt: skip
        return [section for section in sections if section is not None]


@dataclass(frozen=True)
class MonitorReport(_Page):
    """Show what a monitor saw of a map since its fit.

    Parameters
    ----------
    since_fit : Monitored
        Verdict on the map.
    record : FitRecord, optional
        How the map was fitted.
    facts : mapping of str to str or sequence of str
        Inputs, versions and the command.
    title : str
        Title of the page.

    Examples
    --------
    >>> from uncurse import Affine, monitor
    >>> from uncurse.evidence import from_arrays
    >>> verdict = monitor(Affine(1.0, 0.0), from_arrays([[-2.0], [2.0]] * 50, [0, 1] * 50))
    >>> MonitorReport(Monitored(verdict, "map.json")).headline[:47]
    'Keep map.json. No evidence against the map: pre'
    """

    since_fit: Monitored
    record: FitRecord | None = None
    facts: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    title: str = "Calibration since the fit"

    def _headline(self) -> prose.Headline:
        return monitored.headline(self.since_fit)

    def _sections(self) -> list[Section]:
        with needing("report", REQUIREMENT):
            from . import fits, page, since_fit
        entries = [*fits.fact_entries(self.facts), *fits.record_entries(self.since_fit.name, self.record)]
        provenance = [page.Section("provenance", fits.PROVENANCE, (), (page.Facts(tuple(entries)),))] if entries else []
        terms = page.Section("terms", "Terms", (), (page.Terms(evaluation=False, monitor=True),))
        return [*since_fit.sections(self.since_fit), *provenance, terms]


def check_requirements() -> None:
    """Raise UncurseError if the packages that a page needs are not installed."""
    with needing("report", REQUIREMENT):
        from . import page  # noqa: F401


__all__ = ["REQUIREMENT", "Method", "MonitorReport", "Monitored", "Report", "check_requirements"]
