"""Wrong requests to /weft/replicas, many replicas, and the command `weft replicas`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from typer.testing import CliRunner
from weft_gateway.calls import members as manager
from weft_gateway.cli import app
from weft_gateway.policies import members as policies

pytestmark = [pytest.mark.system, pytest.mark.anyio]

JSON = {"content-type": "application/json"}


def code(got: Any) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "url"),
        (b"[]", ""),
        (b"{", ""),
        (b'{"url": 7}', "url"),
        (b'{"url": null}', "url"),
        (b'{"url": ""}', "url"),
        (b'{"url": "gpu-3:8000"}', "does not start with http:// or https://"),
        (b'{"url": "ftp://gpu-3"}', "does not start with http:// or https://"),
        (b'{"url": "http://user:secret@gpu-3:8000"}', "cannot contain a password"),
        (b'{"url": "http://gpu-3:0"}', "port"),
        (b'{"url": "http://gpu-3:99999"}', "port"),
        (b'{"url": "http://gpu-3/?x=1"}', "query"),
        (b'{"url": "http://gpu-3/#x"}', "fragment"),
        (b'{"url": "http://gpu-3\\r\\nhost: evil"}', "special characters"),
        ('{"url": "http://gpü-3:8000"}'.encode(), "special characters"),
        (b'{"url": "http://256.1.1.1:8000"}', "not a valid host"),
        (b'{"url": "http://gpu-3:8000", "name": "a/b"}', "not a valid replica name"),
        (b'{"url": "http://gpu-3:8000", "name": "a b"}', "not a valid replica name"),
        ('{"url": "http://gpu-3:8000", "name": "ü"}'.encode(), "not a valid replica name"),
        (b'{"url": "http://gpu-3:8000", "name": "x=http://y"}', "not a valid replica name"),
        (b'{"url": "http://gpu-3:8000", "name": "%b"}' % (b"n" * 65), "not a valid replica name"),
        (b'{"url": "http://gpu-3:8000", "more": 1}', "more"),
        (b'{"url": "http://%b"}' % (b"x" * 70_000), ""),
    ],
)
async def test_a_wrong_replica_is_refused(body: bytes, why: str, weft: Any) -> None:
    async with weft() as gateway:
        got = await gateway.client.post("/weft/replicas", content=body, headers=JSON)
        assert got.status_code in (400, 413), got.text
        message = got.json()["error"]["message"]
        assert why in message
        assert "secret" not in message
        assert (await gateway.client.get("/weft/replicas")).json() == {"replicas": []}


async def test_a_gateway_is_not_added(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as one, weft() as other:
        # `other` has no replica, so its health is 503.
        for url in (one.url, f"{one.url}/v1", other.url):
            got = await one.client.post("/weft/replicas", json={"url": url})
            assert code(got) == (400, "replica_is_gateway")
        assert len((await one.client.get("/weft/replicas")).json()["replicas"]) == 1


async def test_a_gateway_in_the_settings_gets_no_calls(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as one, weft(one.url) as two:
        health = await two.client.get("/health")
        (found,) = health.json()["replicas"]
        assert (health.status_code, found["kind"]) == (503, "gateway")
        assert found["last_error"] == "replica_is_gateway"
        assert code(await two.call()) == (503, "no_replica")
        state = (await two.client.get("/weft/state")).json()
        assert state["replicas"] == {"r0": {"status": None, "error": "replica_is_gateway"}}


@pytest.mark.parametrize(
    "body",
    [b'{"drain_s": -1}', b'{"drain_s": NaN}', b'{"drain_s": 1e999}', b'{"drain_s": "60"}',
     b'{"drain_s": true}', b'{"drain_s": 86401}', b'{"drain": 60}', b"60"],
)  # fmt: skip
async def test_a_wrong_drain_is_refused(body: bytes, engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two) as gateway:
        got = await gateway.client.post("/weft/replicas/r0/drain", content=body, headers=JSON)
        assert got.status_code == 400, got.text
        got = await gateway.client.post("/weft/replicas/r0/drain?force=maybe", headers=JSON)
        assert got.status_code == 400
        assert gateway.parts.registry["r0"].homes_until is None


@pytest.mark.parametrize("name", ["x", "r0%2Fdrain", "%00", "r%C3%BC", "..", "a" * 5000, "r0%20"])
async def test_an_unknown_name_is_not_found(name: str, engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two) as gateway:
        for method, path in (("POST", "/drain"), ("POST", "/resume"), ("DELETE", "?force=true")):
            got = await gateway.client.request(method, f"/weft/replicas/{name}{path}")
            assert got.status_code in (404, 405), (got.status_code, got.text)
        assert len(gateway.parts.registry) == 2


async def test_only_administrators_change_replicas(engine: Any, weft: Any) -> None:
    async with engine() as one, engine() as two, weft(one, two, admin_key="k") as gateway:
        for method, path in (
            ("GET", ""),
            ("POST", ""),
            ("POST", "/r0/drain"),
            ("POST", "/r0/resume"),
            ("DELETE", "/r0"),
        ):
            got = await gateway.client.request(method, f"/weft/replicas{path}")
            assert code(got) == (401, "invalid_admin_key")
        keyed = {"authorization": "Bearer k"}
        assert (await gateway.client.get("/weft/replicas", headers=keyed)).status_code == 200


async def test_a_page_cannot_change_replicas(engine: Any, weft: Any) -> None:
    evil = {"origin": "https://evil.example"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    async with engine() as one, engine() as two, weft(one, two) as gateway:
        for headers, expected in ((evil, 403), (form, 415)):
            for path in ("/r0/drain", "/r0/resume", ""):
                got = await gateway.client.post(f"/weft/replicas{path}", headers=headers)
                assert got.status_code == expected
        got = await gateway.client.delete("/weft/replicas/r0?force=true", headers=evil)
        assert got.status_code == 403
        assert len(gateway.parts.registry) == 2


async def test_a_wrong_name_is_the_parameter_of_the_error(weft: Any) -> None:
    async with weft() as gateway:
        for body, param in (
            ({"url": "http://gpu-3:8000", "name": "a b"}, "name"),
            ({"url": "ftp://gpu-3", "name": "a"}, "url"),
        ):
            got = await gateway.client.post("/weft/replicas", json=body)
            assert got.json()["error"]["param"] == param


async def test_the_number_of_replicas_is_limited(
    weft: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "MAX_REMOVED", 50)
    monkeypatch.setattr(manager, "MAX_MEMBERS", 50)
    async with weft() as gateway:
        members = gateway.parts.members
        for number in range(50):
            await members.add("", f"http://127.0.0.1:{number + 1}")
        got = await gateway.client.post("/weft/replicas", json={"url": "http://127.0.0.1:9999"})
        assert code(got) == (409, "too_many_replicas")
        # Adding and removing other ones does not fill the store.
        await members.remove("127.0.0.1:1", force=True)
        for number in range(100):
            name, new = await members.add("", f"http://127.0.0.2:{number + 1}")
            assert new
            await members.remove(name, force=True)
        assert len(members.store._records) <= 100
        assert len(gateway.parts.registry) == 49


async def test_the_command_changes_replicas(engine: Any, weft: Any) -> None:
    runner = CliRunner()

    async def run(*arguments: str, status: int = 0) -> str:
        options = ["replicas", *arguments, "--gateway", f"{gateway.url}/v1"]
        result = await asyncio.to_thread(runner.invoke, app, options, env={"WEFT_ADMIN_KEY": "k"})
        assert result.exit_code == status, result.output
        return str(result.output)

    async with engine() as one, engine() as two, weft(one, admin_key="k") as gateway:
        assert await run("add", f"gpu-1={two.url}") == "gpu-1: serving\n"
        assert await run("drain", "r0", "--drain-s", "0") == "r0: draining\n"
        assert "no other replica" in (await run("drain", "gpu-1", status=1)).lower()
        shown = await run("list")
        assert [line.split()[:2] for line in shown.splitlines()] == [
            ["name", "state"],
            ["r0", "draining"],
            ["gpu-1", "serving"],
        ]
        assert await run("resume", "r0") == "r0: serving\n"
        refused = await run("remove", "r0", status=1)
        assert "it does not drain" in refused
        assert "or use --force." in refused
        assert "must be a finite number" in await run("drain", "r0", "--drain-s", "nan", status=2)
        assert await run("remove", "r0", "--force") == "r0: removed\n"
        assert "not a valid replica name" in await run("add", "ü=http://x", status=1)
        gateway_url, gateway.url = gateway.url, "http://127.0.0.1:1"
        assert "cannot be reached" in await run("list", status=1)
        gateway.url = one.url
        assert "answers 404, as no gateway" in await run("list", status=1)
        gateway.url = gateway_url
