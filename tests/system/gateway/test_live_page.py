"""The live view: the page in a real browser with three visitors, and its API."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.browser import Tab, browser, chromium

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("key-a", "key-b")
ADMIN = {"authorization": "Bearer root"}
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
NAMES = "[...document.querySelectorAll('#rows [data-act=story]')].map((one) => one.textContent)"
CHAT = {
    "id": "c", "object": "chat.completion", "choices": [],
    "usage": {
        "prompt_tokens": 1000, "completion_tokens": 24, "total_tokens": 1024,
        "prompt_tokens_details": {"cached_tokens": 750},
    },
}  # fmt: skip
METRICS = (
    'vllm:cache_config_info{block_size="16",num_gpu_blocks="512"} 1.0\n'
    'vllm:num_requests_running{engine="0"} 1.0\nvllm:kv_cache_usage_perc{engine="0"} 0.25\n'
)


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


async def answer(wire: Any, request: Any) -> None:
    """Answer, or wait for ever if the call asks for it."""
    if request.json["messages"]:
        await wire.closed()
    else:
        await wire.plain(CHAT)


@pytest.fixture
async def page(engine: Any, weft: Any) -> AsyncIterator[Any]:
    """A gateway with a program of each key, and one with a hostile name."""
    async with (
        engine(script=answer, weft=False, metrics=METRICS) as stub,
        weft(stub, admin_key="root") as gateway,
    ):
        for name, program in (("key-a", "alpha"), ("key-b", "beta"), ("key-b", HOSTILE)):
            got = await gateway.client.post(
                "/v1/chat/completions",
                json={"model": "tiny", "messages": [], "weft": {"program": program}},
                headers=key(name) | {"x-weft-program": program},
            )
            assert got.status_code == 200, got.text
        yield gateway


async def top(page: Any, headers: dict[str, str], **query: Any) -> dict[str, Any]:
    got = await page.client.get("/v1/top", headers=headers, params=query)
    assert got.status_code == 200, got.text
    return got.json()


def sessions(found: dict[str, Any]) -> list[str]:
    return [found["rows"][name]["session"] for name in found["order"]]


async def test_a_key_shows_its_own_programs_and_the_admin_key_all(page: Any) -> None:
    everything = await top(page, ADMIN)
    assert sorted(sessions(everything)) == sorted(["alpha", "beta", HOSTILE])
    (replica,) = everything["engines"]
    assert (replica["row"], replica["state"]) == ("r0", "serving")
    own = await top(page, key("key-a"))
    assert (sessions(own), own["engines"], own["counts"]["tool gap"]) == (["alpha"], [], 1)
    assert {event["session"] for event in own["events"]} == {"alpha"}
    (row,) = own["rows"].values()
    assert (row["state"], row["hit"], row["context"]) == ("tool gap", 0.75, 1024)
    assert sessions(await top(page, ADMIN, q="BET")) == ["beta"]
    assert sessions(await top(page, ADMIN, sort="session", limit=2)) == [HOSTILE, "alpha"]
    other = next(n for n, row in everything["rows"].items() if row["session"] == "beta")
    for method in ("GET", "DELETE", "PATCH"):
        got = await page.client.request(method, f"/v1/top/{other}", headers=key("key-a"))
        assert got.json()["error"]["code"] == "program_not_found"
    assert (await page.client.get("/v1/top", headers=key("wrong"))).status_code == 401
    line = (await page.client.get(f"/v1/top/{other}", headers=ADMIN)).json()
    (lane,) = line["lanes"]
    assert lane["calls"][0]["outcome"] == "ok"


async def test_a_stopped_program_loses_its_calls_and_gets_no_others(page: Any, until: Any) -> None:
    running = asyncio.create_task(
        page.call(body={"messages": [{"role": "user", "content": "x"}]},
                  headers=key("key-a") | {"x-weft-program": "alpha"})
    )  # fmt: skip
    await until(page.in_flight)
    (row,) = (await top(page, key("key-a")))["order"]
    got = await page.client.delete(f"/v1/top/{row}", headers=key("key-a"))
    assert got.json() == {"row": row, "stopped": True, "aborted": 1}
    answers = [await running, await page.call(headers=key("key-a") | {"x-weft-program": "alpha"})]
    assert [one.json()["error"]["code"] for one in answers] == ["program_stopped"] * 2
    assert page.parts.registry["r0"].circuit.healthy
    await until(lambda: page.parts.live.programs[row].ended_s)
    # Others are not affected.
    assert (await page.call(headers=key("key-b"))).status_code == 200


async def test_the_stream_has_what_changes(page: Any) -> None:
    async with page.client.stream("GET", "/v1/top?stream=true", headers=key("key-a")) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = (
            json.loads(line[6:]) async for line in stream.aiter_lines() if line.startswith("data: ")
        )
        found = await anext(events)
        assert sessions(found) == ["alpha"]
        (row,) = found["rows"].values()
        assert row["share"] == 0.125
        await page.call(headers=key("key-b") | {"x-weft-program": "beta"})
        await page.call(headers=key("key-a") | {"x-weft-program": "gamma"})
        found = await anext(events)
        assert [row["session"] for row in found["rows"].values()] == ["gamma"]
        assert [event["what"] for event in found["events"]] == ["began"]


async def test_a_visitor_is_known_by_a_cookie_that_scripts_and_others_do_not_get(
    page: Any,
) -> None:
    client = httpx.AsyncClient(base_url=page.url, trust_env=False)
    async with client:
        assert 'id="sign-in"' in (await client.get("/ui")).text
        for path in ("/ui/top", "/ui/top/x"):
            assert (await client.get(path)).status_code == 401
        bad = await client.post("/ui/sign-in", json={"key": "wrong"})
        assert (bad.status_code, "set-cookie" in bad.headers) == (401, False)
        form = await client.post("/ui/sign-in", data={"key": "key-a"})
        assert form.json()["error"]["code"] == "json_required"
        evil = {"origin": "https://evil.example"}
        got = await client.post("/ui/sign-in", json={"key": "key-a"}, headers=evil)
        assert got.status_code == 403
        got = await client.post("/ui/sign-in", json={"key": "key-a"})
        cookie = got.headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in cookie
        assert "key-a" not in cookie
        assert "Path" not in cookie
        shown = await client.get("/ui")
        assert "alpha" in shown.text
        assert "beta" not in shown.text
        assert shown.headers["content-security-policy"].startswith("default-src 'self';")
        # The cookie is of the page alone.
        assert (await client.get("/v1/top")).status_code == 401
        await client.delete("/ui/sign-in")
        assert 'id="sign-in"' in (await client.get("/ui")).text


@contextlib.asynccontextmanager
async def proxy(url: str) -> AsyncIterator[str]:
    """A proxy that serves a gateway below a path."""

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data.replace(b" /tools/weft/", b" /"))
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        await asyncio.gather(pipe(reader, ahead[1]), pipe(ahead[0], writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/tools/weft"


async def test_three_visitors_in_a_real_browser(page: Any, until: Any, tmp_path: Path) -> None:
    path = await asyncio.to_thread(chromium)
    if path is None:
        pytest.skip("not run: needs Chromium; on Debian: apt-get install chromium")
    async with browser(path, tmp_path / "profile") as chrome, proxy(page.url) as below:
        tabs: dict[str, Tab] = {}
        for name in ("root", *KEYS):
            tab = tabs[name] = await chrome.visitor()
            await tab.shape(1280, 800)
            await tab.open(f"{below if name == 'root' else page.url}/ui")
            await tab.fill("#key", name)
            await tab.press("Enter")
            await tab.until("document.querySelectorAll('#rows tr').length")
        assert set(await tabs["root"].run(NAMES)) == {"alpha", "beta", HOSTILE}
        assert await tabs["key-a"].run(NAMES) == ["alpha"]
        assert set(await tabs["key-b"].run(NAMES)) == {"beta", HOSTILE}
        for name, tab in tabs.items():
            engines = "getComputedStyle(document.querySelector('.engines')).display"
            assert (await tab.run(engines) == "block") is (name == "root")
            assert await tab.run("document.title") == "Weft"
        assert await tabs["root"].until("document.querySelector('#engines td').textContent") == "r0"

        # A program begins, for those who may see it.
        call = page.call(body={"messages": [{"role": "user", "content": "x"}]},
                         headers=key("key-a") | {"x-weft-program": "gamma"})  # fmt: skip
        running = asyncio.create_task(call)
        for name in ("root", "key-a"):
            await tabs[name].until(f"{NAMES}.includes('gamma')")
        assert "gamma" not in await tabs["key-b"].run("document.body.textContent")

        # Its owner stops it.
        tab = tabs["key-a"]
        row = "[...document.querySelectorAll('#rows tr')].find((r) => /gamma/.test(r.textContent))"
        await tab.run(f"{row}.querySelector('[data-act=stop]').click()")
        await tab.run("document.querySelector('#stop [value=yes]').click()")
        got = await running
        assert got.json()["error"]["code"] == "program_stopped"
        await tabs["root"].until(f"{row}.classList.contains('ended')")

        # An administrator raises a budget.
        limited = key("key-b") | {"x-weft-program": "beta", "x-weft-budget": '{"tokens": 2000}'}
        assert (await page.call(headers=limited)).status_code == 200
        assert (await page.call(headers=limited)).status_code == 429
        tab = tabs["root"]
        await tab.until("!!document.querySelector('[data-act=raise]')")
        await tab.run("document.querySelector('[data-act=raise]').click()")
        await tab.run("document.querySelector('#raise [value=yes]').click()")
        await tab.until("/of 4000 tokens/.test(document.querySelector('#rows').textContent)")
        assert (await page.call(headers=limited)).status_code == 200

        # The keyboard filters and opens a timeline; on a phone nothing is wider than the screen.
        tab = tabs["root"]
        await tab.press("/")
        await tab.fill("#q", "beta")
        await tab.until(f"{NAMES}.length === 1")
        await tab.run("document.querySelector('#rows [data-act=story]').focus()")
        await tab.press("Enter")
        await tab.until("document.querySelectorAll('#story rect').length")
        await tab.shape(390, 844, dark=True)
        assert await tab.run("document.documentElement.scrollWidth <= innerWidth")
        assert [tab.complaints for tab in tabs.values()] == [[], [], []]
        for tab in tabs.values():
            await tab.open("about:blank#end")
