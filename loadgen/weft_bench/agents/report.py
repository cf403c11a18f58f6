"""Tables, the page and the picture of a curve. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import log, log2
from typing import Any, Final

from weft_bench.agents.systems import CLAIRVOYANT, ENDLESS, OURS, RIVALS
from weft_bench.report.rows import markdown
from weft_bench.studies.cells import Estimate, Measured, each, estimate, geometric
from weft_bench.studies.study import Column, Table
from weft_bench.studies.tables import Made, table_of

VIRTUAL: Final = "virtual"
_COLUMNS: Final[Mapping[str, str | Column]] = {
    "mean, s": "mean",
    "P95, s": "p95",
    "calls/s": "calls_per_s",
    "tokens/s": "output_per_s",
    "first token, s": "ttft_mean",
    "its P95, s": "ttft_p95",
    "hit rate": "hit_rate",
    "interactivity, tokens/s": "interactivity",
    "slow tail, tokens/s": "slow_tail",
}
_CHATS: Final[Mapping[str, str | Column]] = {
    "first token of chats, s": "chat_ttft_p50",
    "its P95, s (chats)": "chat_ttft_p95",
}
_HELD: Final[Mapping[str, str | Column]] = {"held, P95, s": "held_p95"}
_LATE: Final[Mapping[str, str | Column]] = {"late": "late"}


def tables(found: Measured) -> Iterator[Made]:
    """Yield the tables of a curve: for each kind of engines, preset and size of host memory our
    figures over those of the others, then all figures; and how virtual time agrees with engines.
    """
    for one in each(found, "engines", "preset", "host"):
        about = ", ".join(str(one.only(name)) for name in ("engines", "preset"))
        host = float(one.only("host"))
        about += f", host memory of {host:g} times the cache" if host else ""
        rows = list(_ratios(one))
        if rows:
            yield Made(f"{about}: `{OURS}` over the others", _RATIOS, rows, 1)
        figures = set(next(iter(one.values.values())))
        columns = dict(_COLUMNS)
        for more in (_CHATS, _HELD, _LATE):
            columns |= {name: figure for name, figure in more.items() if figure in figures}
        yield table_of(Table(about, ("times", "system"), columns), one)
    yield from _agreement(found)


_RATIOS: Final = (
    "times", "seeds", "best rival", "mean", "P95", "calls/s", "recovered", "mean over clairvoyant",
    "calls/s over own peak",
)  # fmt: skip


def _ratios(found: Measured) -> Iterator[tuple[str, ...]]:
    """Yield a row for each number of times, with geometric means of ratios seed by seed.

    The best rival is the one over which our mean gains least, on the seeds of both. recovered: the
    share of its mean over that with an endless cache that we save.
    """
    peak: dict[int, float] = {}
    for at in each(found.where(system=OURS), "times"):
        for seed, value in at.series("calls_per_s").items():
            peak[seed] = max(value, peak.get(seed, 0.0))
    for at in each(found, "times"):
        ours = at.where(system=OURS)
        rivals = [one for one in each(at, "system") if one.only("system") in RIVALS]
        if not ours or not rivals:
            continue
        best = max(rivals, key=lambda one: ours.ratio("mean", one).middle)
        over = [str(ours.ratio(name, best)) for name in ("mean", "p95", "calls_per_s")]
        own = ours.series("calls_per_s")
        yield (
            f"{float(at.only('times')):g}",
            str(len(own)),
            str(best.only("system")),
            *over,
            str(_recovered(ours, best, at.where(system=ENDLESS))),
            str(ours.ratio("mean", at.where(system=CLAIRVOYANT))),
            str(geometric([log(value / peak[seed]) for seed, value in own.items()])),
        )


def _recovered(ours: Measured, best: Measured, endless: Measured) -> Estimate:
    mine, theirs, bound = (one.series("mean") if one else {} for one in (ours, best, endless))
    return estimate(
        [
            (theirs[seed] - mine[seed]) / (theirs[seed] - bound[seed])
            for seed in mine
            if seed in theirs and seed in bound and theirs[seed] > bound[seed]
        ]
    )


def _agreement(found: Measured) -> Iterator[Made]:
    """Yield the ratio of virtual time to engines, on the same sessions."""
    rows = []
    for one in each(found, "preset", "host", "times", "system"):
        virtual = one.where(engines=VIRTUAL)
        for name in one.levels("engines"):
            if virtual and name != VIRTUAL:
                real = one.where(engines=name)
                labels = (str(name), str(one.only("times")), str(one.only("system")))
                figures = ("mean", "calls_per_s", "hit_rate")
                rows.append((*labels, *(str(virtual.ratio(f, real)) for f in figures)))
    if rows:
        columns = ("engines", "times", "system", "mean", "calls/s", "hit rate")
        yield Made("virtual time over the engines, on the same sessions", columns, rows, 3)


@dataclass(frozen=True, slots=True)
class About:
    """What a page says about its plays. told: command, machine, date and commit. notes: below the
    tables.
    """

    title: str
    told: Mapping[str, Any]
    notes: Sequence[str]


def page(about: About, made: Sequence[Made]) -> str:
    """Return a page in Markdown."""
    told = about.told
    commit = f", commit {told['commit']}" if told.get("commit") else ""
    parts = [
        f"# {about.title}",
        *(f"`{command}`" for command in told["commands"]),
        f"{told['date'][:10]}{commit}, {told['machine']}.",
        "\n".join(f"- {note}" for note in about.notes),
    ]
    for one in made:
        parts += [f"{one.title[0].upper()}{one.title[1:]}:"]
        parts += [markdown(one.columns, one.rows, one.labels)]
    return "\n\n".join(filter(None, parts)) + "\n"


_WIDTH: Final = 720
_PANEL: Final = 250
_LEFT: Final = 64
_RIGHT: Final = 190
_TOP: Final = 62
_PANELS: Final[Mapping[str, str]] = {
    "calls_per_s": "calls per second (more is better)",
    "mean": "mean time to complete a session, seconds (less is better)",
}
_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-size: 15px; font-weight: 600 } .small { font-size: 12px; fill: #57606a }
.axis { stroke: #d0d7de } .fits { stroke: #57606a; stroke-dasharray: 4 4 }
path { fill: none; stroke: #8c959f; stroke-width: 2 } .bound { stroke-dasharray: 2 4 }
.ours { stroke: #1f6feb; stroke-width: 3.5 }
text.ours { fill: #1f6feb; font-weight: 600; stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .axis { stroke: #3d444d } path { stroke: #6e7681 }
.ours { stroke: #4493f8 } text.ours { fill: #4493f8 } }
"""


