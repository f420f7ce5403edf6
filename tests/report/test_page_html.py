"""Pages as text: complete, offline, accessible, and names stay text."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
from pages import HOSTILE, Reader, draw_world, evaluation_of, state_of, summary_of, written

from uncurse import Affine, UncurseError, evaluate
from uncurse.methods import DataRecord, FitRecord, Fitted, SegmentRecord
from uncurse.monitoring import judge
from uncurse.report import Method, evaluation_page, figures, monitor_page


def fit_of(name="placement", segments=3):
    """A fit with this name wherever it has text."""
    pool = DataRecord(30_000, (name,), (name,), summary_of(draw_world()[0]))
    labels = DataRecord(3, (name,), (name,), summary_of(np.arange(50) / 10))
    record = FitRecord(
        name, pool, labels, reason=name, lambda_=0.8, standard_error=0.002, link=name, replicas=name, calibrator=name,
        segment=name, segments={f"{name} {i}": SegmentRecord(0.8, -2.0, 100 + i) for i in range(segments)},
        command=name, version=name,
    )  # fmt: skip
    return Fitted(Affine(0.8, -0.4), record)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    served, after = evaluation_of(), evaluation_of(0.8, -0.4)
    methods = [Method("as served", served, value=served), Method("vad.json", after, fit_of(), after)]
    facts = {"log": ["served.parquet", "30,000 rows"], "command": "uncurse evaluate served.parquet"}
    page = evaluation_page(methods, summary_of(draw_world()[0]), facts, value_name="revenue")
    return written(page, tmp_path_factory.mktemp("report") / "report.html")


def test_the_page_is_complete(content):
    reader = Reader(content)
    assert reader.open == []
    assert content.startswith("<!DOCTYPE html>")
    for heading in ("With vad.json, predictions are ",
                    "Reliability, all rows", "Diagnostics: labeled scores", "The map",
                    "How these results were made",
                    "Terms", "Sums of revenue"):  # fmt: skip
        assert heading in reader.text
    assert reader.text.count("How these results were made") == 1
    assert "<code>uncurse evaluate served.parquet</code>" in content


def test_the_page_loads_nothing_and_runs_nothing(content):
    reader = Reader(content)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image", "a", "base", "form"}
    for _, attributes in reader.elements:
        assert not {"src", "xlink:href", "srcset", "action", "background"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert not re.search(r"https?:|@import|url\((?!#)", content)
    policies = [a["content"] for tag, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0].startswith("default-src 'none'")


def test_figures_and_tables_are_accessible_and_ids_are_unique(content):
    reader = Reader(content)
    drawn = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(drawn) == 2 * 3
    assert all(len(a["aria-label"]) > 20 and a["viewbox"].startswith("0 0 ") for a in drawn)
    assert sum(tag == "figcaption" for tag, _ in reader.elements) == sum(tag == "figure" for tag, _ in reader.elements)
    assert all(a.get("scope") in ("row", "col") for tag, a in reader.elements if tag == "th")
    regions = [a for _, a in reader.elements if a.get("role") == "region"]
    assert len({a["aria-label"] for a in regions}) == len(regions) > 4
    assert all(a["tabindex"] == "0" for a in regions)  # the keyboard scrolls wide tables
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in reader.elements:
        assert attributes.get("aria-labelledby") in (None, *ids)
        for value in attributes.values():
            assert set(re.findall(r"url\(#([^)]*)\)", value or "")) <= set(ids)
        assert attributes.get("href") in (None, *(f"#{one}" for one in ids))


def test_figures_take_the_colors_of_the_page(content):
    found = re.findall(r'<svg class="figure.*?</svg>', content, re.DOTALL)
    for one in found:
        assert {element.tag for element in ET.fromstring(one).iter()} <= {"svg", "g", "defs", "path", "use", "text",
                                                                          "clipPath", "rect"}  # fmt: skip
    drawn = "".join(found)
    assert not re.search("#[0-9a-f]{6}", drawn)
    used = set(re.findall(r"var\(--(\w+)\)", drawn))
    assert {"ink", "muted", "grid", "s0", "s1"} <= used <= set(figures.COLORS)


def luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("dark", [0, 1])
def test_every_color_stands_out_from_the_paper(dark):
    paper = luminance(figures.COLORS["paper"][dark])
    for name in ("ink", "muted", *(f"s{i}" for i in range(7))):
        bright, deep = sorted((luminance(figures.COLORS[name][dark]), paper), reverse=True)
        assert (bright + 0.05) / (deep + 0.05) > 4.5, name


def test_series_of_the_same_color_differ_in_dash_or_marker():
    looks = [(style["color"], style["ls"], style["marker"]) for style in map(figures.style_of, range(-1, 49))]
    assert len(set(looks)) == len(looks)


def test_names_stay_text(tmp_path):
    evaluation = evaluation_of(alphas=[0.02, 0.1])
    methods = [Method(name, evaluation, fit_of(name, segments=2), evaluation) for name in HOSTILE]
    state = state_of(3, segments=HOSTILE)
    state = replace(state, days={day: replace(one, sources={HOSTILE[0]: ""}) for day, one in state.ordered})
    facts = {name: name for name in HOSTILE} | {"log": HOSTILE}
    pages = [
        (evaluation_page(methods, summary_of(draw_world()[0]), facts, value_name=HOSTILE[0]), 20),
        (monitor_page(judge(state), HOSTILE[1], fitted=fit_of(HOSTILE[0]), facts=facts), 2),
    ]
    for page, times in pages:
        reader = Reader(written(page, tmp_path / "r.html"))
        assert reader.open == []
        assert not {"img", "script"} & {tag for tag, _ in reader.elements}
        assert not any(key.startswith("on") for _, attributes in reader.elements for key in attributes)
        for name in HOSTILE:
            assert reader.text.count(name) > times
    for figure in (figure for page, _ in pages for figure in page.figures().values()):
        svg = ET.fromstring(figures.inline_svg(figure, name="f", label="f", kind="wide"))
        assert not any(element.tag.endswith(("img", "script")) for element in svg.iter())


DRAW = """
import json, sys
from uncurse import evaluate
from uncurse import Affine
from uncurse.methods import DataRecord, FitRecord, Fitted, ScoreSummary, SegmentRecord
from uncurse.methods.records import TOP_SHARES
from uncurse.report import Method, evaluation_page

