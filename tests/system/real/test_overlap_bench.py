"""The overlap bench on real vLLM: every row runs the same requests and its own kinds of overlap.

The test does not check durations.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from support.waiting import RUN_S
from weft_bench.overlap.player import ROWS
from weft_bench.overlap.shape import generate

pytestmark = [pytest.mark.system, pytest.mark.engine]

REQUESTS = 1
# A request with small prompts, three turns with tools and eight tool calls.
SEED = 490
TURNS = [turn for request in generate(SEED, REQUESTS) for turn in request.turns if turn.calls]


def test_all_rows_run_the_same_requests(stack, tmp_path):
    file = tmp_path / "overlap.json"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "weft_gateway.cli", "bench", "overlap"),
            *("--base-url", stack.url),
            *("--requests", str(REQUESTS), "--seeds", "1", "--seed", str(SEED)),
            *("--rate", "5", "--json", str(file)),
        ],
        capture_output=True, text=True, timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    document = json.loads(file.read_text())
    figures = {figure["name"]: figure["value"] for figure in document["figures"]}
    for row in ROWS:
        assert figures[f"{row.name}/errors"] == 0
        assert figures[f"{row.name}/requests"] == REQUESTS
        assert 0 < figures[f"{row.name}/ftr_p50"] < figures[f"{row.name}/e2e_p50"]
        assert row.name in done.stdout
    for name in ("extended", "dispatched", "saved_prefill_s", "saved_dispatch_s"):
        assert figures[f"baseline/{name}"] == 0
    # A tool that starts after the answer is still running when the next turn is prefilled.
    assert figures["+ splitting/extended"] == len(TURNS)
    assert figures["+ splitting/saved_prefill_s"] > 0
    for name in ("+ dispatch", "+ tags"):
        assert figures[f"{name}/dispatched"] == sum(len(turn.calls) for turn in TURNS)
        assert figures[f"{name}/saved_dispatch_s"] > 0
    assert document["configuration"]["base_url"] == stack.url
