"""The slices of a play."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from weft_bench.peers import plays
from weft_bench.peers.drive import Call, Played, Script
from weft_bench.peers.fronts import Front, Place
from weft_bench.peers.outcome import Outcome
from weft_bench.peers.plays import sliced
from weft_bench.stack.proxies import OURS
from weft_bench.workloads.cutting import ReadyProgram


def outcome(completion_s: float, *, long_gaps: bool) -> Outcome:
    return Outcome(
        completion_s, 1.0, 1, 0, 0, 64, 32, 0, 3, 0.1, 0, (), long_gaps
    )  # fmt: skip


PLAYED = Played(4.0, [Call(0, 0, 0.0, 2.0, "a", 0.0), Call(1, 0, 0.0, 4.0, "", 0.0, "500: x")])


def test_programs_with_long_gaps_are_a_separate_slice():
    found = [outcome(1.0, long_gaps=False), outcome(9.0, long_gaps=True)]
    figures = sliced(found, PLAYED, 2.0, 0.5)
    assert set(figures) == {"all", "rest", "long gaps"}
    assert figures["all"]["mean"] == pytest.approx(10)
    assert figures["rest"]["mean"] == pytest.approx(2)
    assert figures["long gaps"]["mean"] == pytest.approx(18)


def test_rate_counts_answered_calls_in_real_time():
    figures = sliced([outcome(1.0, long_gaps=False)], PLAYED, 2.0, 0.5)
    assert set(figures) == {"all"}
    assert figures["all"]["calls_per_s"] == pytest.approx(0.25)
    assert (figures["all"]["duration_s"], figures["all"]["late"]) == (4.0, 0.5)


def test_chats_are_a_separate_slice_and_not_among_all_programs():
    found = [outcome(1.0, long_gaps=False), replace(outcome(9.0, long_gaps=False), chat=True)]
    figures = sliced(found, PLAYED, 2.0, 0.5)
    assert set(figures) == {"all", "chats"}
    assert (figures["all"]["programs"], figures["all"]["mean"]) == (1, pytest.approx(2))
    assert (figures["chats"]["programs"], figures["chats"]["mean"]) == (1, pytest.approx(18))


class _Counting:
    """Replicas that count their resets and report no answers."""

    block_tokens = 16
    place = Place("m", 48_000)
    urls = ()

    def __init__(self) -> None:
        self.resets = 0

    def reset(self, order: str) -> None:
        self.resets += 1

    def device_seconds(self) -> tuple[float, float]:
        return 0.0, 0.0

    def answers(self) -> dict:
        return {}


def test_chats_are_played_again_without_the_programs_on_emptied_engines(monkeypatch):
    driven = []

    @contextmanager
    def started(*arguments, **options):
        yield "http://front", 1

    async def warm(url, model):
        return None

    async def drive(url, front, scripts, run, on_call):
        driven.append([script.program.id for script in scripts])
        calls = [Call(n, 0, 0.0, float(len(scripts)), f"{n}", 0.0) for n, _ in enumerate(scripts)]
        return Played(1.0, calls)

    monkeypatch.setattr(plays, "started", started)
    monkeypatch.setattr(plays, "_warm", warm)
    monkeypatch.setattr(plays, "drive", drive)
    ready = [ReadyProgram(name, (), cut=False, trimmed=False) for name in ("program", "chat")]
    scripts = [
        Script(program, [b""], [()], [0.0], 0.0, 1.0, False, program.id == "chat")
        for program in ready
    ]
    replicas = _Counting()
    front = Front("f", OURS)
    found = plays.play(front, scripts, replicas, Path(), lambda: None, install=False)
    assert driven == [["program", "chat"], ["chat"]]
    assert replicas.resets == 2
    assert (found["chats"]["mean"], found["chats alone"]["mean"]) == (2.0, 1.0)
    assert "chats alone" not in plays.play(
        front, scripts[:1], replicas, Path(), lambda: None, install=False
    )