def svg(title: str, note: str, found: Measured) -> str:
    """Return the curves of one kind of engines, one preset and one size of host memory as SVG, for
    light and dark pages. Raises ValueError without plays of at least two points.
    """
    times = sorted(float(level) for level in found.levels("times"))
    if len(times) < 2:
        raise ValueError("a picture needs plays of at least two points")
    parts = [f'<text class="title" x="0" y="18">{escape(title)}</text>']
    for number, (figure, label) in enumerate(_PANELS.items()):
        parts += _panel(found, figure, label, times, _TOP + number * (_PANEL + 62))
    height = _TOP + len(_PANELS) * (_PANEL + 62) + 8
    parts.append(f'<text class="small" x="0" y="{height - 14}">{escape(note)}</text>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *parts, "</svg>\n"])


def _panel(
    found: Measured, figure: str, label: str, times: Sequence[float], top: float
) -> Iterator[str]:
    lines = {
        str(one.only("system")): [
            (float(at.only("times")), at.estimate(figure).middle) for at in each(one, "times")
        ]
        for one in each(found, "system")
    }
    most = max(value for line in lines.values() for _, value in line)
    low, high = log2(times[0]), log2(times[-1])

    def x(at: float) -> float:
        return _LEFT + (log2(at) - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)

    def y(value: float) -> float:
        return top + _PANEL * (1 - value / most)

    yield f'<text x="{_LEFT}" y="{top - 12}">{escape(label)}</text>'
    yield f'<line class="axis" x1="{_LEFT}" y1="{y(0)}" x2="{_WIDTH - _RIGHT}" y2="{y(0)}"/>'
    yield f'<line class="fits" x1="{x(1):.0f}" y1="{top}" x2="{x(1):.0f}" y2="{y(0)}"/>'
    yield f'<text class="small" x="{x(1) + 4:.0f}" y="{top + 10}">as many as fit the cache</text>'
    for at in times:
        yield (
            f'<text class="small" x="{x(at):.0f}" y="{y(0) + 18}" '
            f'text-anchor="middle">{at:g}</text>'
        )
    for share in (0.5, 1.0):
        shown = f"{share * most:,.0f}" if most >= 10 else f"{share * most:.2g}"
        yield (
            f'<text class="small" x="{_LEFT - 8}" y="{y(share * most) + 4:.0f}" '
            f'text-anchor="end">{shown}</text>'
        )
    yield (
        f'<text class="small" x="{(_LEFT + _WIDTH - _RIGHT) / 2}" y="{y(0) + 36}" '
        'text-anchor="middle">sessions at once over sessions that fit the cache</text>'
    )
    ends: list[float] = []
    for name, line in sorted(lines.items(), key=lambda one: -one[1][-1][1]):
        kind = "ours" if name == OURS else "bound" if name in (CLAIRVOYANT, ENDLESS) else "rival"
        points = " L".join(f"{x(at):.1f} {y(value):.1f}" for at, value in line)
        yield f'<path class="{kind}" d="M{points}"/>'
        # Labels do not cover each other.
        end = max(y(line[-1][1]) + 4, ends[-1] + 15 if ends else 0.0)
        ends.append(end)
        shown = "Weft" if name == OURS else name
        yield f'<text class="{kind}" x="{_WIDTH - _RIGHT + 8}" y="{end:.0f}">{escape(shown)}</text>'
