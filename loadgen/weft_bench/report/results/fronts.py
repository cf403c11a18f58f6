"""Weft beside the best other proxy of each seed, from all files of `weft bench peers`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

from weft_bench.report import turn_targets
from weft_bench.report.peers import ALL, OURS, Turn, faultless, measured, over_best
from weft_bench.report.results.comparisons import Comparison
from weft_bench.studies.cells import Estimate, Measured, geometric
from weft_bench.studies.experiment import Plot, Series, less

# Goals of this project: ratios to the best peer of each seed.
GOALS: Final[Mapping[str, float]] = {"mean": 0.70, "p95": 0.80, "p99": 0.80}
LABELS: Final[Mapping[str, str]] = {"mean": "mean", "p95": "P95", "p99": "P99"}
# Options that do not change what a play measures, or that are part of a turn.
_NO_SETTING: Final = frozenset({
    "data", "fronts", "orders", "workloads", "seeds", "first_seed", "dilate", "quick", "install",
    "json_file", "plot", "page", "absent", "session_headers", "speed_up", "load", "join",
    "commands",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """All plays of one workload with the same settings, from one or more files.

    ours: the row with Weft's default order. load: relative to the capacity, None if the file does
    not have it. note: settings in which it differs from another group of the same name.
    """

    kind: str
    workload: str
    load: float | None
    settings: Mapping[str, Any]
    ours: str
    turns: Sequence[Turn]
    note: str = ""

    @property
    def name(self) -> str:
        """Return the workload, its load and the note."""
        load = "" if self.load is None else f", load {self.load:g}"
        return f"{self.workload}{load}{self.note}"

    @property
    def found(self) -> Measured:
        """Return the figures of all plays without an error."""
        return faultless(measured(self.turns).where(slice=ALL))

    @property
    def engines(self) -> str:
        """Return the engines as text."""
        at = self.settings
        return f"{at['replicas']} x {at['slots']} slots, {at['kv_blocks']:,} blocks"

    @property
    def peers(self) -> list[str]:
        """Return the rows of other proxies."""
        return [str(n) for n in self.found.levels("front") if not str(n).startswith(OURS)]

    @property
    def seeds(self) -> tuple[int, ...]:
        """Return the seeds of Weft's row."""
        return tuple(sorted({cell.seed for cell in self.found.where(front=self.ours).values}))

    @property
    def programs(self) -> int:
        """Return the number of programs of a play."""
        return int(max(values["programs"] for values in self.found.values.values()))

    def ratio(self, figure: str) -> Estimate:
        """Return Weft's figure over that of the best peer of each seed."""
        found = self.found
        return geometric(over_best(found.where(front=self.ours), found, self.peers, figure))

    def best(self, figure: str) -> str:
        """Return the best peers by the number of seeds in which they are the best."""
        found: dict[int, tuple[float, str]] = {}
        for name in self.peers:
            for seed, value in self.found.where(front=name).series(figure).items():
                found[seed] = min(found.get(seed, (value, name)), (value, name))
        names = [name for _, name in found.values()]
        counts = sorted({(-names.count(name), name) for name in names})
        return ", ".join(f"{name} ({-count})" for count, name in counts)


def groups(documents: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return the groups that have a row of Weft and at least one peer.

    documents: of `weft bench peers`. If two files have the same play, the later file counts.
    """
    plays: dict[str, dict[tuple[str, int], Turn]] = {}
    about: dict[str, tuple[str, str, float | None, Mapping[str, Any], str]] = {}
    for document in sorted(documents, key=lambda one: str(one["date"])):
        configuration = document["configuration"]
        # Older files lack newer options, which are off.
        settings = {
            name: configuration[name]
            for name in sorted(configuration.keys() - _NO_SETTING)
            if configuration[name]
        }
        for turn in document["turns"]:
            load = _load(turn, configuration)
            key = repr((document["kind"], turn["workload"], load, settings))
            ours = f"{OURS}{configuration['orders'][-1]}"
            about[key] = document["kind"], turn["workload"], load, settings, ours
            plays.setdefault(key, {})[turn["front"], turn["seed"]] = turn_of(turn)
    found = []
    for key, turns in plays.items():
        group = Group(*about[key], list(turns.values()))
        if group.peers and group.seeds:
            found.append(group)
    found = sorted(found, key=lambda one: (one.kind, one.workload, one.load or 0.0))
    return [replace(one, note=_note(one, found)) for one in found]


def _note(group: Group, found: Sequence[Group]) -> str:
    """Return the settings that distinguish a group from others that would look alike."""
    alike = [
        one
        for one in found
        if (one.kind, one.name, one.engines) == (group.kind, group.name, group.engines)
    ]
    names = {name for one in alike for name in one.settings}
    differing = [
        name for name in sorted(names) if len({repr(one.settings.get(name)) for one in alike}) > 1
    ]
    return "".join(
        f", {name} {group.settings[name]}" for name in differing if name in group.settings
    )


def turn_of(turn: Mapping[str, Any]) -> Turn:
    """Return a play of a file."""
    return Turn(**{one.name: turn[one.name] for one in fields(Turn) if one.name in turn})


def _load(turn: Mapping[str, Any], configuration: Mapping[str, Any]) -> float | None:
    load = turn.get("load", configuration.get("load"))
    return float(load) if isinstance(load, int | float) and load else None


def comparisons(found: Sequence[Group]) -> Iterator[Comparison]:
    """Yield Weft's mean, P95 and P99 over the best peer of each seed."""
    what = "program completion over that of the best peer of each seed; less is better"
    for group in found:
        for figure, label in LABELS.items():
            score = less(f"{group.name}, {label}", group.ratio(figure))
            goal = GOALS[figure] if group.kind == "emulated" else None
            yield Comparison(
                f"peers-{group.kind}",
                f"{group.ours} beside other proxies, {group.engines}",
                group.kind,
                what,
                score,
                group.seeds,
                goal=goal,
            )


def has_targets(document: Mapping[str, Any]) -> bool:
    """Return whether the turns of a file's programs have targets."""
    return bool(document["configuration"].get("turn_target_scale"))


def of_turns(name: str, document: Mapping[str, Any]) -> Iterator[Comparison]:
    """Yield the comparisons of a file of `weft bench peers` with targets of turns."""
    what = "turns over those of the best peer of each seed"
    turns = [turn_of(turn) for turn in document["turns"]]
    for score, seeds in turn_targets.scores(turns):
        yield Comparison(name, document["title"], document["kind"], what, score, seeds)


def load_plots(found: Sequence[Group]) -> list[Plot]:
    """Return completion times over load by row, for workloads with several loads."""
    by: dict[str, list[Group]] = {}
    for group in found:
        if group.load is not None:
            by.setdefault(f"{group.workload}, {group.engines}", []).append(group)
    several = {name: groups for name, groups in by.items() if len({g.load for g in groups}) > 1}
    return [
        Plot(
            "load",
            f"{label} completion, s",
            [(name, _lines(groups, figure)) for name, groups in several.items()],
            bars=False,
        )
        for figure, label in LABELS.items()
        if several
    ]


def _lines(groups: Sequence[Group], figure: str) -> list[Series]:
    names = dict.fromkeys(str(n) for group in groups for n in group.found.levels("front"))
    lines = []
    for name in names:
        points = [
            (group.load or 0.0, group.found.where(front=name).estimate(figure))
            for group in groups
            if group.found.where(front=name)
        ]
        lines.append(Series(name, [x for x, _ in points], [y for _, y in points]))
    return lines
