"""A study: one YAML file that says what to play, what to measure and which tables to print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import msgspec
import yaml
from msgspec import Struct

from weft_bench.studies.cells import Cell, cells
from weft_bench.virtual.clients import Shared
from weft_bench.workloads.registry import WORKLOADS

FOLDER: Final = Path(__file__).parent
# The level of a comparison of loads: the compared system's own figure at the row's load.
ROW: Final = "row"
_Kind = TypeVar("_Kind")
# Keys of a case beside the settings of its scene.
_OF_CASE: Final = ("systems", "with", "seeds")


class System(Struct, frozen=True, forbid_unknown_fields=True):
    """An engine, its router and its orchestrators' features.

    order, prefix_cache, tags, plugin, options: as in `EngineSettings`. swap: preempted calls move
    to host memory. balancer, alpha, refuse: as in `Setup`; an alpha below 0 is that of the gateway.
    split, dispatch, tell_tags, retain_s, forget: as in `Overlap`. shared: as in `Clients`.
    """

    order: str = "resident"
    prefix_cache: bool = True
    tags: bool = False
    swap: bool = False
    balancer: str = "locality"
    alpha: float = -1.0
    refuse: bool = False
    plugin: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    split: bool = False
    dispatch: bool = False
    tell_tags: bool = True
    retain_s: float = 0.0
    forget: bool = True
    shared: Shared = Shared.UNKNOWN


class Scene(Struct, frozen=True, forbid_unknown_fields=True):
    """Programs and engines.

    workload: a name of `weft bench workload`. rate: programs a second, 0 for the workload's own
    arrivals, or all at once if it has none. load: in place of a rate, relative to what the engines
    complete in a burst; only programs in the middle of the arrivals count. shift: factors on the
    rate in equal parts of the time, comma-separated. preset: engines in turn, or a pool of
    `plays.POOLS`. slots, kv_blocks, step_tokens: 0 for the preset's. cache: whether engines have a
    prefix cache. scale: deadlines as a factor on the time alone, 0 to search the least that
    suffices. tenants: programs have one of this number of tenants in turn. lie: what the first
    tenant states wrongly.
    """

    workload: str
    programs: int
    rate: float = 0.0
    load: float = 0.0
    shift: str = ""
    preset: str = "8b-a100"
    replicas: int = 1
    slots: int = 0
    kv_blocks: int = 0
    step_tokens: int = 0
    cache: bool = True
    scale: float = 0.0
    tenants: int = 0
    lie: str = "none"


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """A column: the mean of a figure over seeds, or a ratio of paired runs.

    over: the row's figure over that of this system. of: this system's figure over the row's. load:
    compare the loads with an equal figure instead, which is twice that of this system at the
    lightest load, or with `row` that of the system `over` at the row's load. each: one column for
    each value of this setting. published: text by the labels of a row, comma-separated.
    """

    figure: str = ""
    over: str = ""
    of: str = ""
    load: str = ""
    each: str = ""
    published: Mapping[str, str] = {}


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A table with one row for each combination of these settings.

    cases: empty for all. A case that no table of a study shows is not played.
    """

    title: str
    rows: Sequence[str]
    columns: Mapping[str, str | Column]
    cases: Sequence[str] = ()


class Study(Struct, frozen=True, forbid_unknown_fields=True):
    """A study.

    published: the paper's result. measure: a function of `metrics.MEASURES`. scene: settings that
    all cases share. cases: by name, settings of a scene, where a list stands for several scenes;
    also `systems` to play, `with` for settings of systems in this case, and `seeds`. quick: such a
    case, and the name of the one that it changes as `case`. first_seed: is added to a cell's seed.
    """

    name: str
    title: str
    source: str
    measure: Literal["programs", "kinds", "tokens", "requests", "deadlines", "stages", "tenants"]
    systems: Mapping[str, System]
    cases: Mapping[str, Mapping[str, Any]]
    tables: Sequence[Table]
    quick: Mapping[str, Any]
    published: str = ""
    notes: Sequence[str] = ()
    scene: Mapping[str, Any] = {}
    seeds: int = 3
    first_seed: int = 0

    def cells(self, quick: bool = False) -> list[Cell]:
        """Return what to measure: for each case, scene and system one cell a seed.

        Raises ValueError for an unknown setting or system, and the errors of `scene_of`.
        """
        shown = {case for table in self.tables for case in table.cases or self.cases}
        cases = {name: case for name, case in self.cases.items() if name in shown}
        if quick:
            name = self.quick["case"]
            changes = {key: value for key, value in self.quick.items() if key != "case"}
            cases = {name: {**self.cases[name], **changes}}
        found = []
        for name, case in cases.items():
            scene = {**self.scene, **case}
            for settings in _scenes({k: v for k, v in scene.items() if k not in _OF_CASE}):
                for system in case.get("systems", self.systems):
                    seeds = case.get("seeds", self.seeds)
                    more = cells(seeds, case=name, system=system, **settings)
                    self.system_of(more[0])
                    self.scene_of(more[0])
                    found += more
        return found

    def scene_of(self, cell: Cell) -> Scene:
        """Return the scene of a cell. Raises ValueError for an unknown setting or workload."""
        settings = {k: v for k, v in cell.settings if k not in ("case", "system")}
        found = _converted(settings, Scene)
        if found.workload not in WORKLOADS:
            raise ValueError(f"unknown workload {found.workload!r}; known: {', '.join(WORKLOADS)}")
        return found

    def system_of(self, cell: Cell) -> System:
        """Return the system of a cell, with what its case changes. Raises ValueError."""
        name = str(cell["system"])
        if name not in self.systems:
            raise ValueError(f"{self.name}: unknown system {name!r}")
        changes = self.cases[str(cell["case"])].get("with", {}).get(name, {})
        return _converted({**msgspec.to_builtins(self.systems[name]), **changes}, System)


def load(name: str) -> Study:
    """Return a study by its name, or by the path of its file. `like` in a file names another study,
    which has what the file leaves out. Raises ValueError.
    """
    return _converted({"name": Path(name).stem, **_parts(name)}, Study)


def names() -> list[str]:
    """Return the names of the studies that come with the bench."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def _parts(name: str) -> dict[str, Any]:
    path = Path(name) if name.endswith(".yaml") else FOLDER / f"{name}.yaml"
    if not path.is_file():
        raise ValueError(f"unknown study {name!r}; known: {', '.join(names())}")
    try:
        parts = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"{path}: {error}") from None
    if not isinstance(parts, dict):
        raise ValueError(f"{path}: a study is a mapping")
    like = parts.pop("like", "")
    return {**_parts(like), **parts} if like else parts


def _scenes(settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return every combination of the settings that have a list."""
    lists = [value if isinstance(value, list) else [value] for value in settings.values()]
    return [dict(zip(settings, values, strict=True)) for values in product(*lists)]


def _converted(values: Any, kind: type[_Kind]) -> _Kind:
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
