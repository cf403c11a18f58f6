"""Equal calls of the runs in one process."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from weft_gateway.runs.flow_caller import PipeCaller, RunCaller
from weft_gateway.runs.flow_wire import Ask, CallEnded, Drop, FromWorker
from weft_run.io.caller import Answer
from weft_run.io.errors import CallFailed
from weft_run.language.requests import LlmRequest
from weft_run.language.spec import load
from weft_run.plan.commands import Work

pytestmark = pytest.mark.anyio

GOOD = orjson.dumps(
    {
        "choices": [{"message": {"content": "yes"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2},
    }
)


def work(number: int, key: str = "k", *, shared: bool = True) -> Work:
    request = LlmRequest((("user", key),), "tiny")
    return Work(number, number, "said", key, shared, 3, True, request)


class Pipe:
    """A caller, and what the gateway receives from it."""

    def __init__(self) -> None:
        self.sent: list[FromWorker] = []
        self.caller = PipeCaller(self.sent.append, 1000)

    async def call(self, *works: Work) -> list[asyncio.Task[Answer]]:
        """Begin calls, each of another run."""
        tasks = [asyncio.create_task(self.caller.call(one, one.row, 0)) for one in works]
        await self.turn()
        return tasks

    async def turn(self) -> None:
        """Let all tasks proceed."""
        for _ in range(10):
            await asyncio.sleep(0)

    @property
    def asked(self) -> list[Ask]:
        return [one for one in self.sent if isinstance(one, Ask)]


async def test_equal_calls_of_runs_are_made_once() -> None:
    pipe = Pipe()
    tasks = await pipe.call(work(0), work(1), work(2, "other"))
    assert [one.row for one in pipe.asked] == [0, 2]
    for ask in pipe.asked:
        pipe.caller.answered(CallEnded(ask.number, GOOD))
    found = [await task for task in tasks]
    assert [one.text for one in found] == ["yes"] * 3
    assert [(one.made, one.usage.total) for one in found] == [(True, 7), (False, 0), (True, 7)]
    late = await pipe.call(work(3))
    assert await late[0] == Answer("yes", found[1].usage, made=False)
    assert len(pipe.asked) == 2


async def test_calls_that_count_each_are_made_each() -> None:
    pipe = Pipe()
    tasks = await pipe.call(work(0, shared=False), work(1, shared=False))
    assert len(pipe.asked) == 2
    for ask in pipe.asked:
        pipe.caller.answered(CallEnded(ask.number, GOOD))
    assert [(await task).made for task in tasks] == [True, True]


async def test_a_call_ends_when_no_run_waits_for_it() -> None:
    pipe = Pipe()
    first, second = await pipe.call(work(0), work(1))
    first.cancel()
    await pipe.turn()
    assert len(pipe.sent) == 1
    second.cancel()
    # A run that comes before the abort is done makes its own call.
    (third,) = await pipe.call(work(2))
    assert pipe.sent[-2:] == [Drop(pipe.asked[0].number), pipe.asked[1]] or (
        pipe.sent[-2:] == [pipe.asked[1], Drop(pipe.asked[0].number)]
    )
    pipe.caller.answered(CallEnded(pipe.asked[1].number, GOOD))
    assert (await third).made


async def test_the_last_run_pays_for_a_cancelled_one() -> None:
    pipe = Pipe()
    first, second = await pipe.call(work(0), work(1))
    first.cancel()
    await pipe.turn()
    pipe.caller.answered(CallEnded(pipe.asked[0].number, GOOD))
    assert (await second).usage.total == 7


async def test_an_error_is_that_of_all_runs_which_wait() -> None:
    pipe = Pipe()
    first, second = await pipe.call(work(0), work(1))
    failed = CallEnded(pipe.asked[0].number, b"", "http_500", "broken", 3)
    pipe.caller.answered(failed)
    await pipe.turn()
    for waiting in (first, second):
        with pytest.raises(CallFailed, match="broken"):
            await waiting
    # A later run makes the call again.
    (third,) = await pipe.call(work(2))
    pipe.caller.answered(CallEnded(pipe.asked[1].number, GOOD))
    assert (await third).made


async def test_rows_that_begin_alike_have_one_number() -> None:
    text = """
weft: 1
inputs: {page: str, question: str}
ops:
  said: {llm: {user: "{{ page }} {{ question }}"}}
outputs: {said: said}
"""
    pipe = Pipe()
    groups = []
    for first in (0, 100):
        run = RunCaller(pipe.caller, load(text, "x.yaml"), first)
        for row, page in enumerate(("a", "b")):
            run.begin(row, {"page": page, "question": f"{first}"})
            key = f"{first}/{page}"
            task = asyncio.create_task(run.call(work(row, key), lambda: None))
            await pipe.turn()
            groups.append((pipe.asked[-1].row, pipe.asked[-1].group))
            run.ended(row)
            task.cancel()
    assert [row for row, _ in groups] == [0, 1, 100, 101]
    numbers = [group for _, group in groups]
    assert numbers[:2] == numbers[2:]
    assert numbers[0] != numbers[1]
    assert 0 not in numbers
