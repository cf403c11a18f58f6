"""Small recorded workloads in the format of the collection."""

from __future__ import annotations

import json
from pathlib import Path


def sessions(folder: Path, count: int = 3, calls: int = 3) -> Path:
    """Write coding sessions, whose prompts grow by 640 tokens a call. Return the folder."""
    asked = [
        {"in": 640, "out": 20, "hash_ids": list(range(10 * n)), "stop": "tool_use"}
        | {"think_time": 60, "t": 60.0 * n}
        for n in range(1, calls + 1)
    ]
    lines = [
        json.dumps({"id": f"s{name}", "block_size": 64, "requests": asked}) for name in range(count)
    ]
    (folder / "coding_sessions").mkdir(parents=True)
    (folder / "coding_sessions" / "sessions.jsonl").write_text("\n".join(lines))
    return folder
