"""Clients that try to break the gateway with workflows, or to reach what is not theirs."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.workflow_runs import (
    SAY,
    begin,
    chat,
    create,
    created,
    ended,
    headers_of,
    output,
    refused,
    run,
    texts,
)
from weft_gateway.config import SettingsError, load

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-a", "sk-b")
OTHER = headers_of("sk-b")


def flow(operator: str, inputs: str = "{text: str}") -> str:
    """Return a workflow with one operator, in line 5."""
    return f"weft: 1\ninputs: {inputs}\nops:\n  x:\n    {operator}\noutputs: {{x: x}}\n"


async def test_a_tenant_reaches_nothing_of_another(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        workflow = await created(client)
        one = await begin(client, workflow, rows=texts(2))
        await ended(client, one["id"])
        paths = [
            ("GET", f"/v1/workflows/{workflow}"),
            ("DELETE", f"/v1/workflows/{workflow}"),
            ("POST", f"/v1/workflows/{workflow}/runs"),
            ("GET", f"/v1/workflows?after={workflow}"),
            ("GET", f"/v1/runs/{one['id']}"),
            ("GET", f"/v1/runs/{one['id']}/events"),
            ("GET", f"/v1/runs/{one['id']}/output"),
            ("POST", f"/v1/runs/{one['id']}/cancel"),
            ("GET", f"/v1/runs?after={one['id']}"),
        ]
        for method, path in paths:
            body = {"rows": texts(1)} if path.endswith("/runs") else None
            answer = await client.request(method, path, json=body, headers=OTHER)
            assert answer.status_code == 404, path
        for path in ("/v1/workflows", "/v1/runs"):
            assert (await client.get(path, headers=OTHER)).json()["data"] == []
        # The input of another tenant is no input.
        mine = await created(client, key="sk-b")
        path = f"/v1/runs/{one['id']}"
        found = (await client.get(path, headers=headers_of("sk-a"))).json()
        answer = await client.post(
            f"/v1/workflows/{mine}/runs",
            json={"input_file_id": found["output_file_id"]},
            headers=OTHER,
        )
        assert answer.json()["error"]["code"] == "invalid_input_file"
        assert (await client.get(path, headers=headers_of("sk-a"))).json() == found


async def test_ids_are_no_paths(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        names = ("..%2F..%2Fx", "%2e%2e", "run_%00", "wf_", "%ff", "lock", "a" * 500)
        parts = ("", "/events", "/output", "/cancel", "/runs")
        for name, part, kind in product(names, parts, ("runs", "workflows")):
            method = "POST" if part in ("/cancel", "/runs") else "GET"
            body: Any = {"rows": [{}]} if part == "/runs" else None
            answer = await gateway.client.request(method, f"/v1/{kind}/{name}{part}", json=body)
            assert answer.status_code in (404, 405), (kind, name, part)


async def test_templates_cannot_stop_the_gateway(engine: Any, weft: Any) -> None:
    huge = "{% for a in xs %}{% for b in xs %}{% for c in xs %}x{% endfor %}" + "{% endfor %}" * 2
    rows = [{"xs": list(range(2000)), "text": "a" * 1000}]
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        message = await refused(client, flow('format: "{% for i in range(10**9) %}x{% endfor %}"'))
        assert message.startswith("workflow.yaml:5:")
        assert "'range'" in message
        deep = flow(f'format: "{{{{ {"(" * 5000}text{")" * 5000} }}}}"')
        message = await refused(client, deep)
        assert message == "workflow.yaml:5:13: ops.x.format: template: nested too deeply"
        ops = {"a": huge, "b": "{{ 'a' * 10**10 }}", "c": "{{ ((10**64)**64)**64 }}"}
        lines = "".join(
            f'  {name}: {{format: "{template}", on_error: value}}\n'
            for name, template in ops.items()
        )
        text = "weft: 1\ninputs: {xs: list}\nops:\n" + lines + "outputs: {a: a, b: b, c: c}\n"
        one, found = await run(client, text, rows=rows)
        assert one["status"] == "completed"
        for name, word in zip(ops, ("steps", "characters", "bits"), strict=True):
            assert word in found[0][name]["error"]
        # Constant templates are computed when the plan is made.
        constant = "{{ ('a' * 10**6) | replace('a', 'a' * 10**6) }}"
        answer = await create(client, flow(f'format: "{constant}"'))
        assert answer.status_code == 200


async def test_a_process_that_hangs_ends_its_run_only(engine: Any, weft: Any) -> None:
    """The stop of a worker's process stands for a template that no limit finds."""
    settings = {"workflow_stall_s": 3, "batch_calls": 1}
    async with engine(script=chat) as stub, weft(stub, **settings) as gateway:
        client = gateway.client
        gate = asyncio.Event()

        async def hold(wire: Any, request: Any) -> None:
            if request.json["messages"][0]["content"] == "text 1":
                await gate.wait()
            await chat(wire, request)

        stub.script = hold
        one = await begin(client, await created(client), rows=texts(3))
        flows = gateway.parts.offline.flows
        async with asyncio.timeout(60):
            while flows.find(_tenant(gateway), one["id"]).completed < 1:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        flows.runner.live[one["id"]].child._process.send_signal(19)
        body = {"messages": [{"role": "user", "content": "hello"}]}
        assert (await gateway.call(body=body, headers=OTHER)).status_code == 200
        run = await ended(client, one["id"])
        gate.set()
        assert (run["status"], run["error"]["code"]) == ("failed", "process_failed")
        assert "did not react for 3 s" in run["error"]["message"]
        assert [row["row"] for row in await output(client, one["id"])] == [0]


