"""Published statistics of recorded traces, by the traces' names in `files`.

The figures are printed beside the files in their collection. Tests compare the readers with them.
The names of statistics are those of `weft_bench.workloads.statistics`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# Trace name to (source, published statistics).
PUBLISHED: Final[Mapping[str, tuple[str, Mapping[str, float]]]] = {
    "coding_sessions": (
        "kv-cache-tester: recorded coding agents",
        {"calls mean": 68.5, "calls p50": 45, "calls p95": 232, "calls max": 514, "kept": 0.973},
    ),
    "tau_airline": (
        "tau-bench, airline: 50 tasks, 4 trials each",
        {
            "programs": 200,
            "calls mean": 12.3,
            "calls p50": 11,
            "calls p95": 23,
            "calls max": 30,
            "prompt mean": 2836,
            "cached": 0.943,
        },
    ),
    "miniswe": (
        "LMCache agent traces: issues fixed",
        {
            "programs": 20,
            "calls mean": 20.1,
            "calls p50": 22,
            "calls p95": 30,
            "calls max": 30,
            "prompt mean": 6016,
            "output mean": 114,
            "output p50": 98,
            "kept": 0.95,
        },
    ),
    "magagent": (
        "LMCache agent traces: an orchestrator and helpers",
        {
            "programs": 25,
            "calls mean": 29.8,
            "calls p50": 33,
            "calls p95": 43,
            "calls max": 44,
            "prompt mean": 1978,
            "output mean": 621,
            "output p50": 377,
            "kept": 0.401,
            "cached": 0.84,
        },
    ),
    "tree_of_thoughts": (
        "Tree of Thoughts: searches for 24",
        {
            "programs": 100,
            "calls mean": 100,
            "calls p50": 98,
            "calls p95": 122,
            "calls max": 153,
            "output mean": 55,
        },
    ),
    "mooncake_conversation": (
        "Mooncake: conversation",
        {"programs": 12_031, "prompt mean": 12_035, "output mean": 343, "cached": 0.366},
    ),
    "mooncake_synthetic": (
        "Mooncake: synthetic",
        {"programs": 3_993, "prompt mean": 15_325, "output mean": 149, "cached": 0.64},
    ),
    "azure_conversation": (
        "Azure LLM inference trace 2023: conversation",
        {"programs": 19_366, "prompt mean": 1155, "output mean": 211, "arrivals CV": 1.1},
    ),
    "azure_code": (
        "Azure LLM inference trace 2023: code",
        {"programs": 8_819, "prompt mean": 2048, "output mean": 28, "arrivals CV": 13.2},
    ),
    "bfcl_multi_turn": ("BFCL, multi-turn tasks", {"programs": 200}),
    "gsm8k": ("GSM8K, test", {"programs": 1319}),
    "mt_bench": ("MT-bench", {"programs": 80, "calls mean": 2}),
    "tatqa": ("TAT-QA, dev", {"programs": 278, "calls mean": 6}),
    "spider": ("Spider, dev", {"programs": 1034}),
}
