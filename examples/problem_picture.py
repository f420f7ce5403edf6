"""Draw the picture of the README: calibration error against the share selected, before and after.

Run: uncurse-lab reproduce synthetic --replications 400 --seed 2026 --format json > synthetic.json
     python examples/problem_picture.py synthetic.json docs/problem.svg
"""

import json
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 340, 62, 190, 46, 48
LINES = {
    "Vanilla": ("#c2410c", "as served"),
    "Algorithm 1, literal": ("#78716c", "Algorithm 1 as printed"),
    "VAD": ("#0f766e", "uncurse (VAD)"),
}


def draw(tables: dict) -> str:
    cells = [c for c in tables["cells"] if c["metric"] == "true_error" and c["method"] in LINES]
    alphas = sorted({c["alpha"] for c in cells})
    low, high = -3.0, 11.0

    def x(alpha: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (alpha - alphas[0]) / (alphas[-1] - alphas[0])

    def y(percent: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - percent) / (high - low)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="system-ui, sans-serif" '
        'font-size="13" role="img" aria-label="Error of the predicted rate of the selected, by share selected">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#fafaf9"/>',
        f'<text x="{LEFT - 42}" y="26" font-size="15" font-weight="600" fill="#1c1917">'
        "How far the predicted rate of the selected is from their true rate</text>",
    ]
    for tick in range(-2, 11, 2):
        color, label = ("#57534e", "true") if tick == 0 else ("#e7e5e4", f"{tick:+d}%")
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
            f'stroke="{color}" stroke-width="1"/>'
            f'<text x="{LEFT - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" fill="#57534e">{label}</text>'
        )
    for alpha in alphas:
        out.append(
            f'<text x="{x(alpha):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#57534e">'
            f"{100 * alpha:g}%</text>"
        )
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle" fill="#57534e">'
        "share of candidates selected</text>"
    )
    for method, (color, name) in LINES.items():
        points = sorted(
            (c["alpha"], 100 * c["mean"], 100 * c["standard_error"]) for c in cells if c["method"] == method
        )
        band = [(a, m + 2 * s) for a, m, s in points] + [(a, m - 2 * s) for a, m, s in reversed(points)]
        out.append(
            f'<polygon points="{" ".join(f"{x(a):.1f},{y(v):.1f}" for a, v in band)}" fill="{color}" opacity="0.15"/>'
            f'<polyline points="{" ".join(f"{x(a):.1f},{y(m):.1f}" for a, m, _ in points)}" fill="none" '
            f'stroke="{color}" stroke-width="2.5"/>'
        )
        _, last, error = points[-1]
        out.append(
            f'<text x="{WIDTH - RIGHT + 10}" y="{y(last) - 3:.1f}" fill="{color}" font-weight="600">{name}'
            f'<tspan x="{WIDTH - RIGHT + 10}" dy="16" fill="#57534e" font-weight="400">'
            f"{last:+.1f}% ± {error:.1f}%</tspan></text>"
        )
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        picture = draw(json.load(source))
    with open(sys.argv[2], "w", encoding="utf-8") as target:
        target.write(picture)
