"""From an Altair chart to a picture: SVG to set into the page, and SVG and PNG files. Nothing is fetched."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from functools import cache
from typing import Any

import altair as alt
import vl_convert

from .figures import Figure

# Vega writes much that a drawing described by one sentence does not need, and that a reader would have to hear.
_DROPPED = {
    "class", "role", "aria-label", "aria-roledescription", "aria-hidden", "pointer-events", "font-family",
    "stroke-miterlimit", "version",
}  # fmt: skip
_LONG = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")


@cache
def _version() -> str:
    """The Vega-Lite that Altair writes, if vl-convert knows it, else its newest."""
    wanted = ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])
    known = vl_convert.get_vegalite_versions()
    return wanted if wanted in known else str(known[-1])


def _spec(figure: Figure) -> str:
    return json.dumps(figure.to_dict(validate=False), allow_nan=False)


def to_svg(figure: Figure) -> str:
    """The figure as an SVG document, in the light colours."""
    return str(vl_convert.vegalite_to_svg(_spec(figure), vl_version=_version(), allowed_base_urls=[]))


def to_png(figure: Figure, scale: float = 2.0) -> bytes:
    """The figure as PNG."""
    return bytes(vl_convert.vegalite_to_png(_spec(figure), vl_version=_version(), scale=scale, allowed_base_urls=[]))


def inline(figure: Figure, *, prefix: str, label: str, kind: str) -> str:
    """The figure as an `<svg>` element for the page.

    Its width follows the page, its colours the style sheet; what a mark says of itself becomes its tooltip; its ids
    begin with `prefix`, so that two figures never share one.
    """
    text = to_svg(figure).replace(' xmlns="http://www.w3.org/2000/svg"', "", 1)
    root = ET.fromstring(text)
    for child in list(root):
        if child.tag == "rect":  # the paper, which is the page's
            root.remove(child)
    _tidy(root, prefix)
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib.update(
        {
            "class": f"figure {kind}", "role": "img", "aria-label": label, "viewBox": f"0 0 {width} {height}",
            "style": f"--drawn:{float(width):g}px", "preserveAspectRatio": "xMidYMid meet",
        }
    )  # fmt: skip
    return ET.tostring(root, encoding="unicode")


def _tidy(element: ET.Element, prefix: str) -> None:
    said = element.get("aria-label") if element.get("role") == "graphics-symbol" else None
    for name, value in list(element.attrib.items()):
        if name in _DROPPED or (name, value) in (("opacity", "1"), ("fill-opacity", "1")):
            del element.attrib[name]
        elif name == "id":
            element.set(name, prefix + value)
        elif "url(#" in value:
            element.set(name, value.replace("url(#", f"url(#{prefix}"))
        else:
            element.set(name, _LONG.sub(_rounded, value))
    for child in list(element):
        hidden = child.get("class") in ("background", "foreground") and not child.get("stroke")
        if hidden or (child.tag == "g" and child.get("class", "").startswith("mark-group role-axis") and _empty(child)):
            element.remove(child)
        else:
            _tidy(child, prefix)
    if said and element.tag in ("path", "rect", "line"):
        title = ET.SubElement(element, "title")
        title.text = said


def _empty(group: ET.Element) -> bool:
    """An axis without lines or labels."""
    return not any(node.tag in ("line", "text") for node in group.iter())


def _rounded(match: re.Match[str]) -> Any:
    return f"{float(match.group()):.2f}".rstrip("0").rstrip(".")


__all__ = ["inline", "to_png", "to_svg"]
