"""`weft top` against a real gateway, on a screen in memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from textual.widgets import DataTable
from weft_gateway.top_app import Story, Top, story_lines

pytestmark = [pytest.mark.system, pytest.mark.anyio]

HOSTILE = "[bold]\u202e<script>\n[/]"


async def answer(wire: Any, request: Any) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 24, "total_tokens": 1024}
    await wire.plain({"id": "c", "object": "chat.completion", "choices": [], "usage": usage})


async def test_it_shows_the_programs_of_its_key_and_stops_them(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-a")
    async with engine(script=answer) as stub, weft(stub, api_keys="key-a,key-b") as gateway:
        for key, program in (("key-a", "alpha"), ("key-b", "beta")):
            headers = {"authorization": f"Bearer {key}", "x-weft-program": program}
            headers["x-weft-budget"] = '{"calls": 10}'
            assert (await gateway.call(headers=headers)).status_code == 200
        top = Top(gateway.url)
        async with top.run_test(size=(160, 40)) as pilot:

            async def until(condition: Any) -> None:
                for _ in range(200):
                    if condition():
                        return
                    await pilot.pause(0.05)
                raise AssertionError("the screen does not show it")

            await until(lambda: top.rows)
            table = top.query_one("#programs", DataTable)
            assert [str(cell) for cell in table.get_row_at(0)][:2] == ["alpha", "in a tool gap"]
            await pilot.press("enter")
            await until(lambda: isinstance(top.screen, Story))
            await pilot.press("escape")
            await pilot.press("r")
            await until(lambda: [row["spent"]["limit"] for row in top.rows.values()] == [20])
            await pilot.press("s")
            assert all(row["state"] != "ended" for row in top.rows.values())
            await pilot.press("s")
            await until(lambda: [row["state"] for row in top.rows.values()] == ["ended"])
            assert top.screen.query("#events")


async def test_a_wrong_key_ends_it_with_the_reason(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    async with engine() as stub, weft(stub, api_keys="key-a") as gateway:
        top = Top(gateway.url)
        async with top.run_test() as pilot:
            for _ in range(200):
                if top.failure:
                    break
                await pilot.pause(0.05)
        assert top.failure == "Incorrect API key provided."


def test_names_are_text_and_a_timeline_fits_its_line() -> None:
    part = dict.fromkeys(("held_s", "queued_s", "prefill_s"), 0.0)
    call = {"at": 0.0, "total_s": 5.0, "decode_s": 5.0, **part}
    lane = {"thread": HOSTILE, "calls": [call, call | {"at": 8.0, "total_s": 2.0, "decode_s": 2.0}]}
    name, bars = story_lines({"from": 0.0, "to": 10.0, "lanes": [lane]}, 10)
    assert str(bars) == "ddddd---dd"
    assert str(name) == "[bold]?<script>?[/]"


def test_without_textual_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['textual'] = None; from weft_gateway.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "top"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("weft top: needs textual")
