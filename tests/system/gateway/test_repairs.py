"""Prompts whose beginning a client changes are repaired, if an operator has turned a rule on. The
agents are real.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from support import agents
from support.translator import CachingEngine, Translator

pytestmark = [pytest.mark.system, pytest.mark.anyio]

# Zones whose dates always differ.
YESTERDAY, TODAY = "Etc/GMT+12", "Etc/GMT-14"


async def applied(gateway: Any) -> list[list[str]]:
    """Return the repairs of each call, as the receipts say."""
    found = []
    for session in (await gateway.client.get("/v1/sessions")).json()["data"]:
        story = (await gateway.client.get(f"/v1/sessions/{session['id']}/story")).json()
        found += [receipt["repairs"] for receipt in story["receipts"]]
    return found


async def test_claude_codes_sessions_behind_a_translator_share_their_prefix(
    engine: Any, weft: Any, tmp_path: Path
) -> None:
    """The engine keeps the billing line. It is the same in all calls of a session, so that a rule
    changes nothing there, and another one in each session.
    """
    project = tmp_path / "project"
    project.mkdir()

    async def rates(variables: dict[str, str], rules: tuple[str, ...]) -> list[float]:
        cache = CachingEngine()
        async with (
            engine(script=cache, models=("weft-demo",), weft=False) as stub,
            weft(stub, repairs=rules) as gateway,
            engine(script=Translator(gateway.url), models=("weft-demo",)) as proxy,
        ):
            agent = agents.claude_code(proxy.url, tmp_path / "home", project)
            agent.variables.update(variables)
            for arguments in ("Begin.",), ("--continue", "Go on."), ("Another task.",):
                result = await asyncio.to_thread(agent.run, "-p", *arguments)
                assert result.status == 0, result.output
            assert await applied(gateway) == [[*rules]] * 3
        return cache.rates

    without = await rates({"CLAUDE_CODE_ATTRIBUTION_HEADER": "0"}, ())
    broken = await rates({}, ())
    repaired = await rates({}, ("billing_line",))
    _, second, another = without
    assert second > 0.95
    assert another > 0.5
    assert broken[1] >= 0.95 * second
    assert broken[2] < 0.05
    assert repaired[1] >= 0.95 * second
    assert repaired[2] >= 0.95 * another


async def test_opencode_works_over_midnight(engine: Any, weft: Any, tmp_path: Path) -> None:
    """It has the date in its system prompt."""
    cache = CachingEngine()
    async with (
        engine(script=cache, models=("weft-demo",)) as stub,
        weft(stub, repairs=("date_line",)) as gateway,
    ):
        agent = agents.opencode(gateway.url, tmp_path / "home", tmp_path)
        for zone, *arguments in (YESTERDAY, "Begin."), (TODAY, "--continue", "Go on."):
            agent.variables["TZ"] = zone
            result = await asyncio.to_thread(agent.run, "run", *arguments)
            assert result.status == 0, result.output
        # The call for a title has no date.
        assert sorted(await applied(gateway)) == [[], ["date_line"], ["date_line"]]
    assert cache.rates[1] > 0.95
    notes = [body["messages"][-1]["content"].splitlines()[-2] for body in cache.bodies]
    assert all(note.startswith("Today's date: ") for note in notes)
    assert notes[0] != notes[1]
    assert cache.bodies[0]["messages"][0] == cache.bodies[1]["messages"][0]


async def test_tools_in_another_order_keep_the_prefix(engine: Any, weft: Any) -> None:
    cache = CachingEngine()
    names = [f"tool_{n}" for n in range(20)]
    async with engine(script=cache) as stub, weft(stub, repairs=("tool_order",)) as gateway:
        for order in names, names[::-1]:
            tools = [
                {"type": "function", "function": {"name": name, "description": name * 20}}
                for name in order
            ]
            body = {"messages": [{"role": "system", "content": "x" * 999}], "tools": tools}
            got = await gateway.call(body=body)
            assert got.status_code == 200
        assert await applied(gateway) == [["tool_order"], ["tool_order"]]
    assert cache.rates == [0, 1]
