"""Running one tool."""

import asyncio
import json
import sys
import threading
from contextvars import ContextVar
from functools import partial

import pytest
from support.waiting import DEADLINE_S
from weft_programs.stream import ToolCall
from weft_programs.tools import Tool, run

pytestmark = pytest.mark.anyio


def call(arguments="{}", name="f"):
    return ToolCall(0, "a", name, arguments)


def tool(function, **options):
    return Tool("f", function, **options)


async def coroutine(a):
    return {"twice": 2 * a}


class Callable:
    async def __call__(self, a):
        return 3 * a


@pytest.mark.parametrize(
    ("function", "output"),
    [
        (lambda a: f"{a}!", "2!"),
        (lambda a: [a, "ä"], '[2, "ä"]'),
        (coroutine, '{"twice": 4}'),
        (partial(coroutine), '{"twice": 4}'),
        (Callable(), "6"),
    ],
)
async def test_any_callable_is_a_tool(function, output):
    ran = await run(tool(function), call('{"a": 2}'))
    assert (ran.output, ran.failed) == (output, False)


async def test_a_blocking_tool_does_not_block_the_loop():
    done = threading.Event()
    work = asyncio.create_task(run(tool(lambda: done.wait(DEADLINE_S)), call()))
    await asyncio.sleep(0)
    done.set()  # Set by the loop, which a tool inside it would block.
    assert (await work).output == "true"


async def test_wide_fan_out_runs_concurrently():
    width = 40
    all_there = threading.Barrier(width, timeout=DEADLINE_S)
    ran = await asyncio.gather(*(run(tool(all_there.wait), call()) for _ in range(width)))
    assert not any(r.failed for r in ran)


async def test_blocking_tool_sees_the_callers_context():
    variable = ContextVar("variable", default="")
    variable.set("here")
    assert (await run(tool(variable.get), call())).output == "here"


def test_hanging_blocking_tool_does_not_keep_the_loop_open():
    release = threading.Event()
    ran = asyncio.run(run(tool(release.wait, timeout_s=0.01), call()))
    assert "too long" in ran.output
    release.set()


def fails():
    raise ValueError("no luck")


@pytest.mark.parametrize(
    ("function", "arguments", "why"),
    [
        (fails, "{}", "ValueError: no luck"),
        (lambda: next(iter(())), "{}", "StopIteration"),
        (sys.exit, "{}", "SystemExit"),
        (lambda: 1, '{"b": 1}', "unexpected keyword"),
        (lambda: 1, "[]", "must be a JSON object"),
        (lambda: object(), "{}", "not JSON serializable"),
    ],
)
async def test_tool_errors_are_reported_to_the_model(function, arguments, why):
    ran = await run(tool(function), call(arguments))
    assert ran.failed
    assert why in json.loads(ran.output)["error"]


async def test_unknown_tool_is_an_error():
    assert "'f'" in json.loads((await run(None, call())).output)["error"]


async def test_slow_tool_is_stopped():
    stopped = []

    async def slow():
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(True)

    ran = await run(tool(slow, timeout_s=0.01), call())
    assert "too long" in ran.output
    assert stopped


def test_tool_is_described_as_json():
    described = Tool("f", fails, "Does.", {"type": "object"}).as_json()
    assert described == {
        "type": "function",
        "function": {"name": "f", "description": "Does.", "parameters": {"type": "object"}},
    }
    assert "description" not in tool(fails).as_json()["function"]
