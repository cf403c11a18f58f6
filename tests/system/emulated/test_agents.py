"""Sessions of `weft bench agents` on emulated engines."""

from __future__ import annotations

import asyncio

import pytest
from support.emulated import MODEL
from support.sessions import sessions
from support.stack import Stack
from weft_bench.agents.figures import figures
from weft_bench.agents.live_plays import Pace, drive
from weft_bench.agents.scene import Point, Scene

pytestmark = [pytest.mark.system, pytest.mark.engine]


def test_sessions_run_in_a_closed_loop_with_the_figures_of_their_answers(stack: Stack, tmp_path):
    scene = Scene(calls=2, gap_s=0.1, data=str(sessions(tmp_path, 12)))
    # Contexts of 1,300 tokens with a word for each.
    found = scene.sessions(0, 12, 1500)
    played = asyncio.run(drive(stack.url, MODEL, found, Point(3, 6), Pace(dilate=2.0)))
    assert not played.failed
    counted = [one.id for one in found[:6]]
    assert set(counted) <= set(played.spans)
    values = figures(played.calls, played.spans, counted, played.until_s)
    assert values["calls"] >= 12
    assert 0 < values["ttft_p50"] < values["mean"]
    assert all(one.output_tokens == 20 for one in played.calls)
    assert {one.prompt_tokens // 640 for one in played.calls} == {1, 2}
    assert any(one.cached_tokens for one in played.calls)


def test_an_error_ends_a_session_and_not_the_play(stack: Stack, tmp_path):
    scene = Scene(calls=3, gap_s=0.1, data=str(sessions(tmp_path, 4)))
    # The third prompt exceeds the context of these engines.
    found = scene.sessions(0, 4, 131_072)
    played = asyncio.run(drive(stack.url, MODEL, found, Point(2, 3), Pace(dilate=2.0)))
    assert len(played.failed) >= 3
    assert all("400" in text for text in played.failed.values())