def _tenant(gateway: Any) -> str:
    (tenant,) = {run.tenant for run in gateway.parts.offline.flows.store.unfinished()}
    return str(tenant)


async def test_only_allowed_operators_run(engine: Any, weft: Any, tmp_path: Path) -> None:
    for name in ("shop", "notes"):
        with sqlite3.connect(tmp_path / f"{name}.db") as database:
            database.execute("CREATE TABLE items (name TEXT)")
            database.execute("INSERT INTO items VALUES ('loom')")
        database.close()
    settings = {
        "workflow_connections": f"shop={tmp_path}/shop.db,notes={tmp_path}/notes.db",
        "workflow_writable": "notes",
        "workflow_hosts": "example.org",
    }
    async with engine(script=chat) as stub, weft(stub, **settings) as gateway:
        client = gateway.client
        for operator, words in (
            ("python: os:getcwd", "python operators do not run over HTTP"),
            ("branch: [{python: os:getcwd}]", "python operators do not run over HTTP"),
            ("{loop: {max: 2, until: '{{ true }}'}, body: {y: {python: os:getcwd}}}", "python"),
            ("sql: {query: SELECT 1, connection: shp}", "'shp'; did you mean shop?"),
            ("sql: SELECT 1", "no connection is named 'default'"),
            ("sql: {query: DELETE FROM items, connection: shop, write: true}", "is read-only"),
            ("http: 'http://127.0.0.1/{{ text }}'", "127.0.0.1:80 is not allowed"),
            ("http: 'http://example.com/'", "did you mean example.org:"),
            ("http: 'http://example.org:8000/'", "example.org:8000 is not allowed"),
            ("http: 'http://example.org@10.0.0.1/'", "10.0.0.1:80 is not allowed"),
            ("http: {url: 'http://example.org/', headers: {Host: a}}", "'Host' cannot be set"),
            ("{loop: {until: '{{ true }}'}, body: {y: {format: a}}}", "max"),
        ):
            message = await refused(client, flow(operator))
            assert message.startswith("workflow.yaml:"), message
            assert words in message, message
        one, rows = await run(client, flow(
            "sql: {query: SELECT name FROM items, connection: shop}"), rows=texts(1))  # fmt: skip
        assert rows[0]["x"] == [{"name": "loom"}], one
        queries = ("ATTACH '/tmp/x.db' AS y", "PRAGMA writable_schema=1", "DELETE FROM items")
        rows_of = [{"text": query} for query in queries]
        text = flow("sql: {query: '{{ text }}', connection: shop}")
        _, rows = await run(client, text, rows=rows_of)
        assert all("not a read" in row["error"]["message"] for row in rows)
        insert = "INSERT INTO items VALUES ('x')"
        text = flow(f'sql: {{query: "{insert}", connection: notes, write: true}}')
        await run(client, text, rows=texts(1))
        urls = (
            "http://127.0.0.1:1/", "http://[::1]/", "file:///etc/passwd", "http://a@b@c/",
            f"{stub.url}/v1/models", "http://example.org:22/", "http://2130706433/",
        )  # fmt: skip
        _, rows = await run(client, flow("http: '{{ text }}'"), rows=[{"text": u} for u in urls])
        assert [row["error"]["code"] for row in rows] == ["not_allowed"] * len(urls)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT count(*) FROM items").fetchone() == (1,)
    with sqlite3.connect(tmp_path / "notes.db") as database:
        assert database.execute("SELECT count(*) FROM items").fetchone() == (2,)


