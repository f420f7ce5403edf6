"""Worlds, states and a reader of HTML for the tests of the pages."""

from datetime import datetime, timedelta
from html.parser import HTMLParser

import numpy as np
from scipy.special import expit

from uncurse import Affine, evaluate
from uncurse.evidence import Histogram
from uncurse.methods.records import ScoreSummary
from uncurse.monitoring import MonitorState
from uncurse.monitoring.sequential import LabelSums
from uncurse.monitoring.state import Day, map_digest

HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "\"' onload='x", "a\\u003cb",
           "{{7*7}} ${x} \u202e", "{% raw %}'+alert(1)+'"]  # fmt: skip
MAP = Affine(1.0, 0.0)
ALPHAS = [0.02, 0.05, 0.1, 1.0]


def summary_of(scores):
    """The distribution of scores."""
    return ScoreSummary.of(Histogram().update(scores))


def draw_world(rows=30_000, seed=0):
    """Noisy logits and clicks."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-2.0, 0.8, rows)
    return truth + rng.normal(0, 0.4, rows), (rng.random(rows) < expit(truth)).astype(int)


def evaluation_of(slope=1.0, intercept=0.0, alphas=ALPHAS):
    """The evaluation of the world after a map."""
    scores, clicks = draw_world()
    return evaluate(clicks, expit(slope * scores + intercept), alphas)


def state_of(days, error=lambda day: 0.0, rows=1.0, hours=24, seed=0, segments=()):
    """A state of so many days with 100 positives each, from sums instead of rows."""
    rng, found, sums = np.random.default_rng(seed), {}, []
    predictions, counts = np.array([0.01, 0.03, 0.1]), np.array([4_000, 1_000, 300])
    for day in range(days):
        n = np.maximum((counts * rows).astype(int), 1)
        observed = rng.binomial(n, predictions / (1 + error(day)))
        sums.append(LabelSums.of(predictions, observed, n))
        time = datetime(2026, 11, 1) + timedelta(hours=hours * day)
        name = time.date().isoformat() if hours == 24 else time.isoformat(timespec="minutes")
        found[name] = Day(sums[-1], -3.0 + 0.01 * day, 1.0, {"log.parquet": ""})
    total = sum(sums[1:], sums[0])
    return MonitorState(map_digest(MAP), found, {"1% to 2%": total}, dict.fromkeys(segments, total))


def section(page, name):
    """The section of a page with this id, or None."""
    return next((one for one in page.sections if one.id == name), None)


def tables(page, name):
    """The tables of a section."""
    return [block for block in section(page, name).blocks if block.kind == "table"]


def written(page, path):
    """The HTML of a page."""
    page.to_html(path)
    return path.read_text(encoding="utf-8")


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
