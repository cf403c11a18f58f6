"""The rate at which emulated replicas complete programs, measured in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft_bench.peers.replicas import Replicas
from weft_bench.workloads.cutting import ReadyProgram

_ORDER: Final = "program_fifo"
# A burst keeps the engines busy until this share of its programs has ended.
_BUSY: Final = 0.8


def capacity(programs: Sequence[ReadyProgram], replicas: Replicas, ratio: float) -> float:
    """Return the programs per engine second that these emulated replicas complete.

    All programs arrive at once and run first come, first served by program. The rate is that of
    the first four fifths to end. programs: with gaps in engine seconds. ratio: the bytes per token
    that estimated the lengths of the prompts.
    """
    # Imported here because this imports vLLM, which the bench does not need for real engines.
    from weft_bench.virtual.engine import EngineSettings
    from weft_bench.virtual.world import Setup, simulate

    setup = Setup(replicas.shapes, EngineSettings(_ORDER), bytes_per_token=ratio)
    burst = simulate(programs, [0.0] * len(programs), setup)
    ended = max(1, int(_BUSY * len(programs)))
    return ended / sorted(program.end_s for program in burst.programs)[ended - 1]
