"""A small recorded workload, and replicas that do not run."""

from __future__ import annotations

import json
from pathlib import Path

from weft_bench.peers.fronts import Place
from weft_bench.peers.replicas import Replicas
from weft_engine.emulated.engines import shapes

(SHAPE,) = shapes("8b-a100", 1, 4, 3000)


def replicas(dilate: float = 0.2, *, emulated: bool = True) -> Replicas:
    """Return two replicas for tests of scripts and reports. They do not run."""
    return Replicas(
        ("http://127.0.0.1:1", "http://127.0.0.1:2"),
        Place("m", 48_000, dilate, SHAPE.cost),
        "weft",
        8000,
        SHAPE.block_tokens,
        (SHAPE, SHAPE) if emulated else (),
    )


def dialogues(folder: Path, count: int, turns: int = 3) -> Path:
    """Write the data set `tau_airline`, with dialogues, to a folder. Return the folder."""
    lines = []
    for number in range(count):
        messages = [{"role": "system", "content": "You are an airline's agent. " * 40}]
        for turn in range(turns):
            messages += [
                {"role": "user", "content": f"Traveller {number} asks question {turn}. " * 10},
                {"role": "assistant", "content": f"Answer {turn}. " * 10},
            ]
        lines.append(json.dumps({"task_id": number, "trial": 0, "messages": messages}))
    home = folder / "tau_airline"
    home.mkdir(parents=True)
    (home / "trajectories.jsonl").write_text("\n".join(lines))
    return folder
