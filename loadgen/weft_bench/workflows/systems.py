"""The systems of Helium's evaluation by name, on scaled engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from weft_engine.emulated.presets import EngineShape, preset
from weft_gateway.policies.costs import EngineCosts, StepCosts
from weft_run.plan.costs import Replica, relative_speeds

from weft_bench.planner.orders import Lane
from weft_bench.planner.plan import Plan, plan
from weft_bench.planner.schedule import schedule
from weft_bench.planner.token_steps import Worker
from weft_bench.workflows import dispatch
from weft_bench.workflows.online import Joined, arrivals
from weft_bench.workflows.play import Dispatcher, Played, Warm, play
from weft_bench.workflows.running import Running, windows_of
from weft_bench.workflows.tasks import Batch, Task, first_statics, tasks
from weft_bench.workloads.streams import stream

# An engine with one eighth of the slots, the cache, the tokens of a step and the fixed time of a
# step takes as long for an eighth of the rows as the whole engine divided by eight: work per slot
# and waiting keep their ratio. Static prefixes do not shrink, so they weigh more.
SCALE: Final = 8


def engines(
    name: str = "8b-a100", replicas: int = 2, slow: Sequence[float] = ()
) -> list[EngineShape]:
    """Return scaled engines. slow: factors on the costs of each, 1 for missing ones."""
    whole = preset(name)
    found = []
    for at in range(replicas):
        factor = slow[at] if at < len(slow) else 1.0
        cost = whole.cost
        scaled = replace(
            cost,
            step_s=cost.step_s / SCALE * factor,
            weights_s=cost.weights_s / SCALE * factor,
            prefill_token_s=cost.prefill_token_s * factor,
            decode_sequence_s=cost.decode_sequence_s * factor,
            context_token_s=cost.context_token_s * factor,
        )
        found.append(
            replace(
                whole,
                cost=scaled,
                slots=whole.slots // SCALE,
                step_tokens=whole.step_tokens // SCALE,
                kv_blocks=whole.kv_blocks // SCALE,
            )
        )
    return found


def replicas_of(shapes: Sequence[EngineShape]) -> list[Replica]:
    """Return engines as the planner sees them: with the costs that they would report."""
    return [
        Replica(
            f"replica-{number}",
            EngineCosts(
                StepCosts(
                    one.cost.step_s,
                    one.cost.weights_s,
                    one.cost.prefill_token_s,
                    one.cost.decode_sequence_s,
                    one.cost.context_token_s,
                    one.slots,
                ),
                one.kv_blocks * one.block_tokens,
            ),
            block=one.block_tokens,
        )
        for number, one in enumerate(shapes)
    ]


class Scene:
    """A batch on engines. seed: of the answers' lengths and of random orders. per_s: requests, one
    for each row, that arrive per second; 0: all rows are there at the start.
    """

    def __init__(
        self, batch: Batch, shapes: Sequence[EngineShape], seed: int, per_s: float = 0.0
    ) -> None:
        self.batch, self.shapes, self.seed = batch, shapes, seed
        self.tasks: Sequence[Task] = tasks(batch, seed)
        self.replicas = replicas_of(shapes)
        self.names = [one.name for one in self.replicas]
        self.rng = stream(seed, "dispatch")
        self.begins = arrivals(batch, per_s, seed) if per_s else [0.0] * batch.rows

    def run(self, dispatcher: Dispatcher, begins: Sequence[float] = ()) -> Played:
        """Play the batch. begins: arrivals of its rows in place of those of the scene, seconds."""
        return play(self.tasks, self.shapes, dispatcher, begins or self.begins)

    def planned(self) -> Plan:
        """Return the plan of this batch."""
        return plan(
            self.batch.calls, self.batch.rows, self.replicas, self.batch.distinct, self.seed
        )


def _free(scene: Scene) -> Dispatcher:
    return dispatch.Free(scene.tasks, scene.names, scene.rng)


def _langgraph(scene: Scene) -> Dispatcher:
    return dispatch.Supersteps(scene.tasks, scene.names, scene.rng)


def _kvflow(scene: Scene) -> Dispatcher:
    return dispatch.Warmed(scene.tasks, scene.names, scene.rng, scene.batch)


def _parrot(scene: Scene) -> Dispatcher:
    shape = min(scene.shapes, key=lambda one: one.slots)
    statics = first_statics(scene.batch.calls)
    heads = frozenset(names for names, tokens in statics.items() if tokens >= shape.block_tokens)
    return dispatch.ByPrefix(scene.tasks, scene.names, scene.rng, heads, shape.slots)


def _query_wise(scene: Scene) -> Dispatcher:
    steps = dispatch.query_wise(scene.tasks)
    return dispatch.InTurn(scene.tasks, scene.names, scene.rng, steps)


def _operator_wise(scene: Scene) -> Dispatcher:
    steps = dispatch.operator_wise(scene.tasks, len(scene.batch.calls))
    return dispatch.InTurn(scene.tasks, scene.names, scene.rng, steps)


def _batches(scene: Scene) -> Dispatcher:
    return dispatch.Batches(scene.tasks, scene.names, scene.rng, len(scene.batch.calls))


def _longest(scene: Scene) -> Dispatcher:
    shape = min(scene.shapes, key=lambda one: one.slots)
    room = shape.kv_blocks * shape.block_tokens
    return dispatch.Longest(scene.tasks, scene.names, scene.rng, shape.slots, room)


def _helium(scene: Scene, warm: bool = True) -> Dispatcher:
    """Algorithm 1 with rows sliced evenly and static prefixes sent first."""
    batch, count = scene.batch, len(scene.names)
    worker = Worker(min(one.kv_tokens for one in scene.replicas))
    names = [call.name for call in batch.calls]
    nested = schedule(batch.calls, {"all": worker})["all"]
    width = -(-batch.rows // count)
    lane = Lane.of([[names.index(one) for one in found] for found in nested], 0, width)

    def turn(call: int, row: int) -> tuple[str, int]:
        return scene.names[row // width], lane.turn(call, row % width)

    prefixes = dispatch.static_prefixes(batch, scene.names) if warm else ()
    windows = {one.name: 2 * one.slots for one in scene.replicas}
    return dispatch.Planned(scene.tasks, windows, turn, None, prefixes)


def weft_run(scene: Scene, *, grouped: bool = True, shared: bool = True) -> Dispatcher:
    """Return the dispatcher of `weft run`. grouped, shared: see `Running`."""
    return Running(
        scene.batch,
        scene.tasks,
        windows_of(scene.names, scene.shapes),
        relative_speeds(scene.replicas),
        grouped=grouped,
        shared=shared,
    )


def follow(
    scene: Scene, made: Plan, shared: bool = True, prefixes: Sequence[Warm] = ()
) -> dispatch.Planned:
    """Return the dispatcher of a plan. shared: whether a replica without waiting calls gets those
    of another one. prefixes: as in `Planned`.
    """
    names = made.operators

    def turn(call: int, row: int) -> tuple[str, int]:
        return made.turn(names[call], row)

    windows = dict(zip(made.replicas, made.windows, strict=True))
    return dispatch.Planned(
        scene.tasks, windows, turn, relative_speeds(scene.replicas) if shared else None, prefixes
    )


def joined(scene: Scene, join_s: float) -> Dispatcher:
    """Return the dispatcher of runs over HTTP. join_s: see `Joined`."""
    slots = {one.name: one.slots for one in scene.replicas}
    return Joined(scene.tasks, slots, scene.batch, scene.begins, join_s)


SYSTEMS: Final[Mapping[str, Callable[[Scene], Dispatcher]]] = {
    "query-wise": _query_wise,
    "operator-wise": _operator_wise,
    "topological": _batches,
    "langgraph": _langgraph,
    "random": _free,
    "longest prefix": _longest,
    "parrot": _parrot,
    "kvflow": _kvflow,
    "helium": _helium,
    "helium, schedule only": lambda scene: _helium(scene, warm=False),
    "weft": lambda scene: follow(scene, scene.planned()),
    "weft run": weft_run,
    "weft, schedule only": lambda scene: follow(scene, scene.planned(), shared=False),
}
