"""The planner with one part left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from weft_bench.workflows import dispatch
from weft_bench.workflows.play import Dispatcher
from weft_bench.workflows.systems import SYSTEMS, Scene


def dispatcher(scene: Scene, name: str) -> Dispatcher:
    """Return the dispatcher of a system or of a planner without a part. Raises KeyError."""
    return {**SYSTEMS, **_PARTS}[name](scene)


def _even_slices(scene: Scene) -> Dispatcher:
    """As if all engines had the costs of the first one."""
    equal = replace_costs(scene)
    made = equal.planned()
    names = made.operators
    return dispatch.Planned(
        scene.tasks,
        dict(zip(made.replicas, made.windows, strict=True)),
        lambda call, row: made.turn(names[call], row),
    )


def replace_costs(scene: Scene) -> Scene:
    """Return the scene with engines that are all like the first."""
    return Scene(scene.batch, [scene.shapes[0]] * len(scene.shapes), scene.seed)


def _no_order(scene: Scene) -> Dispatcher:
    """The plan's replicas and windows, and turns in random order."""
    made = scene.planned()
    names = made.operators
    turns = list(range(len(scene.tasks)))
    scene.rng.shuffle(turns)
    count = len(names)
    return dispatch.Planned(
        scene.tasks,
        dict(zip(made.replicas, made.windows, strict=True)),
        lambda call, row: (made.turn(names[call], row)[0], turns[row * count + call]),
    )


def _no_window(scene: Scene) -> Dispatcher:
    """All ready calls are sent at once."""
    made = replace(scene.planned(), windows=(len(scene.tasks),) * len(scene.replicas))
    names = made.operators
    return dispatch.Planned(
        scene.tasks,
        dict(zip(made.replicas, made.windows, strict=True)),
        lambda call, row: made.turn(names[call], row),
    )


_PARTS: Final[Mapping[str, Callable[[Scene], Dispatcher]]] = {
    "no leaders": SYSTEMS["weft, schedule only"],
    "even slices": _even_slices,
    "no order": _no_order,
    "no window": _no_window,
}