async def test_redirects_are_not_followed(engine: Any, weft: Any) -> None:
    async def redirect(wire: Any, request: Any) -> None:
        await wire.plain({}, "302 Found", {"location": "http://127.0.0.1:1/secret"})

    async with engine(script=redirect) as stub:
        async with weft(stub, workflow_hosts=stub.url.removeprefix("http://")) as gateway:
            text = flow(f"http: '{stub.url}/{{{{ text }}}}'")
            _, rows = await run(gateway.client, text, rows=texts(1))
        assert rows[0]["error"]["code"] == "http_302"
        assert len(stub.requests) == 1


async def test_a_full_disk_ends_no_run(engine: Any, weft: Any, monkeypatch: Any) -> None:
    """The database takes no state for a time: the run keeps its slot, and ends afterwards."""
    monkeypatch.setattr("weft_gateway.runs.flow_runner._AGAIN_S", 0.01)
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        workflow = await created(client)
        flows = gateway.parts.offline.flows
        save = flows.store.save
        refused_states: list[str] = []

        def full(one: Any) -> None:
            if one.status.value != "queued" and refused_states.count("completed") < 3:
                refused_states.append(one.status.value)
                raise sqlite3.OperationalError("database or disk is full")
            save(one)

        monkeypatch.setattr(flows.store, "save", full)
        one = await begin(client, workflow, rows=texts(2))
        found = await ended(client, one["id"])
        assert (found["status"], found["row_counts"]["completed"]) == ("completed", 2)
        assert {"in_progress", "completed"} <= set(refused_states)
        assert len(await output(client, one["id"])) == 2
        monkeypatch.setattr(flows.store, "save", _refuse)
        path = f"/v1/workflows/{workflow}/runs"
        answer = await client.post(path, json={"rows": texts(1)}, headers=headers_of("sk-a"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_unavailable")


def _refuse(_: Any) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_sizes_are_limited(engine: Any, weft: Any) -> None:
    settings = {
        "workflow_bytes": 2000, "workflows_per_tenant": 2, "workflow_runs_per_tenant": 2,
        "workflow_input_bytes": 2000, "read_body_bytes": 65_536, "workflow_runs": 1,
    }  # fmt: skip
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        await gate.wait()
        await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub, **settings) as gateway:
        client, mine = gateway.client, headers_of("sk-a")
        assert (await create(client, SAY + "#" * 2000)).status_code == 413
        bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n"
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
        assert "values" in await refused(client, bomb)
        assert "nested too deeply" in await refused(client, "[" * 1900)
        long = await created(client, flow("llm: \"{{ 'a' * 100000 }}{{ text }}\"").replace(
            'llm: "', 'llm: {user: "').replace('}}"', '}}"}'))  # fmt: skip
        workflow = await created(client)
        assert (await create(client)).json()["error"]["code"] == "storage_limit_reached"
        path = f"/v1/workflows/{workflow}/runs"
        answer = await client.post(path, json={"rows": texts(200)}, headers=mine)
        assert answer.status_code == 413
        runs = [await begin(client, workflow, rows=texts(1)) for _ in range(2)]
        answer = await client.post(path, json={"rows": texts(1)}, headers=mine)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_runs")
        assert runs[1]["status"] == "queued"
        shown = await client.post(f"/v1/runs/{runs[1]['id']}/cancel", headers=mine)
        assert shown.json()["status"] == "cancelling"
        gate.set()
        states = [(await ended(client, one["id"]))["status"] for one in runs]
        assert states == ["completed", "cancelled"]
        one = await begin(client, long, rows=texts(1))
        await ended(client, one["id"])
        (row,) = await output(client, one["id"])
        assert row["error"]["code"] == "too_large"


async def test_long_runs_of_a_tenant_leave_a_place_for_others(
    engine: Any, weft: Any, until: Any
) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] == "text 0":
            await gate.wait()
        await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub, workflow_runs=3) as gateway:
        client, live = gateway.client, gateway.parts.offline.flows.runner.live
        workflow = await created(client)
        runs = [await begin(client, workflow, rows=texts(1)) for _ in range(4)]
        await until(lambda: len(stub.requests) == 2)
        mine = await created(client, key="sk-b")
        for _ in range(2):
            one = await begin(client, mine, "sk-b", rows=[{"text": "quick"}])
            assert (await ended(client, one["id"], "sk-b"))["status"] == "completed"
        assert set(live) == {one["id"] for one in runs[:2]}
        gate.set()
        for one in runs:
            assert (await ended(client, one["id"]))["status"] == "completed"


