"""Draw the pictures of README and of the site: ``python -m benchmarks.pictures`` writes SVG files to docs.

The first one, hero.svg, has the candidates of ``uncurse demo``, whose true rates are known, and a correction without
labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import uncurse
from uncurse import demo
from uncurse.links import logistic

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 360, 56, 196, 64, 52
HIGHEST, LEAST_SHARE = 0.30, 0.01
TICKS = {"everyone": 1.0, "top 50%": 0.5, "20%": 0.2, "10%": 0.1, "5%": 0.05, "2%": 0.02, "top 1%": 0.01}
COLORS = {  # of the text, muted text, grid, axis, model, uncurse and actual rate, in light and dark mode
    "light": ("#fff", "#1b1f24", "#5b6470", "#e6e8eb", "#8b95a1", "#b5431c", "#1a62b3"),
    "dark": ("#14171b", "#e8eaed", "#a3acb8", "#2a3038", "#79838f", "#f28e63", "#79b5f7"),
}
ALT = "The pickier you are, the further the model's prediction is above the actual rate; with uncurse it stays close"


def style(mode: str) -> str:
    """Return the rules of a color scheme."""
    back, ink, muted, grid, axis, model, ours = COLORS[mode]
    return (
        f".bg{{fill:{back}}}.ink{{fill:{ink}}}.muted{{fill:{muted}}}.grid{{stroke:{grid}}}.axis{{stroke:{axis}}}"
        f".model{{stroke:{model}}}.t-model{{fill:{model}}}.ours{{stroke:{ours}}}.t-ours{{fill:{ours}}}"
        f".actual{{stroke:{ink}}}.t-actual{{fill:{ink}}}.gap{{fill:{model};opacity:.12}}"
    )


def x(share: float) -> float:
    """Return the position of a selected share, on a log axis."""
    return LEFT + (WIDTH - LEFT - RIGHT) * float(np.log(share) / np.log(LEAST_SHARE))


def y(rate: float) -> float:
    """Return the position of a rate."""
    return TOP + (HEIGHT - TOP - BOTTOM) * (HIGHEST - rate) / HIGHEST


def text(at: tuple[float, float], words: str, kind: str, more: str = "") -> str:
    """Return a text element."""
    return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" class="{kind}" {more}>{words}</text>'


def svg(width: float, height: float, alt: str, parts: list[str]) -> str:
    """Return a picture that follows the color scheme of the reader."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-size="13" role="img" '
        f'font-family="system-ui,-apple-system,Segoe UI,sans-serif" aria-label="{alt}">'
    )
    rules = f"<style>{style('light')}polyline{{fill:none;stroke-width:2.5}}"
    dark = f"@media (prefers-color-scheme: dark){{{style('dark')}}}</style>"
    back = f'<rect class="bg" width="{width:.0f}" height="{height:.0f}" rx="8"/>'
    return "\n".join([head, rules, dark, back, *parts, "</svg>"]) + "\n"


