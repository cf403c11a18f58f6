"""A call with a seed whose prompt is computed in pieces, on the CPU."""

from __future__ import annotations

import cpu_engine
import pytest

pytestmark = pytest.mark.engine


def test_pieces_of_a_prompt_do_not_change_a_seeded_output():
    tokens = cpu_engine.run("seeded_prompts.py")
    whole = tokens.pop("512")
    assert len(whole[0]) == len(whole[1]) == 12
    assert all(pieces == whole for pieces in tokens.values())
