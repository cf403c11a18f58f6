"""The programs of `weft bench truth`, which separate orders, and a model with steps that are long
in comparison with the API server's work.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any, Final

from weft_bench.workloads.cutting import ReadyProgram, fit
from weft_bench.workloads.schema import Part, TraceCall, TraceProgram
from weft_bench.workloads.streams import stream

CONTEXT: Final = 4096
# A step of the demo model takes about as long as the API server's work for its tokens.
_LARGER: Final[dict[str, Any]] = {
    "hidden_size": 256,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
}
# Engine arguments for this model, which has no weights. All answer lengths are set.
ARGUMENTS: Final = ("--load-format", "dummy")
_SYSTEM_TOKENS: Final = 256
# Every fifth program sends this many calls in parallel, this many times. The others are short
# chains.
_EVERY: Final = 5
_WIDE: Final = 8
_LEVELS: Final = 3
_LONGEST_CHAIN: Final = 3
_LONG_ANSWER: Final = 40
_SHORT_ANSWER: Final = 16
_GAP_S: Final = 0.05
_LONGEST_GAP_S: Final = 0.2


def model(demo: Path, folder: Path) -> Path:
    """Create a larger model without weights, like the demo model. Returns its folder."""
    target = folder / "model"
    target.mkdir()
    for path in demo.iterdir():
        if path.is_file() and path.suffix != ".safetensors":
            shutil.copy(path, target)
    config = json.loads((demo / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, **_LARGER}))
    return target


def workload(seed: int, count: int) -> list[ReadyProgram]:
    """Return `count` programs with exact lengths as token ids.

    Parallel calls fill an engine that orders by call, and the calls of short programs wait behind
    them. This separates such an engine from one that orders by program.
    """
    found = []
    for number in range(count):
        draw = stream(seed, f"truth/{number}")
        wide = number % _EVERY == _EVERY - 1
        width, mean = (_WIDE, _LONG_ANSWER) if wide else (1, _SHORT_ANSWER)
        levels = _LEVELS if wide else 1 + draw.randrange(_LONGEST_CHAIN)
        parts: tuple[Part, ...] = (Part("system", _SYSTEM_TOKENS, "system"),)
        calls: list[TraceCall] = []
        last: tuple[int, ...] = ()
        for level in range(levels):
            name = f"truth-{number}/{level}"
            side = [_call(draw, f"{name}/{i}", parts, mean, last) for i in range(width)]
            last = tuple(range(len(calls), len(calls) + width))
            calls += side
            # The recorded answer follows, not the model's.
            recorded = Part(f"{name}/recorded", side[-1].output_tokens, "assistant")
            parts = (*side[-1].parts, recorded)
        ready = fit(TraceProgram(f"truth-{number}", tuple(calls)), CONTEXT, 1.0)
        if ready is not None:
            found.append(ready)
    return found


def _call(
    draw: Random, name: str, parts: tuple[Part, ...], mean: int, after: tuple[int, ...]
) -> TraceCall:
    asked = 16 + min(160, int(draw.expovariate(1 / 48)))
    return TraceCall(
        parts=(*parts, Part(f"{name}/asked", asked, "tool")),
        output_tokens=8 + min(4 * mean, int(draw.expovariate(1 / mean))),
        gap_s=min(_LONGEST_GAP_S, draw.expovariate(1 / _GAP_S)),
        after=after,
    )
