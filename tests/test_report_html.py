"""The page as text: complete, offline, accessible, and names stay text."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.special import expit

from uncurse import Affine, Cells, evaluate
from uncurse.debias.records import DataRecord, FitRecord, GroupRecord
from uncurse.metrics import evaluate_cells
from uncurse.report import Method, Report, figures
from uncurse.report.prose import clean, percent
from uncurse.report.provenance import summarize_scores

HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"' onload='x", "a\\u003cb",
           "{{7*7}} ${x} \u202e", "{% raw %}'+alert(1)+'"]  # fmt: skip
ALPHAS = [0.02, 0.1, 1.0]


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    truth = rng.normal(-2.0, 0.8, 30_000)
    cells = Cells().update(truth + rng.normal(0, 0.4, 30_000), rng.random(30_000) < expit(truth))
    return cells, summarize_scores(cells)


def record_of(summary, name="placement", groups=3):
    pool = DataRecord(summary.rows, (name,), (name,), summary)
    labels = DataRecord(3, (name,), (name,), summarize_scores(Cells().update(np.arange(50) / 10)))
    return FitRecord(
        name, pool, labels, reason=name, lambda_=0.8, standard_error=0.002, link=name, replicas=name, calibrator=name,
        group=name, groups={f"{name} {i}": GroupRecord(0.8, -2.0, 100 + i) for i in range(groups)}, command=name,
        version=name,
    )  # fmt: skip


def written(report, path):
    report.to_html(path)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(world, tmp_path_factory):
    cells, summary = world
    methods = [
        Method("as served", evaluate_cells(cells, None, ALPHAS)),
        Method("vad.json", evaluate_cells(cells, Affine(0.8, -0.4), ALPHAS), record_of(summary)),
    ]
    methods = [replace(method, value=method.evaluation) for method in methods]
    facts = {"log": ["served.parquet", "30,000 rows"], "command": "uncurse evaluate served.parquet"}
    report = Report(methods, summary, facts, title="Ads, August", value_name="revenue in EUR")
    return written(report, tmp_path_factory.mktemp("report") / "report.html")


class Reader(HTMLParser):
    """Elements with their attributes, the text, and a check that tags close in order."""

    VOID = ("meta", "input", "br")

    def __init__(self, content):
        super().__init__()
        self.open, self.elements, self.words = [], [], []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


def test_the_page_is_complete(page, world):
    reader = Reader(page)
    assert reader.open == []
    assert page.startswith("<!DOCTYPE html>")
    for heading in ("Calibration error by selected share", "Predicted and observed outcomes",
                    "Reliability of the selected rows", "ECE and MCE compared", "normally distributed?",
                    "λ, the shrinkage factor", "Drift between", "How these results were made", "Terms",
                    "Value per million selected rows: revenue in EUR"):  # fmt: skip
        assert heading in reader.text
    assert "Ads, August" in reader.text
    assert "<code>uncurse evaluate served.parquet</code>" in page
    assert percent(evaluate_cells(world[0], None, ALPHAS).rows[0].calibration_error) in reader.text


def test_the_page_loads_nothing_and_runs_nothing(page):
    reader = Reader(page)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image", "a", "base", "form"}
    for _, attributes in reader.elements:
        assert not {"src", "xlink:href", "srcset", "action", "background"} & set(attributes)
        assert attributes.get("href", "#").startswith("#")
        assert not any(name.startswith("on") for name in attributes)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    policies = [a["content"] for tag, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0].startswith("default-src 'none'")


def test_every_figure_has_a_description_and_a_caption(page):
    reader = Reader(page)
    drawn = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(drawn) == 2 * (2 + len(ALPHAS) + 5)
    assert all(len(a["aria-label"]) > 20 and a["viewbox"].startswith("0 0 ") for a in drawn)
    assert sum(tag == "figcaption" for tag, _ in reader.elements) == sum(tag == "figure" for tag, _ in reader.elements)
    assert all(a.get("scope") in ("row", "col") for tag, a in reader.elements if tag == "th")
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    labels = [a["aria-label"] for _, a in reader.elements if a.get("role") == "region"]
    assert len(labels) == len(set(labels))
    for _, attributes in reader.elements:
        assert attributes.get("aria-labelledby") in (None, *ids)
        for value in attributes.values():
            assert set(re.findall(r"url\(#([^)]*)\)", value or "")) <= set(ids)
        assert attributes.get("href") in (None, *(f"#{one}" for one in ids))


def test_names_stay_text(world, tmp_path):
    cells, summary = world
    base = evaluate_cells(cells, None, [0.02, 0.1])
    methods = [Method(name, base, record_of(summary, name, groups=2)) for name in HOSTILE]
    methods = [replace(method, value=base) for method in methods]
    facts = {name: name for name in HOSTILE} | {"log": HOSTILE}
    report = Report(methods, summary, facts, title=HOSTILE[1], value_name=HOSTILE[0])
    reader = Reader(written(report, tmp_path / "r.html"))
    assert reader.open == []
    assert not {"img", "script"} & {tag for tag, _ in reader.elements}
    assert not any(key.startswith("on") for _, attributes in reader.elements for key in attributes)
    for name in HOSTILE:
        assert reader.text.count(name) > 20
    drawn = report.figures()
    for name in ("calibration-error", "reliability-2", "lambda-groups-0", "drift"):
        svg = ET.fromstring(figures.to_svg(drawn[name]))
        assert not any(element.tag.endswith(("img", "script")) for element in svg.iter())


DRAW = """
import json, sys
from uncurse import Cells, evaluate
from uncurse.debias.records import DataRecord, FitRecord, GroupRecord
from uncurse.report import Method, Report
from uncurse.report.provenance import summarize_scores

