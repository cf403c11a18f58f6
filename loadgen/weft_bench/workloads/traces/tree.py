"""Tree-of-thoughts searches for the game of 24: many short parallel calls, then a join.

A step of the search expands all kept states: one call per state proposes the next states, all in
parallel. One call then judges each new state, all in parallel, and the best are kept for the next
step. A step waits for the whole previous step. The trace has states and values but no prompts: the
instructions here are our own, with a length that gives prompts of the recorded length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from weft_bench.workloads.schema import TraceCall, TraceProgram

_PROPOSE: Final = """\
You play the game of 24. Combine two of the numbers that are left with +, -, * or /, and write \
what is left then. List every step that may be worth a try, one in a line.
Numbers: 3 3 7 9
3 + 3 = 6 (left: 6 7 9)
7 - 3 = 4 (left: 3 4 9)
9 - 7 = 2 (left: 2 3 3)
9 / 3 = 3 (left: 3 3 7)
3 * 7 = 21 (left: 3 9 21)
"""
_JUDGE: Final = """\
Can the numbers that are left still reach 24? Try a few ways, then answer with one word: sure, \
likely or impossible.
Left: 3 8
3 * 8 = 24
sure
Left: 2 3 5
2 * 3 * 5 = 30, (2 + 5) * 3 = 21, 5 * 3 * 2 - 2 = 28; the numbers are of the right size
likely
Left: 1 1 3
(1 + 1) * 3 = 6; the numbers are too small
impossible
"""


def read(records: Iterable[Mapping[str, Any]]) -> Iterator[TraceProgram]:
    """Yield one program per search, in the order of the file, because usage is a running total.

    The usage covers a whole search, so each of its calls has the mean answer length. A state that
    was found twice was judged once.
    """
    total = 0
    for record in records:
        before, total = total, int(record["usage_so_far"]["completion_tokens"])
        # In a file that combines several runs, each run restarts the total.
        used = total - before if total >= before else total
        prompts, after = _calls(record["steps"])
        tokens = max(1, round(used / max(1, len(prompts))))
        calls = tuple(
            TraceCall(
                messages=({"role": "user", "content": prompt},), output_tokens=tokens, after=needed
            )
            for prompt, needed in zip(prompts, after, strict=True)
        )
        if calls:
            yield TraceProgram(f"tree-{record['idx']}", calls)


def _calls(steps: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[tuple[int, ...]]]:
    """Return each call's prompt, and the numbers of the calls that it waits for."""
    prompts: list[str] = []
    after: list[tuple[int, ...]] = []
    level: tuple[int, ...] = ()
    for step in steps:
        numbers = f"Numbers: {step['x']}\n"
        for stage in (
            [f"{_PROPOSE}{numbers}{state}" for state in step["ys"]],
            [f"{_JUDGE}{numbers}{state}" for state in dict.fromkeys(step["new_ys"])],
        ):
            if stage:
                first = len(prompts)
                prompts += stage
                after += [level] * len(stage)
                level = tuple(range(first, len(prompts)))
    return prompts, after