name, folder = json.loads(sys.argv[1]), sys.argv[2]
y, p = [0, 1] * 20, [i / 41 for i in range(1, 41)]
scores = ScoreSummary(40, 40.0, 1.0, 0.6, (0.0, 1.0, 2.0), (20.0, 20.0), (1.0,) * len(TOP_SHARES), 0.1)
pool = DataRecord(40, (name,), (name,), scores)
segments = {f"{name}{name}": SegmentRecord(0.7, 0.0, 3), f"{name}\\x02": SegmentRecord(0.9, 0.0, 4)}
record = FitRecord("vad", pool, lambda_=0.8, segments=segments, command=name, link=name, version=name, segment=name)
of = evaluate(y, p, [0.5, 1.0])
options = {"value_name": name, "selection": name}
fitted = Fitted(Affine(1.0, 0.0), record)
page = evaluation_page([Method(name, of), Method(name, of, fitted)], scores, {name: name, "log": [name]}, **options)
page.to_html(f"{folder}/r.html")
for i, figure in enumerate(page.figures().values()):
    figure.savefig(f"{folder}/{i}.svg")
"""


def test_characters_that_xml_does_not_allow_are_replaced(tmp_path):
    # In its own process: such a character would end the process that draws it.
    given = [sys.executable, "-c", DRAW, json.dumps("na\x00\x01\ufffe\x0b\x1f\ud800me"), str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    content = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"na{6 * chr(0xFFFD)}me" in Reader(content).text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", content)
    for file in tmp_path.glob("*.svg"):
        ET.parse(file)


def test_a_large_page_stays_below_a_megabyte_for_three_maps(tmp_path):
    alphas = np.arange(0.02, 0.101, 0.01).round(2).tolist()
    methods = [
        Method(f"map-{i}.json", evaluation_of(1 - 0.05 * i, alphas=alphas), fit_of(segments=200)) for i in range(3)
    ]
    page = evaluation_page(methods, summary_of(draw_world()[0]))
    assert len(written(page, tmp_path / "r.html").encode()) < 1_000_000


# ---------------------------------------------------------------------------- files and the extra


@pytest.fixture
def small():
    return evaluation_page([Method("as served", evaluate([0, 1] * 20, np.arange(40) / 40, [0.5]))])


def test_a_page_that_cannot_be_written_is_an_error(small, tmp_path):
    with pytest.raises(UncurseError, match="cannot write"):
        small.to_html(tmp_path / "none" / "r.html")


WITHOUT = """
import sys
for name in ("matplotlib", "jinja2", "markupsafe"):
    sys.modules[name] = None
import uncurse
from uncurse.report import Method, evaluation_page

page = evaluation_page([Method("as served", uncurse.evaluate([0, 1], [0.2, 0.7], [1.0]))])
print(page.headline)
for call in (page.figures, lambda: page.to_html("r.html"),
             lambda: uncurse.SelectionErrorDisplay.from_predictions([0, 1], [0.1, 0.9], alphas=[1.0])):
    try:
        call()
    except uncurse.UncurseError as error:
        print(error)
"""


def test_without_the_extra_the_error_names_it(tmp_path):
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    headline, *errors = done.stdout.splitlines()
    assert headline.startswith("Predictions as served are ")
    assert len(errors) == 3
    assert all("pip install 'uncurse[report]'" in error for error in errors)
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_and_jinja2_are_imported_only_when_used():
    code = "import sys, uncurse, uncurse.report, uncurse.displays; assert not {'matplotlib', 'jinja2'} & {*sys.modules}"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
