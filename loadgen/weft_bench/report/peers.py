"""The comparison with the peers shown: tables, intervals, where ours is worse, a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any, Final

from weft_bench.experiments.cells import Estimate, geometric
from weft_bench.report.figures import Figure
from weft_bench.stats import half_width, mean

OURS: Final = "weft/"
BASELINE: Final = "weft/round_robin"
_ALL: Final = "all"
_UNITS: Final = {
    "programs": "programs", "calls": "calls", "migrations": "calls", "recomputed_tokens": "tokens",
    "output_tokens": "tokens", "front_ms": "ms/call", "untold": "calls", "errors": "programs",
    "calls_per_s": "calls/s", "duration_s": "s", "behind_s": "s", "mean": "s", "p50": "s",
    "p95": "s", "p99": "s",
}  # fmt: skip
# What a front is judged by, and whether less is better.
_JUDGED: Final = {"mean": True, "p50": True, "p95": True, "p99": True, "jain": False}
_PERCENT: Final = ("migrated", "recomputed", "hit_rate")
_COLUMNS: Final = {
    "mean": "mean, s", "p50": "p50, s", "p95": "p95, s", "p99": "p99, s", "slowdown": "slowdown",
    "jain": "Jain", "migrated": "migrated, %", "recomputed": "computed again, %",
    "hit_rate": "hit rate, %", "calls_per_s": "calls/s", "front_ms": "front, ms",
    "errors": "errors",
}  # fmt: skip
_OF_SLICES: Final = ("programs", "p50", "p95", "slowdown", "recomputed", "hit_rate")


@dataclass(frozen=True, slots=True)
class Turn:
    """One front's play of one workload's programs of one seed. slices: figures by slice."""

    workload: str
    front: str
    seed: int
    slices: Mapping[str, Mapping[str, float]]


def tables(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """A table a workload, and one of its slices where it has some."""
    found = []
    for workload in _names(turn.workload for turn in turns):
        of = [turn for turn in turns if turn.workload == workload]
        found.append(_main(workload, of))
        slices = [name for name in of[0].slices if name != _ALL]
        if slices:
            found.append(_sliced(workload, of, slices))
    return found


def figures(turns: Sequence[Turn]) -> tuple[list[Figure], dict[str, float]]:
    """All means over seeds, `workload/front/slice/figure`, and half of their 95% intervals."""
    found, widths = [], {}
    for workload, front in dict.fromkeys((turn.workload, turn.front) for turn in turns):
        of = _of(turns, workload, front)
        for part, values in of[0].slices.items():
            for name in values:
                at = f"{workload}/{front}/{part}/{name}"
                samples = _samples(of, name, part)
                found.append(Figure(at, mean(samples), _UNITS.get(name, "1")))
                widths[at] = half_width(samples)
    return found, widths


def findings(turns: Sequence[Turn]) -> list[str]:
    """Where ours is worse than a peer, where it is better, and by how much: ratios of plays with
    the same seed of which the interval says that. Of a single seed nothing is found."""
    if len({turn.seed for turn in turns}) < 2:
        return ["one seed has no intervals: nothing is concluded"]
    found = []
    for workload in _names(turn.workload for turn in turns):
        rows = _names(turn.front for turn in turns if turn.workload == workload)
        peers = [row for row in rows if not row.startswith(OURS)]
        ours = [row for row in rows if row not in peers and row != BASELINE]
        for worse, word in ((True, "worse"), (False, "better")):
            said = [
                f"{workload}: {one} is {word} than {peer}: {told}"
                for one in ours
                for peer in peers
                if (told := _beside(turns, workload, one, peer, worse=worse))
            ]
            none = f"{workload}: ours is {word} than no peer, as far as the intervals tell"
            found += said or [none]
    return found


def _beside(turns: Sequence[Turn], workload: str, one: str, peer: str, *, worse: bool) -> str:
    """The figures by which one front is worse than another, or better."""
    told: list[str] = []
    if len(_pairs(turns, workload, one, peer)) < 2:
        return ""
    for name, less in _JUDGED.items():
        ratio = compared(turns, workload, one, peer, name)
        if ratio.above(1) if less is worse else ratio.below(1):
            told.append(f"{name} {ratio}")
    return ", ".join(told)


def compared(turns: Sequence[Turn], workload: str, one: str, other: str, name: str) -> Estimate:
    """The ratio of two fronts' figure over the seeds that both have played without an error:
    programs that failed have no times, and what is left of them is no longer the same programs."""
    pairs = _pairs(turns, workload, one, other)
    return geometric([log(a[name] / b[name]) for a, b in pairs if a[name] > 0 < b[name]])


def _pairs(
    turns: Sequence[Turn], workload: str, one: str, other: str
) -> list[tuple[Mapping[str, float], Mapping[str, float]]]:
    mine, theirs = (
        {turn.seed: turn.slices[_ALL] for turn in _of(turns, workload, front)}
        for front in (one, other)
    )
    pairs = [(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]
    return [(a, b) for a, b in pairs if not a["errors"] and not b["errors"]]


def draw(path: Path, turns: Sequence[Turn], title: str) -> None:
    """Completion times of every front, a panel a workload, into one SVG. ImportError where
    matplotlib is missing."""
    import matplotlib

    matplotlib.use("Agg")
    # Equal figures give equal files.
    matplotlib.rcParams["svg.hashsalt"] = title
    from matplotlib import pyplot

    workloads = _names(turn.workload for turn in turns)
    rows = _names(turn.front for turn in turns)
    size = (4.2 * len(workloads), 1.5 + 0.36 * len(rows))
    figure, axes = pyplot.subplots(1, len(workloads), figsize=size, squeeze=False, sharey=True)
    for axis, workload in zip(axes[0], workloads, strict=True):
        for mark, name in zip("o^s", ("p50", "p95", "p99"), strict=True):
            samples = [_samples(_of(turns, workload, row), name) for row in rows]
            axis.errorbar(
                [mean(values) for values in samples],
                range(len(rows)),
                xerr=[half_width(values) for values in samples],
                fmt=mark,
                capsize=2,
                label=name,
            )
        axis.set(title=workload, xlabel="program completion, s", xlim=(0, None))
        axis.grid(alpha=0.3)
    axes[0][0].set_yticks(range(len(rows)), rows)
    axes[0][0].invert_yaxis()
    axes[0][0].legend(fontsize="small")
    figure.suptitle(title)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def around_section(path: Path, kind: str) -> tuple[str, str]:
    """What stands before and after the section of these engines in a page, its marks included.
    ValueError where the page has no such marks, OSError where it cannot be read."""
    begin, end = f"<!-- {kind} -->", f"<!-- end of {kind} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"{path} has no {begin} with {end} behind it")
    return before + begin, end + after


def into_page(path: Path, kind: str, text: str) -> None:
    """Write the section of these engines in a page. Raises as `around_section`."""
    before, after = around_section(path, kind)
    path.write_text(f"{before}\n\n{text.strip()}\n\n{after}")


def _main(workload: str, turns: Sequence[Turn]) -> dict[str, Any]:
    rows = []
    fronts = _names(turn.front for turn in turns)
    for front in fronts:
        of = _of(turns, workload, front)
        row = [front, *(_cell(_samples(of, name), name) for name in _COLUMNS)]
        if BASELINE in fronts:
            row.append(str(compared(turns, workload, front, BASELINE, "mean")))
        rows.append(row)
    programs = turns[0].slices[_ALL]
    return {
        "title": f"{workload}, {programs['programs']:.0f} programs of "
        f"{programs['calls']:.0f} calls, seeds {_seeds(turns)}",
        "columns": [
            "front", *_COLUMNS.values(), *(["mean / round robin"] if BASELINE in fronts else []),
        ],
        "labels": 1,
        "rows": rows,
    }  # fmt: skip


def _sliced(workload: str, turns: Sequence[Turn], slices: Sequence[str]) -> dict[str, Any]:
    rows = []
    for front in _names(turn.front for turn in turns):
        of = _of(turns, workload, front)
        for part in slices:
            cells = (_cell(_samples(of, name, part), name) for name in _OF_SLICES)
            rows.append([front, part, *cells])
    named = {"programs": "programs", **_COLUMNS}
    return {
        "title": f"{workload}, programs with long gaps and the rest",
        "columns": ["front", "slice", *(named[name] for name in _OF_SLICES)],
        "labels": 2,
        "rows": rows,
    }


def _cell(samples: Sequence[float], name: str) -> str:
    scale, digits = (100, 1) if name in _PERCENT else (1, 2)
    if name in ("errors", "programs"):
        return f"{sum(samples):.0f}"
    value, width = scale * mean(samples), scale * half_width(samples)
    return f"{value:.{digits}f} ± {width:.{digits}f}" if width else f"{value:.{digits}f}"


def _samples(turns: Sequence[Turn], name: str, part: str = _ALL) -> list[float]:
    return [turn.slices[part][name] for turn in turns if part in turn.slices]


def _of(turns: Sequence[Turn], workload: str, front: str) -> list[Turn]:
    return [turn for turn in turns if (turn.workload, turn.front) == (workload, front)]


def _seeds(turns: Sequence[Turn]) -> str:
    return ", ".join(str(seed) for seed in sorted({turn.seed for turn in turns}))


def _names(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))
