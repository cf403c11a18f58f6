"""A batch after the rewrites of `weft run` and of Helium: equal calls merged, answers kept."""

from __future__ import annotations

from dataclasses import replace

from weft_run.plan.calls import PlannedCall
from weft_run.plan.prompts import Slot
from weft_run.plan.rewrite import merge

from weft_bench.workflows.running import operator_name, workflow_of
from weft_bench.workflows.tasks import Batch, renamed


def rewritten(batch: Batch, merging: bool = True, cache: bool = True) -> Batch:
    """Return a batch whose answers are those of the given one, with fewer calls. merging: equal
    calls of a row are one call, as `weft_run.plan.rewrite` finds them. cache: calls whose
    inputs an earlier batch had come from its answers.
    """
    calls: list[PlannedCall] = list(batch.calls)
    if merging:
        into = {one.operator: one.into for one in merge(workflow_of(batch)).rewrites}
        name = {operator_name(call.name): call.name for call in calls}
        same = {name[one]: name[other] for one, other in into.items()}
        calls = [
            replace(
                call,
                prompt=renamed(call.prompt, same),
                needs=tuple(dict.fromkeys(same.get(need, need) for need in call.needs)),
            )
            for call in calls
            if call.name not in same
        ]
    if cache:
        known = _known(calls, batch.unchanged)
        calls = [
            replace(call, needs=tuple(need for need in call.needs if need not in known))
            for call in calls
            if call.name not in known
        ]
    return replace(batch, calls=tuple(calls), written=batch.written or batch)


def _known(calls: list[PlannedCall], unchanged: frozenset[str]) -> set[str]:
    """Return the calls that read only unchanged columns and answers of such calls."""
    known: set[str] = set()
    if not unchanged:
        return known
    for call in calls:
        slots = [run for run in call.prompt if isinstance(run, Slot)]
        columns = {axis for one in slots if one.key not in call.needs for axis in one.axes}
        if columns <= unchanged and set(call.needs) <= known:
            known.add(call.name)
    return known