async def test_a_slow_check_delays_no_other_tenant(
    engine: Any, weft: Any, until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("weft_gateway.runs.flow_checkers._CHECK_S", 120.0)
    async with engine(script=chat) as stub, weft(stub, workflow_stall_s=120) as gateway:
        client, checkers = gateway.client, gateway.parts.offline.flows.checkers
        await created(client)
        (child,) = checkers._idle
        # The process stands for one that checks a large workflow.
        child._process.send_signal(signal.SIGSTOP)
        slow = [asyncio.create_task(create(client)) for _ in range(3)]
        await until(lambda: not checkers._idle)
        async with asyncio.timeout(60):
            await created(client, key="sk-b")
        assert not any(one.done() for one in slow)
        child._process.send_signal(signal.SIGCONT)
        assert [(await one).status_code for one in slow] == [200] * 3
        assert len(checkers._made) == 2


async def test_a_check_has_a_time_limit(engine: Any, weft: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("weft_gateway.runs.flow_checkers._CHECK_S", 0.2)
    # Each expression is compiled.
    long = "".join(f"{{{{ text * {number} }}}}" for number in range(5000))
    text = f"weft: 1\ninputs: {{text: str}}\nops:\n  x: {{format: '{long}'}}\noutputs: {{x: x}}\n"
    async with engine(script=chat) as stub, weft(stub) as gateway:
        assert "did not react for 0.2 s" in await refused(gateway.client, text)


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for name, value in (
        ("workflow_connections", "shop"),
        ("workflow_connections", f"shop={tmp_path}/missing.db"),
        ("workflow_hosts", "http://example.org"),
        ("workflow_hosts", "example.org:99999"),
        ("workflow_hosts", "*"),
        ("workflow_hosts", ","),
    ):
        with pytest.raises(SettingsError, match=f"WEFT_{name.upper()}"):
            load(**{name: value})
    hosts = load(workflow_hosts="Example.org, [::1]:8000, 10.0.0.1").allowed_hosts
    assert hosts == {
        "example.org:80", "example.org:443", "[::1]:8000", "10.0.0.1:80", "10.0.0.1:443"
    }  # fmt: skip
