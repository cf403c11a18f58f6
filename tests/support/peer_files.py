"""Files of `weft bench peers`."""

from __future__ import annotations

from typing import Any

_TIMES = ("mean", "p95", "p99")
_SETTINGS = {"replicas": 2, "slots": 4, "kv_blocks": 3000, "orders": ["fcfs", "resident"]}


def turn(front: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    """Return one play of a file. All its times are equal."""
    figures = {**dict.fromkeys(_TIMES, value), "programs": 20, "errors": more.pop("errors", 0)}
    return {"workload": "w", "front": front, "seed": seed, "slices": {"all": figures}, **more}


def document(*turns: dict[str, Any], date: str = "2026-01-01", **settings: Any) -> dict[str, Any]:
    """Return a file of `weft bench peers`."""
    configuration = {**_SETTINGS, "fronts": [], "seeds": 3, **settings}
    return {"kind": "emulated", "date": date, "configuration": configuration, "turns": list(turns)}
