"""Line chart as SVG, with a logarithmic x axis and a linear y axis."""

import html
import math

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 420, 70, 20, 50, 60
COLOURS = ["#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad"]


def _ticks(most):
    """Returns round numbers from 0 to about `most`."""
    step = 10 ** math.floor(math.log10(most))
    step = next(s for s in (step / 5, step / 2, step, 2 * step) if most / s <= 8)
    return [i * step for i in range(math.ceil(most / step) + 1)]


def lines(title, x_label, y_label, series):
    """Returns the SVG document. `series`: {name: [(x, y), …]} with positive x."""
    xs = [x for points in series.values() for x, _ in points]
    ys = [y for points in series.values() for _, y in points]
    low, high = math.log(min(xs)), math.log(max(xs))
    y_ticks = _ticks(max(max(ys), 1e-9))

    def place(x, y):
        share = (math.log(x) - low) / (high - low) if high > low else 0.5
        return (
            LEFT + share * (WIDTH - LEFT - RIGHT),
            HEIGHT - BOTTOM - y / y_ticks[-1] * (HEIGHT - TOP - BOTTOM),
        )

    def text(x, y, words, anchor="middle", more=""):
        start = f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>'
        return f"{start}{html.escape(words)}</text>"

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(WIDTH / 2, 20, title, more=' font-size="15"'),
    ]
    for tick in y_ticks:
        _, y = place(min(xs), tick)
        out.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        out.append(text(LEFT - 6, y + 4, f"{tick:,.6g}", "end"))
    for x in sorted({round(x) for points in series.values() for x, _ in points}):
        out.append(text(place(max(x, 1e-9), 0)[0], HEIGHT - BOTTOM + 16, f"{x:,}"))
    out.append(text(WIDTH / 2, HEIGHT - 16, x_label))
    out.append(text(18, HEIGHT / 2, y_label, more=f' transform="rotate(-90 18 {HEIGHT / 2})"'))
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in sorted(points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        out += [
            '<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>'.format(*place(x, y), colour)
            for x, y in points
        ]
        out.append(text(LEFT + 10 + 180 * number, 40, f"— {name}", "start", f' fill="{colour}"'))
    return "\n".join([*out, "</svg>", ""])
