"""Draw the figures of the examples in the style of the report, so that their titles can be read on a thumbnail."""

from __future__ import annotations

from typing import Any

import matplotlib
from cycler import cycler

from uncurse.report.figures import LIGHT, page_style


def apply(gallery_conf: dict[str, Any], script: str) -> None:
    """Set the style before each example; sphinx-gallery calls this."""
    with page_style():
        style = dict(matplotlib.rcParams)
    style.pop("backend")
    colors = [color for name, color in LIGHT.items() if name[0] == "s"]
    matplotlib.rcParams.update(style)
    matplotlib.rcParams.update(
        {"axes.prop_cycle": cycler(color=colors), "axes.titlesize": 19, "axes.titlepad": 14, "figure.dpi": 100,
         "figure.figsize": (5.4, 3.9), "figure.facecolor": LIGHT["paper"], "lines.linewidth": 2}
    )  # fmt: skip
