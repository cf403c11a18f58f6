"""`weft bench fit --agreement`: plays the same programs in virtual time and on emulated engines.

Both have the same costs, slots, KV blocks, programs and arrivals. Both schedule asynchronously. On
the emulated engine, a call also takes the time of HTTP, tokenizer and gateway. The command measures
it on the idle engine. In virtual time, calls have random delays with this mean, which for chats
grows with the tokens of the prompt. Each scene is played several times with other delays. The
differences between these plays are the noise: two plays on one engine differ as much.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from weft_bench.agreement import report
from weft_bench.agreement.compare import Delay, Pair, Played
from weft_bench.agreement.scenes import CALM, CASES, Case, Scene, scene
from weft_bench.cli.studies import FitOptions
from weft_bench.drive.client import Client
from weft_bench.drive.gateway import OrderError
from weft_bench.report.figures import refuse
from weft_bench.report.page import conclude
from weft_bench.stack.local import StackError, progress

Plays = dict[str, list[Played]]
# A call of a long session may wait for many others.
_CALL_S: Final = 7200.0


def run(options: FitOptions) -> int:
    """Compare and report.

    Returns the exit status: 1 if a goal is missed, 2 if the comparison is not possible.
    """
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    cases = [
        case if case.make else replace(case, programs=options.sessions)
        for case in CASES
        if case.name in options.cases
    ]
    try:
        found = _compare(options, cases)
        dilations = _dilations(options)
    except (StackError, OrderError, OSError, ValueError, ImportError) as error:
        return refuse("fit", error)
    except KeyboardInterrupt:
        return 130
    recorded = f" --data DATA --sessions {options.sessions} --calls {options.calls}"
    command = (
        f"weft bench fit --agreement --cases {','.join(options.cases)}"
        f"{recorded if options.data else ''} "
        f"--policy {','.join(options.policies)} --preset {options.preset} "
        f"--seeds {options.seeds} --case-dilate {options.case_dilate:g} "
        f"--dilate {','.join(map(str, options.dilate))}"
    )
    return conclude(
        command,
        "Virtual time and emulated engines",
        "virtual time and emulated engines",
        report.tables(found, dilations),
        _cells(found, dilations),
        report.missed(found, dilations),
        options.json_file,
    )


def _compare(options: FitOptions, cases: Sequence[Case]) -> report.Found:
    """Return the plays of all cases."""
    seeds, data = range(options.seeds), Path(options.data)
    scenes = {
        case.name: [scene(case, seed, data, options.calls) for seed in seeds] for case in cases
    }
    emulated: dict[str, Plays] = {}
    delays: dict[str, Delay] = {}
    found: dict[str, report.Agreement] = {}
    with progress("plays") as bars:
        count = len(options.policies) * options.seeds
        bar = bars.add_task("emulated", total=len(cases) * count)
        for case in cases:
            delays[case.name], emulated[case.name] = _emulated(
                case, options.preset, options.case_dilate, options.policies,
                scenes[case.name], lambda: bars.advance(bar),
            )  # fmt: skip
        bar = bars.add_task("virtual", total=len(cases) * count)
        for case in cases:
            pairs = {}
            for order, plays in emulated[case.name].items():
                virtual = []
                for played in scenes[case.name]:
                    virtual.append(_virtual(case, options, order, played, delays[case.name]))
                    bars.advance(bar)
                pairs[order] = Pair(plays, virtual)
            found[case.name] = report.Agreement(delays[case.name], pairs, case.goal)
    return found


def _virtual(
    case: Case, options: FitOptions, order: str, played: Scene, delay: Delay
) -> list[Played]:
    from weft_bench.agreement.virtual_plays import play

    shape = case.shape(options.preset)
    return [
        play(played, order, shape, case.swap_gib, delay, number)
        for number in range(options.virtual_plays)
    ]


def _emulated(
    case: Case,
    preset: str,
    dilate: float,
    policies: Sequence[str],
    scenes: Sequence[Scene],
    on_play: Callable[[], None],
) -> tuple[Delay, Plays]:
    """Return the delay of a call on the idle engine, and the plays of each order."""
    from weft_bench.agreement.emulated_plays import connected, start

    async def play(base: str) -> tuple[Delay, Plays]:
        async with Client(base, limit_s=_CALL_S) as client:
            engine = await connected(client, dilate)
            delay = await engine.delay(case.shape(preset), chats=case.make is None)
            found: Plays = {policy: [] for policy in policies}
            for one in scenes:
                for policy in policies:
                    found[policy].append(await engine.play(one, policy))
                    on_play()
            return delay, found

    with start(case, preset, dilate) as base:
        return asyncio.run(play(base))


def _dilations(options: FitOptions) -> dict[int, Played]:
    """Return one play of a calm scene with the first order at each dilation."""
    found = {}
    policies, scenes = options.policies[:1], [scene(CALM, 0)]
    for dilate in options.dilate:
        _, plays = _emulated(CALM, options.preset, dilate, policies, scenes, lambda: None)
        found[dilate] = plays[policies[0]][0]
    return found


def _cells(found: report.Found, dilations: report.Dilations) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = [
        {
            "case": case,
            "order": order,
            "delay": asdict(agreement.delay),
            "emulated": [asdict(one) for one in pair.emulated],
            "virtual": [[asdict(one) for one in plays] for plays in pair.virtual],
        }
        for case, agreement in found.items()
        for order, pair in agreement.pairs.items()
    ]
    return cells + [{"dilate": at, "emulated": asdict(one)} for at, one in dilations.items()]
