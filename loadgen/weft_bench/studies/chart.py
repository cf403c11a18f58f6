"""The chart of a study: bars by system, with one dot a seed, as SVG for light and dark pages."""

from __future__ import annotations

from html import escape
from typing import Final

from weft_bench.studies.cells import Measured
from weft_bench.studies.study import Study

_WIDTH: Final = 720
_LEFT: Final = 150
_BAR: Final = 22
_ROW: Final = 34
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #57606a }
.mean { fill: #fff; font-weight: 600 }
.bar { fill: #6e7781 } .ours { fill: #1f6feb } .seed { fill: #24292f; stroke: #fff }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .bar { fill: #6e7681 } .ours { fill: #4493f8 }
.seed { fill: #e6edf3; stroke: #0d1117 } }
"""


def svg(study: Study, found: Measured) -> str:
    """Return the chart. The last system is ours. Raises ValueError if the study has no chart."""
    chart = study.chart
    if chart is None:
        raise ValueError(f"{study.name} has no chart")
    parts = [f'<text class="title" x="0" y="18">{escape(chart.title)}</text>']
    y = 34
    for label, figure in chart.panels.items():
        parts.append(f'<text class="small" x="{_LEFT}" y="{y + 12}">{escape(label)}</text>')
        y += 22
        most = max(values[figure] for values in found.values.values())
        scale = (_WIDTH - _LEFT - 20) / most
        for system in study.systems:
            of = found.where(system=system).series(figure)
            mean = sum(of.values()) / len(of)
            kind = "ours" if system == list(study.systems)[-1] else "bar"
            middle = y + _BAR / 2
            name = escape(chart.names.get(system, system))
            parts += [
                f'<text x="{_LEFT - 8}" y="{middle + 4}" text-anchor="end">{name}</text>',
                f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{mean * scale:.1f}" '
                f'height="{_BAR}" rx="3"/>',
                *(
                    f'<circle class="seed" cx="{_LEFT + value * scale:.1f}" cy="{middle}" r="4"/>'
                    for value in of.values()
                ),
                f'<text class="mean" x="{_LEFT + 8}" y="{middle + 4}">'
                f"{mean:,.{0 if most > 10 else 2}f}</text>",
            ]
            y += _ROW
        y += 8
    parts.append(f'<text class="small" x="0" y="{y + 8}">{escape(chart.note)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 18}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>\n"])
