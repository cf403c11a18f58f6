"""A call with a seed whose prompt is computed in pieces, on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from weft_deploy.local import demo_model

pytestmark = pytest.mark.engine

SCRIPT = Path(__file__).with_name("seeded_prompts.py")


def test_pieces_of_a_prompt_do_not_change_a_seeded_output():
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(demo_model.ensure_demo_model())],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    tokens = json.loads(line.removeprefix("RESULT "))
    whole = tokens.pop("512")
    assert len(whole[0]) == len(whole[1]) == 12
    assert all(pieces == whole for pieces in tokens.values())
