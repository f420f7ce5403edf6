"""The report: what it says is what was measured, names stay text, one file that loads nothing."""

import errno
import json
import os
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import numpy as np
import pytest
from scipy.special import expit

from uncurse import VAD, Affine, Cells, UncurseError, evaluate
from uncurse.evidence import from_arrays
from uncurse.metrics import evaluate_cells
from uncurse.report import Method, Report, data, describe, given, sections, words
from uncurse.report.about import about_fit
from uncurse.report.given import clean
from uncurse.report.marks import apart
from uncurse.report.markup import text
from uncurse.report.page import _done
from uncurse.report.style import MUTED, PAPER, SERIES, WIDE
from uncurse.theory import gaussianity

HOSTILE = "<img src=x onerror=alert(1)>"
SCRIPT = "</script><script>alert(2)</script>"
ALPHAS = [0.02, 0.03, 0.05, 0.1, 1.0]


def logits(rows=60_000, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(-2.0, 0.8, rows)
    return truth + rng.normal(0, 0.4, rows), rng.random(rows) < expit(truth)


def about(summary, *, groups=0, name="placement"):
    rng = np.random.default_rng(1)
    each = {
        f"{name} {i}": {"lambda": rng.normal(0.8, 0.05), "center": -2.0, "rows": 100 + i, "standard_error": 0.01}
        for i in range(groups)
    }
    return {
        "method": "vad", "lambda": 0.8, "standard_error": 0.002, "groups": each, "labelled": None,
        "pool": {**summary, "sources": ["pool.parquet"], "columns": ["s1", "s2"]}, "command": "uncurse fit",
    }  # fmt: skip


@pytest.fixture(scope="module")
def world():
    scores, clicks = logits()
    cells = Cells().update(scores, clicks)
    return cells, describe(cells)


@pytest.fixture(scope="module")
def methods(world):
    cells, summary = world
    return [
        Method("as served", evaluate_cells(cells, None, ALPHAS)),
        Method("vad.json", evaluate_cells(cells, Affine(0.8, -0.4), ALPHAS), about(summary, groups=3)),
    ]


@pytest.fixture(scope="module")
def page(methods, world, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    facts = {"log": ["served.parquet", "60,000 rows"], "command": "uncurse evaluate served.parquet"}
    Report(methods, world[1], facts, title="Ads, August").to_html(path)
    return path.read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Elements with their attributes, the text, and whether tags close as they open."""

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


# ---------------------------------------------------------------------------- summaries


def test_a_summary_has_the_moments_and_all_but_the_far_ends_of_the_scores():
    x = np.random.default_rng(0).normal(-3.0, 0.5, 50_000)
    summary = describe(Cells().update(x))
    assert json.loads(json.dumps(summary)) == summary
    assert (summary["rows"], summary["weight"], summary["scale"]) == (50_000, 50_000, "logit")
    np.testing.assert_allclose([summary["mean"], summary["sd"]], [x.mean(), x.std()], rtol=1e-9)
    edges, weight = (np.array(summary["histogram"][k]) for k in ("edges", "weight"))
    assert 60 <= len(weight) <= 80
    np.testing.assert_array_equal(weight, np.histogram(x, edges)[0])
    assert 0.998 * 50_000 <= weight.sum() <= 50_000


def test_the_grid_and_probabilities_give_the_summary_of_exact_logits():
    x = np.random.default_rng(1).normal(-3.0, 0.5, 50_000)
    exact = describe(Cells(exact=True).update(x))
    grid = describe(Cells(exact=False).update(x))
    probabilities = describe(Cells("probability").update(expit(x)))
    for other in (grid, probabilities):
        for name in ("mean", "sd"):
            assert other[name] == pytest.approx(exact[name], abs=1e-6)
        here, there = (np.array(s["histogram"]["weight"]) for s in (exact, other))
        np.testing.assert_allclose(here, there, atol=40)  # a slot at an edge is shared
        assert other["gaussianity"]["distance"] == pytest.approx(exact["gaussianity"]["distance"], abs=1e-3)
    assert describe(Cells("value").update(x))["scale"] == "value"


def test_what_cannot_be_judged_is_not():
    assert describe(Cells().update([0.5, -1.0, 0.5]))["gaussianity"] is None
    constant = describe(Cells().update(np.full(100, -2.0)))
    assert constant["gaussianity"] is None
    assert constant["histogram"] == {"edges": [-2.5, -1.5], "weight": [100.0]}
    weighted = describe(
        Cells().update(np.random.default_rng(0).normal(size=100), sample_weight=np.linspace(0.5, 1, 100))
    )
    assert weighted["gaussianity"]["p_value"] is None
    with pytest.raises(UncurseError, match="these cells hold no rows, so there is nothing to describe"):
        describe(Cells())


@pytest.mark.parametrize("ties", [None, 1])
def test_gaussianity_of_exact_cells_is_that_of_the_rows(ties):
    x = np.random.default_rng(0).gamma(4.0, 0.5, 3_000)
    x = x if ties is None else x.round(ties)
    rows, cells = gaussianity(x), gaussianity(Cells().update(x))
    assert cells.n == rows.n
    for name in ("mean", "sd", "skewness", "excess_kurtosis", "distance", "p_value"):
        assert getattr(cells, name) == pytest.approx(getattr(rows, name), rel=1e-9, abs=1e-12), name


def test_gaussianity_of_the_grid_is_close():
    x = np.random.default_rng(0).gamma(4.0, 0.5, 200_000) - 4
    rows, cells = gaussianity(x), gaussianity(Cells(exact=False).update(x))
    assert cells.distance == pytest.approx(rows.distance, abs=1e-4)
    assert (cells.skewness, cells.excess_kurtosis) == pytest.approx((rows.skewness, rows.excess_kurtosis), abs=1e-3)
    with pytest.raises(UncurseError, match="0 scores are too few"):
        gaussianity(Cells())


# ---------------------------------------------------------------------------- what is said


def evaluation(methods, error, standard_error, rows=slice(None)):
    """The evaluation of the first method with another calibration error."""
    old = methods[0].evaluation
    made = []
    for row in old.rows[rows]:
        value = type(row.ece)(error, standard_error)
        made.append(replace(row, calibration_error=value))
    return replace(old, rows=tuple(made))


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (
            (0.123, 0.01), (-0.004, 0.01),
            "On the top 2% the scores over-predict by 12.3% (95% interval +10.3% to +14.3%); after map.json they are "
            "within noise of true: −0.4% (−2.4% to +1.6%).",
        ),
        ((-0.05, 0.01), None, "On the top 2% the scores under-predict by 5.0% (95% interval −7.0% to −3.0%)."),
        ((0.001, 0.0001), None, "On the top 2% the scores over-predict by 0.10% (95% interval +0.08% to +0.12%)."),
    ],
)  # fmt: skip
def test_the_headline_says_how_much_before_and_after(methods, before, after, sentence):
    given = [Method("as served", evaluation(methods, *before))]
    if after is not None:
        given.append(Method("map.json", evaluation(methods, *after)))
    assert Report(given).headline == sentence


def test_the_headline_names_the_best_of_several_and_the_selection(methods):
    errors = {"as served": 0.2, "a": 0.05, "b": -0.01, "c": 0.02}
    given = [Method(name, evaluation(methods, e, 0.001, slice(1))) for name, e in errors.items()]
    said = Report(given, selection="top 1 of each request").headline
    assert said.startswith("On the top 1 of each request the scores over-predict by 20.00%")
    assert "; after b they under-predict by 1.00% (" in said


def test_intervals_hold_the_evaluations_numbers(methods):
    rows = data.errors(methods)
    assert len(rows) == len(methods) * len(ALPHAS)
    first = methods[0].evaluation.rows[0].calibration_error
    assert rows[0]["value"] == float(first)
    assert rows[0]["high"] - rows[0]["low"] == pytest.approx(2 * 1.959964 * first.standard_error)
    for metric in ("ece", "mce"):
        row = data.binned(methods, metric)[0]
        assert row["floor"] == getattr(methods[0].evaluation.rows[0], metric).floor


def test_reliability_is_the_bins_of_the_ece(methods):
    row = methods[0].evaluation.rows[0]
    gap = sum(b.weight * abs(b.predicted - b.observed) for b in row.bins) / sum(b.weight for b in row.bins)
    assert gap == pytest.approx(row.ece)
    made = [r for r in data.reliability(methods, 0) if r["series"] == 0]
    assert [r["observed"] for r in made] == [b.observed for b in row.bins]
    assert sum(b.weight for b in row.bins) == pytest.approx(row.selected)
    assert np.all(np.diff([b.predicted for b in row.bins]) > 0)
    b = row.bins[0]
    assert b.standard_error == pytest.approx(np.sqrt(b.observed * (1 - b.observed) / b.weight))


def test_a_bin_without_positives_still_has_an_error():
    row = evaluate([0, 0, 0, 1], [0.1, 0.1, 0.8, 0.9], [1.0], n_bins=2).rows[0]
    assert row.bins[0].observed == 0
    assert row.bins[0].standard_error == pytest.approx(np.sqrt(2 * 0.1 * 0.9) / 2)


def test_drift_is_told_with_its_consequence(world):
    summary = world[1]
    moved = {**summary, "mean": summary["mean"] + 0.5 * summary["sd"]}
    base = evaluate([0, 1, 1, 0], [0.1, 0.9, 0.8, 0.2], [1.0])
    given = [Method("as served", base), Method("m", base, {"pool": summary, "labelled": moved})]
    labelled, evaluated = words.found_drift(data.drift(given, {**summary, "rows": 5}))
    assert "0.50 sd above the pool scores" in labelled
    assert "a large drift" in labelled
    assert "no drift to speak of" in evaluated
    assert data.drift([Method("as served", base)], summary) == []


def test_the_gaussian_verdict_depends_on_the_share(world):
    summary = {**world[1], "gaussianity": {"distance": 0.01, "skewness": 0.1, "excess_kurtosis": 0.0, "p_value": 0.0}}
    assert "one λ for all scores is fair" in words.found_gaussian(summary, 0.1)
    assert "more than the theory" in words.found_gaussian(summary, 0.02)
    assert "may over-correct" in words.found_gaussian(summary, 0.005)
    assert "p < 0.001" in words.found_gaussian(summary, 0.02)
    assert "Too few" in words.found_gaussian({**summary, "gaussianity": None}, 0.02)


def test_a_floor_of_zero_is_told_apart():
    wrong = [Method("ones", evaluate([1, 0] * 50, np.ones(100), [1.0]))]
    assert words.found_floors(data.binned(wrong, "ece")) == (
        "ECE on the smallest selection: ones 0.5, all of it above its floor (0)."
    )
    true = [Method("ones", evaluate(np.ones(100), np.ones(100), [1.0]))]
    assert "ones 0, at its floor (0)." in words.found_floors(data.binned(true, "ece"))
    row = {"name": "m", "alpha": 0.1, "value": 0.5}
    for floor, said in ((0.4, "within noise of its floor (0.4)"), (0.1, "5.0 times"), (5e-324, "over 1,000 times")):
        assert said in words.found_floors([{**row, "floor": floor}])


def test_labels_are_moved_apart_and_kept_in_order():
    placed = apart([0.5, 0.5, 0.5, 0.9], 0.1, 0.0, 1.0)
    assert np.all(np.diff(np.sort(placed)) > 0.0999)
    assert np.argsort(placed).tolist() == [0, 1, 2, 3]
    assert 0 <= min(placed) <= max(placed) <= 1


# ---------------------------------------------------------------------------- figures


def test_every_figure_is_a_specification_of_its_own_data(methods, world):
    figures = Report(methods, world[1]).figures()
    assert list(figures) == [
        "calibration-error", "reliability-2", "reliability-3", "reliability-5", "reliability-10", "reliability-100",
        "ece-mce", "scores", "lambda", "lambda-groups-1",  "drift",
    ]  # fmt: skip
    for figure in figures.values():
        figure.to_dict()  # validates against Vega-Lite's schema
    spec = json.dumps(figures["calibration-error"].to_dict())
    assert "http" not in spec.replace("https://vega.github.io/schema/", "")
    assert repr(float(methods[1].evaluation.rows[0].calibration_error)) in spec


def test_figures_are_saved_as_svg_and_png(methods, world, tmp_path):
    report = Report(methods[:1], world[1])
    files = report.save_figures(tmp_path / "new" / "figures")
    assert {f.name for f in files} >= {"calibration-error.svg", "calibration-error.png", "scores.png"}
    for file in files:
        if file.suffix == ".svg":
            assert ET.parse(file).getroot().tag.endswith("svg")
        else:
            content = file.read_bytes()
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            assert struct.unpack(">I", content[16:20])[0] > 600
    assert sorted(p.name for p in (tmp_path / "new" / "figures").iterdir()) == sorted(f.name for f in files)
    (tmp_path / "file").write_text("")
    with pytest.raises(UncurseError, match="cannot write to"):
        report.save_figures(tmp_path / "file")


@pytest.mark.parametrize(
    ("alphas", "names"),
    [
        ([0.020001, 0.020002, 0.05, 1 / 3], ["2_0001", "2_0002", "5", "33_33"]),
        ([0.02, 0.020000001, 0.12345], ["2", "2_0000001", "12_35"]),
        ([0.1, 0.1, 1e-3], ["0_1", "10", "10-2"]),
    ],
)
def test_every_figure_has_a_name_of_its_own(alphas, names):
    scores, clicks = logits(3_000)
    figures = Report([Method("as served", evaluate(clicks, expit(scores), alphas))]).figures()
    assert [name for name in figures if name.startswith("reliability")] == [f"reliability-{name}" for name in names]


FULL = """
import resource, sys
from uncurse import UncurseError, evaluate
from uncurse.report import Method, Report

report = Report([Method("as served", evaluate([0, 1] * 20, [i / 40 for i in range(40)], [0.5, 1.0]))])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write, name in ((report.to_html, "r.html"), (report.save_figures, "figures")):
    try:
        write(f"{sys.argv[1]}/{name}")
    except UncurseError as error:
        print(error)
"""


def test_a_full_disk_is_said_and_leaves_nothing_half_written(tmp_path):
    pytest.importorskip("resource", reason="there are no limits to set on this system")
    done = subprocess.run([sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        f"cannot write {tmp_path / 'r.html'}: {os.strerror(errno.EFBIG)}",
        f"cannot write {tmp_path / 'figures' / 'calibration-error.svg'}: {os.strerror(errno.EFBIG)}",
    ]
    assert [p.name for p in tmp_path.rglob("*")] == ["figures"]


def test_figures_that_cannot_be_written_are_said(methods, tmp_path, monkeypatch):
    report = Report(methods[:1])
    (tmp_path / "calibration-error.svg").mkdir()
    with pytest.raises(UncurseError, match=r"^cannot write .*calibration-error\.svg: "):
        report.save_figures(tmp_path)

    def refused(*_, **__):
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS))

    (tmp_path / "calibration-error.svg").rmdir()
    monkeypatch.setattr("tempfile.mkstemp", refused)  # root may write to any folder
    for write, name in ((report.to_html, "r.html"), (report.save_figures, "")):
        with pytest.raises(UncurseError, match=rf"^cannot write .*: {os.strerror(errno.EROFS)}$"):
            write(tmp_path / name)


# ---------------------------------------------------------------------------- the page


def test_the_page_is_whole_and_says_what_was_measured(page, methods):
    reader = Reader(page)
    assert reader.open == []
    for heading in ("Calibration error by share", "Reliability on the selected set", "ECE and MCE against",
                    "about Gaussian?", "λ, the shrinkage", "Drift between", "What was done", "How to"):  # fmt: skip
        assert heading in reader.text
    assert "Ads, August" in reader.text
    assert "uncurse evaluate served.parquet" in reader.text
    assert words.percent(methods[0].evaluation.rows[0].calibration_error) in reader.text


@pytest.mark.parametrize("key", ["command", "Command"])
def test_the_command_is_set_as_code(key, methods):
    assert "<dd><code>uncurse evaluate a.parquet</code></dd>" in _done(
        Report(methods, facts={key: "uncurse evaluate a.parquet"})
    )


def test_the_page_loads_nothing_and_runs_nothing(page):
    reader = Reader(page)
    tags = {tag for tag, _ in reader.elements}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "image", "use", "a", "base", "form"}
    for _, attributes in reader.elements:
        assert not {"src", "href", "xlink:href", "srcset", "action", "background"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert "http:" not in page
    assert "https:" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    policies = [a["content"] for tag, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policies
    assert policies[0].startswith("default-src 'none'")


def test_every_figure_says_what_it_shows_and_has_its_numbers(page):
    reader = Reader(page)
    drawn = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(drawn) == 2 * (1 + len(ALPHAS) + 5)
    assert all(len(a["aria-label"]) > 20 and a["viewbox"].startswith("0 0 ") for a in drawn)
    assert sum(tag == "figcaption" for tag, _ in reader.elements) == sum(tag == "figure" for tag, _ in reader.elements)
    assert all(a.get("scope") in ("row", "col") for tag, a in reader.elements if tag == "th")
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for _, attributes in reader.elements:
        for value in attributes.values():
            for found in re.findall(r"url\(#([^)]*)\)", value or ""):
                assert found in ids


@pytest.mark.parametrize("name", [HOSTILE, SCRIPT, "\"' onload='x", "a\\u003cb", "{{7*7}} ${x} \u202e", "'+alert(1)+'"])
def test_names_stay_text(name, world, tmp_path):
    cells, summary = world
    summary = {**summary, "sources": [name], "columns": [name]}
    base = evaluate_cells(cells, None, [0.02, 0.1])
    fit = {**about(summary, groups=3, name=name),
           "labelled": {**summary, "rows": 3}, "command": name, "method": name}  # fmt: skip
    report = Report([Method(name, base), Method(name, base, fit)], summary, {name: name, "log": [name]}, title=name)
    report.to_html(tmp_path / "r.html")
    content = (tmp_path / "r.html").read_text(encoding="utf-8")
    reader = Reader(content)
    assert reader.open == []
    assert not {"img", "script"} & {tag for tag, _ in reader.elements}
    assert not any(key.startswith("on") for _, attributes in reader.elements for key in attributes)
    assert name in reader.text
    report.save_figures(tmp_path / "figures")
    for file in (tmp_path / "figures").glob("*.svg"):
        assert not any(e.tag.endswith(("img", "script")) for e in ET.parse(file).iter())


DRAW = """
import json, sys
from uncurse import Cells, evaluate
from uncurse.report import Method, Report, describe

name, folder = json.loads(sys.argv[1]), sys.argv[2]
y, p = [0, 1] * 20, [i / 41 for i in range(1, 41)]
scores = {**describe(Cells().update([i / 20 for i in range(40)])), "sources": [name], "columns": [name]}
both = {f"{name}{name}": {"lambda": 0.7, "rows": 3}, f"{name}\\x02": {"lambda": 0.9, "rows": 4}}
about = {"lambda": 0.8, "groups": both, "pool": scores, "command": name, "version": name, "link": name}
about["labelled"] = {**scores, "scale": name, "mean": 0.0}
of = evaluate(y, p, [0.5, 1.0])
facts = {name: name, "log": [name]}
report = Report([Method(name, of), Method(name, of, about)], scores, facts, title=name, selection=name)
report.to_html(f"{folder}/r.html")
report.save_figures(f"{folder}/figures")
report.headline.encode()
one = Report([Method(name, evaluate(y, p, [0.5]), about)], {**scores, "scale": name}, selection=name)
one.to_html(f"{folder}/one.html")
"""


@pytest.mark.parametrize("characters", ["\x00\x01\ufffe", "\x0b\x1f\ud800"])
def test_characters_that_no_document_may_hold_are_replaced(characters, tmp_path):
    # In a process of its own: where such a character reaches the drawing, it ends the process.
    given = [sys.executable, "-c", DRAW, json.dumps(f"na{characters}me"), str(tmp_path)]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for page in ("r.html", "one.html"):
        content = (tmp_path / page).read_text(encoding="utf-8")
        assert "na\ufffd\ufffd\ufffdme" in Reader(content).text
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", content)
    assert "all 2 groups" in content
    for file in (tmp_path / "figures").glob("*.svg"):
        ET.parse(file)


def test_clean_leaves_text_alone():
    name = "a\tb\r\nc \x7f\x85 λ − \u202e \ufffd \U0001f600 \U0010ffff"
    assert clean(name) == name
    assert clean("\x00\x1f\ud83d\udfff\ufffe\uffff") == "\ufffd" * 6


def test_a_large_report_stays_below_two_megabytes(world, tmp_path):
    cells, summary = world
    alphas = np.arange(0.02, 0.101, 0.01).round(2).tolist()
    given = [
        Method(f"map-{i}.json", evaluate_cells(cells, Affine(1 - 0.05 * i, 0.0), alphas), about(summary, groups=200))
        for i in range(6)
    ]
    path = tmp_path / "r.html"
    Report(given, summary).to_html(path)
    assert path.stat().st_size < 2_000_000
    content = path.read_text(encoding="utf-8")
    assert "the 40 largest of 200 groups" in content
    assert "placement 199" in content
    assert "placement 100<" not in content


def test_a_page_of_one_evaluation_of_one_share(tmp_path):
    scores, clicks = logits(2_000)
    Report([Method("the predictions", evaluate(clicks, expit(scores), 0.1))]).to_html(tmp_path / "r.html")
    content = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "On the top 10% the scores" in content
    assert "the shrinkage" not in content
    assert ".choice{display:none}" not in content


def test_a_fit_that_says_little_is_shown_as_far_as_it_goes(methods, tmp_path):
    little = [{}, {"lambda": 0.9}, {"groups": {"a": {"lambda": 0.7}}, "lambda": None}, {"pool": {"rows": 7}}]
    given = [methods[0]] + [Method(f"m{i}", methods[0].evaluation, one) for i, one in enumerate(little)]
    report = Report(given)
    report.to_html(tmp_path / "r.html")
    assert "m1: λ = 0.900" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "drift" not in report.figures()


ODD = ["x", "", 1, -1.5, True, None, [], [1], ["x"], {}, {"x": 1}, {"rows": "many"}, {"histogram": 1}, {"lambda": {}},
       10**400, float("nan"), float("inf"), -1e300, 5e-324]  # fmt: skip
PLACES = [
    (), ("lambda",), ("standard_error",), ("groups",), ("groups", "placement 1"), ("groups", "placement 1", "lambda"),
    ("groups", "placement 1", "rows"), ("groups", "placement 1", "standard_error"), ("pool",), ("pool", "rows"),
    ("pool", "mean"), ("pool", "sd"), ("pool", "weight"), ("pool", "scale"), ("pool", "histogram"),
    ("pool", "histogram", "edges"), ("pool", "histogram", "weight"), ("pool", "histogram", "edges", 1),
    ("pool", "histogram", "weight", 1), ("pool", "gaussianity"), ("pool", "gaussianity", "distance"),
    ("pool", "gaussianity", "p_value"), ("pool", "sources"), ("pool", "columns"), ("method",), ("link",),
    ("command",), ("version",), ("labelled",),
]  # fmt: skip


@cache
def _whole_fit():
    whole = about(describe(Cells().update(np.arange(100) / 10)), groups=3)
    return json.dumps({**whole, "labelled": {**whole["pool"], "rows": 3}})


def fit_with(value, place):
    """What a fit says of itself, with another value in one place."""
    whole = json.loads(_whole_fit())
    inner = whole
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return whole


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, ("about", *place))))
def test_what_a_fit_says_in_another_shape_is_not_said(place, methods, world, monkeypatch):
    # Figures are made, and not drawn: that takes a second for each page.
    monkeypatch.setattr(sections, "_drawn", lambda draw, prefix, label: draw(WIDE) and text(label))
    base = evaluation(methods, 0.1, 0.01, slice(1))
    seen = []
    for odd in ODD:
        fit = fit_with(odd, place) if place else odd
        for served in (None, world[1]) if place[:1] == ("pool",) else (None,):
            report = Report([Method("as served", base), Method("odd", base, fit)], served)
            assert Report(report.methods, report.served) == report
            if report not in seen:  # most of what is odd leaves the same
                seen.append(report)
                for part in (sections.gaussian, sections.shrinkage, sections.drift, _done):
                    assert Reader(part(report)).open == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("pool",), "x"), (("pool",), {"histogram": 1}), (("pool",), {"rows": "many"}), (("groups",), [1]),
        (("lambda",), "x"), (("lambda",), 1e100), (("pool", "histogram", "edges", -1), 1e100), (("pool", "sd"), 5e-324),
    ],
)  # fmt: skip
def test_the_rest_of_such_a_fit_is_drawn(place, value, methods, tmp_path):
    base = evaluation(methods, 0.1, 0.01, slice(1))
    report = Report([Method("odd", base, fit_with(value, place))])
    report.to_html(tmp_path / "r.html")
    reader = Reader((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "uncurse fit" in reader.text
    assert "labelled: pool.parquet, 3 rows, columns s1, s2" in reader.text
    assert ("odd: λ = 0.800" in reader.text) == (place != ("lambda",))
    # Groups stand in the section on λ.
    assert ("all 3 groups" in reader.text) == (place != ("groups",) and (place, value) != (("lambda",), "x"))
    report.save_figures(tmp_path)


def test_what_is_right_in_a_fit_is_kept_as_it_is(world):
    whole = about(world[1], groups=2)
    kept = given.about(whole)
    assert kept["pool"] == whole["pool"]
    assert given.scores(world[1]) == world[1]
    for name, one in whole["groups"].items():
        assert kept["groups"][name] == {key: one[key] for key in ("lambda", "standard_error", "rows")}
    pool = from_arrays([[0.0, 0.1], [1.0, 0.9], [2.0, 2.2]])
    whole = about_fit(VAD().fit(pool), pool, command="c")
    shown = ("method", "link", "replicas", "shape", "command", "version", "lambda", "standard_error", "pool", "groups")
    assert given.about(whole) == {key: whole[key] for key in shown}


def test_a_page_that_cannot_be_written_leaves_the_old_one(methods, tmp_path):
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(UncurseError, match="cannot write"):
        Report(methods[:1]).to_html(tmp_path / "none" / "r.html")
    Report(methods[:1]).to_html(path)
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert [p.name for p in tmp_path.iterdir()] == ["r.html"]


def test_methods_must_be_there_and_share_their_shares(methods):
    with pytest.raises(UncurseError, match=r"a report needs at least one method; pass Method\(name, evaluation\)"):
        Report([])
    other = Method("other", evaluate([0, 1, 1], [0.2, 0.8, 0.9], [1.0]))
    with pytest.raises(UncurseError, match="'other' was evaluated on other shares than 'as served'; use the same alp"):
        Report([methods[0], other])


def test_report_accepts_shares_without_a_positive_label(tmp_path):
    p = np.linspace(0.01, 0.5, 200)
    for y in ((np.arange(200) % 5 == 0) & (np.arange(200) < 190), np.zeros(200, int)):
        with pytest.warns(UserWarning, match="has no positive label"):
            result = evaluate(y, p, [0.02, 0.5])
        Report([Method("a", result), Method("b", result)]).to_html(tmp_path / "r.html")
        page = (tmp_path / "r.html").read_text(encoding="utf-8")
        assert "n/a" in page
        assert ("On the top 50%" if y.any() else "No selection has a positive label") in page


def _luminance(color):
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("dark", [0, 1])
def test_every_colour_stands_out_from_the_paper(dark):
    for pair in (*SERIES, MUTED):
        light, deep = sorted((_luminance(pair[dark]), _luminance(PAPER[dark])), reverse=True)
        assert (light + 0.05) / (deep + 0.05) > 4.5


def test_the_package_draws_nothing_until_asked():
    code = "import sys, uncurse, uncurse.report; assert not {'altair', 'vl_convert'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
