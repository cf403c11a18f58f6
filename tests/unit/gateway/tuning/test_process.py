"""Replays in real processes, and their failures."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import msgspec
import pytest
from support.tuning import calls, trace
from weft_gateway.tuning.process import Failure, ReplayError, replay, run_replay
from weft_gateway.tuning.replay.search import search
from weft_gateway.tuning.replay.trace import Found, Limits

pytestmark = pytest.mark.slow


def run(work: Coroutine[Any, Any, Found]) -> Found:
    return asyncio.run(work)


def failure(work: Coroutine[Any, Any, Found]) -> Failure:
    with pytest.raises(ReplayError) as caught:
        run(work)
    return caught.value.failure


def test_the_process_has_the_result_of_the_search() -> None:
    found, here = run(replay(trace(5), Limits())), search(trace(5))
    assert (found.best, found.score, found.tried) == (here.best, here.score, here.tried)
    assert found.cpu_s > 0


def test_a_broken_journal_is_reported() -> None:
    for broken in (
        b"{",
        b"[]",
        b"",
        msgspec.json.encode(trace(2)).replace(b",3,7,", b',"text",7,'),
    ):
        assert failure(run_replay(broken, Limits())) is Failure.JOURNAL


def test_too_little_memory_is_reported() -> None:
    large = trace(calls=calls(2500, each=40))
    assert failure(replay(large, Limits(memory_bytes=110 << 20))) in (
        Failure.MEMORY,
        Failure.CRASH,
    )


def test_too_little_time_is_reported() -> None:
    assert failure(replay(trace(5), Limits(within_s=0.01))) is Failure.TIMEOUT
    assert failure(replay(trace(300), Limits(cpu_s=1))) is Failure.CRASH


def test_a_process_whose_parent_has_gone_ends() -> None:
    command = [sys.executable, "-m", "weft_gateway.tuning.replay", str(1 << 29), "60"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(trace(400)) + b"\n")
        process.stdin.close()
        assert process.wait(60) == 1
        assert process.stdout is not None
        assert process.stdout.read() == b""