def hero() -> str:
    """Return predicted and actual rate by selected share."""
    scores, truth, _ = demo.make()
    fitted = uncurse.Auto(scale="logit", replicas="bootstrap").fit(scores).fitted_
    order = np.argsort(-scores[:, 0])
    lines = {"model": logistic(scores[:, 0]), "ours": fitted(scores[:, 0]), "actual": truth}
    shares = np.geomspace(1.0, LEAST_SHARE, 60)
    curves = {
        name: np.array([values[order[: round(a * len(truth))]].mean() for a in shares])
        for name, values in lines.items()
    }
    points = {
        name: [f"{x(a):.1f},{y(v):.1f}" for a, v in zip(shares, curve, strict=True)] for name, curve in curves.items()
    }
    bold = 'font-weight="650"'
    parts = [
        text((20, 28), "Right on average. Too high on the ones you pick.", "ink", f'font-size="17" {bold}'),
        text((20, 48), "Click rate of the selected candidates: predicted and actual", "muted"),
    ]
    for rate in (0.0, 0.1, 0.2, 0.3):
        kind = "grid" if rate else "axis"
        parts.append(f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(rate):.1f}" y2="{y(rate):.1f}"/>')
        parts.append(text((LEFT - 8, y(rate) + 4), f"{rate:.0%}", "muted", 'text-anchor="end"'))
    middle = 'text-anchor="middle"'
    parts += [text((x(share), HEIGHT - BOTTOM + 20), name, "muted", middle) for name, share in TICKS.items()]
    parts.append(text(((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10), "how many you select", "muted", middle))
    parts.append(f'<polygon class="gap" points="{" ".join(points["model"] + points["actual"][::-1])}"/>')
    for name, dash in (("actual", ""), ("model", ""), ("ours", 'stroke-dasharray="6 4"')):
        parts.append(f'<polyline class="{name}" points="{" ".join(points[name])}" {dash}/>')
    end = {name: float(curve[-1]) for name, curve in curves.items()}
    error = end["model"] / end["actual"] - 1
    start = WIDTH - RIGHT + 12
    parts += [
        text((start, y(end["model"]) - 8), f"model predicts {end['model']:.0%}", "t-model", bold),
        text((start, y(end["model"]) + 8), f"{error:.0%} too high", "muted"),
        text((start, y(end["ours"]) + 1), f"with uncurse {end['ours']:.0%}", "t-ours", bold),
        text((start, y(end["actual"]) + 17), f"actual rate {end['actual']:.0%}", "t-actual", bold),
    ]
    return svg(WIDTH, HEIGHT, ALT, parts)


def luck() -> str:
    """Return scores against true values, with the selected ones marked."""
    rng = np.random.default_rng(5)
    truth = rng.normal(0, 1, 400)
    score = truth + rng.normal(0, 0.7, 400)
    cut = float(np.sort(score)[-40])
    above = int(((score >= cut) & (score > truth)).sum())
    width, height, scale = 760.0, 420.0, 46.0

    def at(value: float, noisy: float) -> tuple[float, float]:
        return 215 + scale * value, 235 - scale * noisy

    (left, bottom), (right, top) = at(-3, -3), at(3, 3)
    words = [
        f"Of the 40 candidates with the highest scores, {above}",
        "lie above the diagonal: their score is higher",
        "than their true value.",
        "",
        f"Their mean score is {score[score >= cut].mean():.2f},",
        f"their mean true value {truth[score >= cut].mean():.2f}.",
        "",
        "Over all 400 the means agree:",
        f"{score.mean():.2f} and {truth.mean():.2f}.",
    ]
    parts = [
        text((20, 28), "Selection picks candidates whose noise is positive", "ink", 'font-size="17" font-weight="650"'),
        f'<line class="axis" x1="{left}" y1="{bottom}" x2="{right}" y2="{top}" stroke-dasharray="4 4"/>',
        f'<line class="axis" x1="{left}" x2="{right}" y1="{at(0, cut)[1]:.1f}" y2="{at(0, cut)[1]:.1f}"/>',
        text((left, at(0, cut)[1] - 6), "selected", "t-model", 'font-weight="650"'),
        text((right + 6, top + 4), "score = true value", "muted"),
        text((215, height - 8), "true value", "muted", 'text-anchor="middle"'),
        text((16, 235), "score", "muted"),
    ]
    for t, s in zip(truth, score, strict=True):
        kind = "t-model" if s >= cut else "muted"
        cx, cy = at(t, s)
        parts.append(f'<circle class="{kind}" cx="{cx:.1f}" cy="{cy:.1f}" r="3" opacity=".7"/>')
    parts += [text((430, 140 + 22 * i), line, "ink") for i, line in enumerate(words) if line]
    return svg(width, height, "Among the selected candidates most scores are higher than the true values", parts)


def box(left: float, top: float, width: float, lines: list[str], kind: str = "grid", ink: str = "ink") -> list[str]:
    """Return a box with centered lines."""
    height = 20.0 + 18 * len(lines)
    shape = f'<rect x="{left}" y="{top}" width="{width}" height="{height}" rx="6" fill="none" class="{kind}"/>'
    middle = 'text-anchor="middle"'
    return [shape, *(text((left + width / 2, top + 22 + 18 * i), line, ink, middle) for i, line in enumerate(lines))]


def arrow(start: tuple[float, float], end: tuple[float, float], words: str = "") -> list[str]:
    """Return a horizontal or vertical arrow, with a word beside it."""
    (x1, y1), (x2, y2) = start, end
    line = f'<line class="axis" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'
    tip = f"{x2 - 7},{y2 - 4} {x2 - 7},{y2 + 4}" if y1 == y2 else f"{x2 - 4},{y2 - 7} {x2 + 4},{y2 - 7}"
    place = ((x1 + x2) / 2, y1 - 6) if y1 == y2 else (x1 + 8, (y1 + y2) / 2 + 4)
    label = [text(place, words, "muted", 'text-anchor="middle"' if y1 == y2 else "")] if words else []
    return [line, f'<polygon class="muted" points="{x2},{y2} {tip}"/>', *label]


def which_call() -> str:
    """Return the decision tree: questions on the left, answers on the right."""
    steps = [
        ("Do you act on a selection?", "no", "a calibrator is enough:", "CalibratedClassifierCV"),
        ("An estimator and its training data?", "yes", "UncursedClassifierCV", "UncursedRegressorCV"),
        ("Scores of a second copy of the model?", "no", "use an earlier checkpoint:", "--replicas snapshots"),
        ("Do you show the best of each request?", "yes", "fit --request R --top-k K", "with all candidates"),
        ("Labels on rows not used in training?", "yes", "fit --labeled LOG", "--labels-from …"),
    ]
    parts: list[str] = []
    for i, (question, answer, *call) in enumerate(steps):
        top = 20.0 + 92 * i
        parts += box(20, top + 9, 300, [question], kind="axis")
        parts += box(440, top, 290, call, kind="ours", ink="t-ours")
        parts += arrow((320, top + 28), (440, top + 28), answer)
        parts += arrow((170, top + 47), (170, top + 101), "yes" if answer == "no" else "no")
    parts += box(20, 489, 300, ["fit, then evaluate when labels arrive"], kind="ours", ink="t-ours")
    return svg(750, 550, "A decision tree of five questions", parts)


def architecture() -> str:
    """Return the flow of data through the packages."""
    parts: list[str] = []
    flow = [
        (["rows", "files, frames, arrays"], "collect"),
        (["Evidence", "mergeable summary"], "fit"),
        (["Fitted", "map, record, errors"], "save"),
        (["map.json", "small, readable"], ""),
    ]
    for i, (lines, verb) in enumerate(flow):
        parts += box(20 + 236 * i, 40, 160, lines, kind="axis")
        parts += arrow((180 + 236 * i, 68), (256 + 236 * i, 68), verb) if verb else []
    uses = [
        ["apply", "a column in a log"],
        ["fold · export", "model file, SQL, C"],
        ["monitor", "every day"],
        ["refresh", "new labels"],
    ]
    for i, lines in enumerate(uses):
        parts += box(20 + 236 * i, 180, 160, lines, kind="ours", ink="t-ours")
        parts += arrow((100 + 236 * i, 140), (100 + 236 * i, 180))
    parts.append('<polyline class="axis" style="stroke-width:1" points="808,96 808,140 100,140"/>')
    parts += [
        text(
            (20, 270),
            "evaluate measures the error of a map on Evidence with labels; show and the pages draw it.",
            "muted",
        )
    ]
    return svg(
        910,
        290,
        "rows are collected as Evidence, a method fits a map, and map.json is applied, folded, monitored and refreshed",
        parts,
    )


if __name__ == "__main__":
    pictures = {
        "hero": hero,
        "_static/luck": luck,
        "_static/which-call": which_call,
        "_static/architecture": architecture,
    }
    for name, draw in pictures.items():
        Path(f"docs/{name}.svg").write_text(draw(), encoding="utf-8")