name, folder = json.loads(sys.argv[1]), sys.argv[2]
y, p = [0, 1] * 20, [i / 41 for i in range(1, 41)]
scores = summarize_scores(Cells().update([i / 20 for i in range(40)]))
pool = DataRecord(40, (name,), (name,), scores)
groups = {f"{name}{name}": GroupRecord(0.7, 0.0, 3), f"{name}\\x02": GroupRecord(0.9, 0.0, 4)}
record = FitRecord("vad", pool, lambda_=0.8, groups=groups, command=name, link=name, version=name, group=name)
of = evaluate(y, p, [0.5, 1.0])
report = Report([Method(name, of), Method(name, of, record)], scores, {name: name, "log": [name]}, name, name)
report.to_html(f"{folder}/r.html")
report.headline.encode()
one = Report([Method(name, evaluate(y, p, [0.5]), record)], scores, selection=name)
one.to_html(f"{folder}/one.html")
one.save_figures(f"{folder}/figures")
"""


def test_characters_that_xml_does_not_allow_are_replaced(tmp_path):
    # In its own process: such a character would end the process that draws it.
    given = [sys.executable, "-c", DRAW, json.dumps("na\x00\x01\ufffe\x0b\x1f\ud800me"), str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("r.html", "one.html"):
        content = (tmp_path / page).read_text(encoding="utf-8")
        assert f"na{6 * chr(0xFFFD)}me" in Reader(content).text
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", content)
        assert "all 2 groups" in content
    files = list((tmp_path / "figures").glob("*.svg"))
    assert files
    for file in files:
        ET.parse(file)


def test_clean_leaves_valid_text_unchanged():
    name = "a\tb\r\nc \x7f\x85 λ − \u202e \ufffd \U0001f600 \U0010ffff"
    assert clean(name) == name
    assert clean("\x00\x1f\ud83d\udfff\ufffe\uffff") == "\ufffd" * 6


def test_a_large_report_stays_below_a_megabyte_for_three_maps(world, tmp_path):
    cells, summary = world
    alphas = np.arange(0.02, 0.101, 0.01).round(2).tolist()
    record = record_of(summary, groups=200)
    methods = [
        Method(f"map-{i}.json", evaluate_cells(cells, Affine(1 - 0.05 * i, 0.0), alphas), record) for i in range(3)
    ]
    content = written(Report(methods, summary), tmp_path / "r.html")
    assert len(content.encode()) < 1_000_000


def test_a_page_of_one_evaluation_of_one_share(tmp_path):
    rng = np.random.default_rng(0)
    scores = rng.normal(-2.0, 0.9, 2_000)
    report = Report([Method("the predictions", evaluate(rng.random(2_000) < expit(scores), expit(scores), 0.1))])
    content = written(report, tmp_path / "r.html")
    assert "On the top 10%, the scores" in content
    assert "shrinkage" not in content
    assert ":has(#alpha" not in content
    assert 'name="alpha"' not in content
