"""Files of `weft bench peers`."""

from __future__ import annotations

from typing import Any

from weft_bench.peers.outcome import summarise

_TIMES = ("mean", "p50", "p95", "p99")
_NOUGHT = summarise([], 1.0) | {"calls_per_s": 1.0, "duration_s": 1.0, "late": 0.0}
_SETTINGS = {"replicas": 2, "slots": 4, "kv_blocks": 3000, "orders": ["fcfs", "resident"]}


def turn(front: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    """Return one play of a file. All its times are equal."""
    figures = _NOUGHT | dict.fromkeys(_TIMES, value)
    figures |= {"programs": 20, "errors": more.pop("errors", 0)}
    return {"workload": "w", "front": front, "seed": seed, "slices": {"all": figures}, **more}


def document(*turns: dict[str, Any], date: str = "2026-01-01", **settings: Any) -> dict[str, Any]:
    """Return a file of `weft bench peers`."""
    configuration = {**_SETTINGS, "fronts": [], "seeds": 3, **settings}
    return {"kind": "emulated", "date": date, "configuration": configuration, "turns": list(turns)}
