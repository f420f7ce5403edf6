"""Draw the first picture of README and of the site: ``python -m benchmarks.hero`` writes docs/hero.svg.

Data: the candidates of ``uncurse demo``, whose true rates are known, and a correction without labels.
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


def picture() -> str:
    """Return the picture as SVG."""
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
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="13" role="img" '
        f'font-family="system-ui,-apple-system,Segoe UI,sans-serif" aria-label="{ALT}">',
        f"<style>{style('light')}polyline{{fill:none;stroke-width:2.5}}",
        f"@media (prefers-color-scheme: dark){{{style('dark')}}}</style>",
        f'<rect class="bg" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
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
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path("docs/hero.svg").write_text(picture(), encoding="utf-8")
