"""The planner or `weft run` with one part left out, or with one that it does not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from weft_run.plan.costs import relative_speeds

from weft_bench.workflows import dispatch
from weft_bench.workflows.play import Dispatcher
from weft_bench.workflows.rewritten import rewritten
from weft_bench.workflows.systems import SYSTEMS, Scene, follow, weft_run
from weft_bench.workflows.tasks import Batch


def batch_for(batch: Batch, name: str) -> Batch:
    """Return the batch that a system runs: after the rewrites that it has. `SYSTEM, rewrites` has
    them from outside.
    """
    if name.partition(",")[0] not in _REWRITING and not name.endswith(_REWRITES):
        return batch
    return rewritten(
        batch,
        merging=name not in ("weft run, no merging", "weft run, no rewrites"),
        cache=name not in ("weft run, no prompt cache", "weft run, no rewrites"),
    )


def dispatcher(scene: Scene, name: str) -> Dispatcher:
    """Return the dispatcher of a system or of a changed one. Raises KeyError."""
    return {**SYSTEMS, **_PARTS}[name.removesuffix(_REWRITES)](scene)


def _even_slices(scene: Scene) -> Dispatcher:
    """As if all engines had the costs of the first one."""
    equal = Scene(scene.batch, [scene.shapes[0]] * len(scene.shapes), scene.seed)
    return follow(scene, equal.planned())


def _random_order(scene: Scene) -> Dispatcher:
    """The plan's replicas and windows, and turns in random order."""
    made = scene.planned()
    names, count = made.operators, len(made.operators)
    turns = list(range(len(scene.tasks)))
    scene.rng.shuffle(turns)
    return dispatch.Planned(
        scene.tasks,
        dict(zip(made.replicas, made.windows, strict=True)),
        lambda call, row: (made.turn(names[call], row)[0], turns[row * count + call]),
        relative_speeds(scene.replicas),
    )


def _random_rows(scene: Scene) -> Dispatcher:
    """The plan's order and windows, and each row on a random replica."""
    made = scene.planned()
    names, worker = made.operators, list(range(scene.batch.rows))
    scene.rng.shuffle(worker)
    return dispatch.Planned(
        scene.tasks,
        dict(zip(made.replicas, made.windows, strict=True)),
        lambda call, row: (
            made.turn(names[call], worker[row])[0],
            made.turn(names[call], row)[1],
        ),
        relative_speeds(scene.replicas),
    )


def _no_window(scene: Scene) -> Dispatcher:
    """All ready calls are sent at once."""
    most = (len(scene.tasks),) * len(scene.replicas)
    return follow(scene, replace(scene.planned(), windows=most))


# The others run every call that the workflow has.
_REWRITING: Final = ("helium", "weft", "weft run")
_REWRITES: Final = ", rewrites"

_PARTS: Final[Mapping[str, Callable[[Scene], Dispatcher]]] = {
    "weft, even slices": _even_slices,
    "weft, no order": _random_order,
    "weft, no rows": _random_rows,
    "weft, no window": _no_window,
    "weft run, no merging": weft_run,
    "weft run, no prompt cache": weft_run,
    "weft run, no rewrites": weft_run,
    "weft run, no groups": lambda scene: weft_run(scene, grouped=False),
    "weft run, no sharing": lambda scene: weft_run(scene, shared=False),
    "weft, prefixes first": lambda scene: follow(
        scene, scene.planned(), prefixes=dispatch.static_prefixes(scene.batch, scene.names)
    ),
}
