"""Write llms.txt: an index of the site for language models, from the titles of its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

#: Sections, and the folder or the pages of each.
SECTIONS = {
    "Start": ("index", "start/"),
    "Tutorials": ("tutorials/",),
    "How-to guides": ("how-to/",),
    "Examples": ("gallery/",),
    "User guide": ("guide/",),
    "Reference": ("reference/",),
    "Evidence": ("results/",),
    "Project": ("project/",),
}
HEAD = """# uncurse

> Python library and command line that corrects predictions after selection (the winner's curse). A system that scores
> many candidates and selects the best over-predicts them. uncurse fits a monotone map of the served score offline, from
> the scores of two or more models on a sample of the candidates, with or without labels. The ranking stays the same.

Rules that matter: column 0 is the served model. `scale` says what the scores are ("logit", "probability", "value").
`replicas` says how the models are related ("seeds", "bootstrap", "ensemble", "snapshots"); the wrong one
leaves part of the error in place, or corrects too much. Measure with `uncurse.evaluate` on rows that were not in the
fit.
"""


def write(app: Any, error: Exception | None) -> None:
    """Write the file next to the pages."""
    if error is not None or app.builder.name != "html":
        return
    titles = {name: node.astext() for name, node in app.env.titles.items()}
    lines = [HEAD]
    for section, starts in SECTIONS.items():
        names = [name for start in starts for name in sorted(titles) if name == start or name.startswith(start)]
        names = [name for name in dict.fromkeys(names) if "/names/" not in name and "sg_" not in name]
        lines += [
            f"## {section}",
            "",
            *(f"- [{titles[name]}]({app.builder.get_target_uri(name)})" for name in names),
            "",
        ]
    Path(app.outdir, "llms.txt").write_text("\n".join(lines), encoding="utf-8")


def setup(app: Any) -> dict[str, Any]:
    """Register the hook."""
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
