"""Clients that try to break the gateway with runs, or to reach what is not theirs."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.http_runs import (
    SAY,
    begin,
    chat,
    create,
    ended,
    headers_of,
    output,
    refused,
    run,
    texts,
)
from weft_gateway.config import SettingsError, load
from weft_gateway.runs import runs as runs_module

pytestmark = [pytest.mark.system, pytest.mark.anyio]

KEYS = ("sk-a", "sk-b")
OTHER = headers_of("sk-b")


def flow(operator: str, inputs: str = "{text: str}") -> str:
    """Return a workflow with one operator, in line 5."""
    return f"weft: 1\ninputs: {inputs}\nops:\n  x:\n    {operator}\noutputs: {{x: x}}\n"


async def test_a_tenant_reaches_nothing_of_another(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        one = await begin(client, rows=texts(2))
        await ended(client, one["id"])
        for method, path in (
            ("GET", f"/v1/runs/{one['id']}"),
            ("GET", f"/v1/runs/{one['id']}/events"),
            ("GET", f"/v1/runs/{one['id']}/output"),
            ("POST", f"/v1/runs/{one['id']}/cancel"),
            ("GET", f"/v1/runs?after={one['id']}"),
        ):
            answer = await client.request(method, path, headers=OTHER)
            assert answer.status_code == 404, path
        assert (await client.get("/v1/runs", headers=OTHER)).json()["data"] == []
        # The output of another tenant is no input.
        path = f"/v1/runs/{one['id']}"
        found = (await client.get(path, headers=headers_of("sk-a"))).json()
        answer = await create(client, SAY, "sk-b", input_file_id=found["output_file_id"])
        assert answer.json()["error"]["code"] == "invalid_input_file"
        assert (await client.get(path, headers=headers_of("sk-a"))).json() == found


async def test_the_token_of_a_run_makes_only_its_calls(engine: Any, weft: Any, until: Any) -> None:
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"] and request.json["messages"][0]["content"] == "text 0":
            await gate.wait()
        await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client = gateway.client
        one = await begin(client, rows=texts(1))
        await until(lambda: len(stub.requests) == 1)
        runs = gateway.parts.runs
        (token,) = runs.tokens._runs
        (group,) = runs._tasks
        pid = group.process._process.pid
        # No other process of this machine sees it.
        for name in ("cmdline", "environ"):
            assert token not in _told(pid, name)
        assert b"sk-a" not in _told(pid, "environ")
        key = headers_of(token.decode())
        own, other = ({"x-weft-program": name} for name in (one["id"], "another"))
        body = {"messages": [{"role": "user", "content": "hello"}]}
        assert (await gateway.call(body=body, headers=key | own)).status_code == 200
        for headers in (key, key | other, key | {"x-weft-program": f"{one['id']}x"}):
            assert (await gateway.call(body=body, headers=headers)).status_code == 401
        path = "/p/another/v1/chat/completions"
        assert (await gateway.call(path, body=body, headers=key | own)).status_code == 401
        for method, path in (
            ("GET", "/v1/runs"), ("GET", f"/v1/runs/{one['id']}"), ("GET", "/v1/files"),
            ("POST", "/v1/runs"), ("GET", "/v1/sessions"), ("DELETE", "/v1/sessions/another"),
        ):  # fmt: skip
            answer = await client.request(method, path, headers=key | own)
            assert answer.status_code == 401, path
        gate.set()
        assert (await ended(client, one["id"]))["status"] == "completed"
        await until(lambda: not runs._tasks)
        assert (await gateway.call(body=body, headers=key | own)).status_code == 401


def _told(pid: int, name: str) -> bytes:
    """Return what the system tells other processes about one."""
    return Path(f"/proc/{pid}/{name}").read_bytes()


async def test_ids_are_no_paths(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:
        names = ("..%2F..%2Fx", "%2e%2e", "run_%00", "wf_", "%ff", "lock", "a" * 500)
        for name, part in product(names, ("", "/events", "/output", "/cancel")):
            method = "POST" if part == "/cancel" else "GET"
            answer = await gateway.client.request(method, f"/v1/runs/{name}{part}")
            assert answer.status_code in (404, 405), (name, part)


async def test_templates_end_by_the_limits_of_their_process(
    engine: Any, weft: Any, monkeypatch: Any
) -> None:
    """Other runs, and calls, go on meanwhile."""
    monkeypatch.setattr(runs_module, "MEMORY_BYTES", 400 << 20)
    monkeypatch.setattr(runs_module, "STEP_S", 2)
    loops = "{% for a in xs %}" * 5 + "{% if not a %}{% endif %}" + "{% endfor %}" * 5
    bombs = {
        "loop": (loops, "SIGXCPU"),
        "power": ("{{ 3 ** (10**9) % 7 }}", "SIGXCPU"),
        "text": ("{{ xs | length * ('a' * 10**10) }}", "memory"),
        "list": ("{% for a in [0] * 10**10 %}x{% endfor %}", "memory"),
        "width": ("{{ 'a'.center(10**10) }}", "memory"),
        "filter": ("{{ 'a' | center(10**10) }}", "memory"),
        "nest": ("{{ ('a' * 10**6) | replace('a', 'a' * 10**6) }}", "memory"),
        "large": ("{{ 'a' * (xs | length) * 200000 }}", "characters"),
    }
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client = gateway.client
        begun = {
            name: await begin(client, flow(f"format: \"{text}\"", "{xs: list}"),
                              rows=[{"xs": list(range(200))}])
            for name, (text, _) in bombs.items()
        }  # fmt: skip
        other = await begin(client, SAY, "sk-b", rows=texts(3))
        body = {"messages": [{"role": "user", "content": "hello"}]}
        assert (await gateway.call(body=body, headers=OTHER)).status_code == 200
        assert (await ended(client, other["id"], "sk-b"))["status"] == "completed"
        for name, one in begun.items():
            found = await ended(client, one["id"])
            message = (found["error"] or {}).get("message", "")
            if not message:
                (row,) = await output(client, one["id"])
                message = (row["error"] or {}).get("message", "")
            assert bombs[name][1] in message, (name, message)
        assert (await gateway.call(body=body, headers=OTHER)).status_code == 200


def many(templates: Any) -> str:
    """Return a workflow with an operator for each template."""
    ops = "".join(
        f"  x{number}: {{format: {json.dumps(text)}, on_error: value}}\n"
        for number, text in enumerate(templates)
    )
    outputs = ", ".join(f"x{number}: x{number}" for number in range(len(templates)))
    return f"weft: 1\ninputs: {{text: str}}\nops:\n{ops}outputs: {{{outputs}}}\n"


async def test_templates_reach_no_internals(engine: Any, weft: Any) -> None:
    invalid = {
        "{{ self.__init__ }}": "'self' has no value",
        "{{ range(10**9) }}": "no function is named 'range'",
        "{{ text | random }}": "no filter is named 'random'",
        "{% include '/etc/passwd' %}": "'include' is not allowed",
        "{% set x = 1 %}": "'set' is not allowed",
        f"{{{{ {'(' * 5000}text{')' * 5000} }}}}": "nested too deeply",
    }
    unsafe = (
        "{{ text.__class__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '{0.__class__}'.format(text) }}",
        "{{ text | attr('__class__') }}",
        "{{ [].append.__self__ }}",
        "{{ text | map(attribute='__class__') | list }}",
        "{% for a in [1] %}{{ loop._iterable.__class__ }}{% endfor %}",
        "{% for a in [[1]] recursive %}{{ loop.__call__.__globals__ }}{% endfor %}",
    )
    async with engine() as stub, weft(stub) as gateway:
        message = await refused(gateway.client, many(invalid))
        for number, words in enumerate(invalid.values()):
            (line,) = (one for one in message.splitlines() if f"ops.x{number}." in one)
            assert words in line
        for name in ("lipsum", "cycler"):
            message = await refused(gateway.client, many([f"{{{{ {name}.__globals__ }}}}"]))
            assert f"'{name}'" in message
        _, (row,) = await run(gateway.client, many(unsafe), rows=texts(1))
        for number, template in enumerate(unsafe):
            assert "is unsafe" in row[f"x{number}"]["error"], template


async def test_only_allowed_operators_run(engine: Any, weft: Any, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE items (name TEXT)")
        database.execute("INSERT INTO items VALUES ('loom')")
    database.close()
    settings = {"run_databases": f"shop={tmp_path}/shop.db", "run_hosts": "example.org"}
    async with engine(script=chat) as stub, weft(stub, **settings) as gateway:
        client = gateway.client
        wrong = (
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
        )
        begun = [await begin(client, flow(operator), rows=texts(1)) for operator, _ in wrong]
        for one, (_, words) in zip(begun, wrong, strict=True):
            error = (await ended(client, one["id"]))["error"]
            assert error["code"] == "invalid_workflow"
            assert error["message"].startswith("workflow.yaml:"), error
            assert words in error["message"], error
        one, rows = await run(client, flow(
            "sql: {query: SELECT name FROM items, connection: shop}"), rows=texts(1))  # fmt: skip
        assert rows[0]["x"] == [{"name": "loom"}], one
        queries = (
            f"ATTACH '{tmp_path}/x.db' AS y", "PRAGMA writable_schema=1", "DELETE FROM items",
            f"VACUUM INTO '{tmp_path}/x.db'", "SELECT load_extension('/tmp/x.so')",
            "PRAGMA database_list", "SELECT fts3_tokenizer('simple')",
        )  # fmt: skip
        text = flow("sql: {query: '{{ text }}', connection: shop}")
        _, rows = await run(client, text, rows=[{"text": query} for query in queries])
        assert all("not allowed" in row["error"]["message"] for row in rows), rows
        urls = (
            "http://127.0.0.1:1/", "http://[::1]/", "file:///etc/passwd", "http://a@b@c/",
            f"{stub.url}/v1/models", "http://example.org:22/", "http://2130706433/", gateway.url,
        )  # fmt: skip
        _, rows = await run(client, flow("http: '{{ text }}'"), rows=[{"text": u} for u in urls])
        assert [row["error"]["code"] for row in rows] == ["not_allowed"] * len(urls)
    with sqlite3.connect(tmp_path / "shop.db") as database:
        assert database.execute("SELECT count(*) FROM items").fetchone() == (1,)
    assert not (tmp_path / "x.db").exists()


async def test_redirects_are_not_followed(engine: Any, weft: Any) -> None:
    async def redirect(wire: Any, request: Any) -> None:
        await wire.plain({}, "302 Found", {"location": "http://127.0.0.1:1/secret"})

    async with engine(script=redirect) as stub:
        async with weft(stub, run_hosts=stub.url.removeprefix("http://")) as gateway:
            text = flow(f"http: '{stub.url}/{{{{ text }}}}'")
            _, rows = await run(gateway.client, text, rows=texts(1))
        assert rows[0]["error"]["code"] == "http_302"
        assert len(stub.requests) == 1


async def test_a_full_disk_ends_no_run(engine: Any, weft: Any, monkeypatch: Any) -> None:
    """The database takes no state for a time: the run ends afterwards."""
    monkeypatch.setattr(runs_module, "AGAIN_S", 0.01)
    async with engine(script=chat) as stub, weft(stub) as gateway:
        client, store = gateway.client, gateway.parts.runs.store
        save = store.save
        refused_states: list[str] = []

        def full(one: Any) -> None:
            if one.status.value != "queued" and refused_states.count("completed") < 3:
                refused_states.append(one.status.value)
                raise sqlite3.OperationalError("database or disk is full")
            save(one)

        monkeypatch.setattr(store, "save", full)
        found, rows = await run(client, rows=texts(2))
        assert (found["status"], found["row_counts"]["completed"]) == ("completed", 2)
        assert {"in_progress", "completed"} <= set(refused_states)
        assert len(rows) == 2
        monkeypatch.setattr(store, "save", _refuse)
        answer = await create(client, rows=texts(1))
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "storage_unavailable")


async def test_a_run_whose_disk_fails_for_long_gives_up_its_place(
    engine: Any, weft: Any, monkeypatch: Any
) -> None:
    def broken(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(runs_module, "AGAIN_S", 0.01)
    monkeypatch.setattr(runs_module.Runs, "_join", broken)
    async with engine(script=chat) as stub, weft(stub) as gateway:
        begun = await begin(gateway.client, rows=texts(1))
        found = await ended(gateway.client, begun["id"])
        assert (found["status"], found["error"]["code"]) == ("failed", "storage_failed")
        monkeypatch.undo()
        found, _ = await run(gateway.client, rows=texts(1))
        assert found["status"] == "completed"


def _refuse(_: Any) -> None:
    raise sqlite3.OperationalError("database or disk is full")


async def test_results_have_a_limit(engine: Any, weft: Any, monkeypatch: Any) -> None:
    """A run stops when its results have the bytes that its tenant may store."""
    text = flow("format: \"{{ text }}{{ 'a' * 1000000 }}\"")
    async with engine() as stub, weft(stub, file_bytes_per_tenant=1 << 20) as gateway:
        found, rows = await run(gateway.client, text, rows=texts(200))
        assert (found["status"], found["error"]["code"]) == ("stopped", "storage_limit_reached")
        assert 0 < len(rows) < 200
        answer = await create(gateway.client, rows=texts(1))
        assert answer.json()["error"]["code"] == "storage_limit_reached"


async def test_sizes_are_limited(engine: Any, weft: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(runs_module, "RUNS_PER_TENANT", 2)
    monkeypatch.setattr(runs_module, "PROCESSES", 1)
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        await gate.wait()
        await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client, mine = gateway.client, headers_of("sk-a")
        bomb = "a: &a [x,x,x,x,x,x,x,x]\n" + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 8)}]\n"
            for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
        assert "values" in await refused(client, bomb)
        assert "nested too deeply" in await refused(client, "[" * 1900)
        assert (await create(client, rows=[{"text": "x" * 2_000_000}])).status_code == 413
        runs = [await begin(client, rows=texts(1)) for _ in range(2)]
        answer = await create(client, rows=texts(1))
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_many_runs")
        shown = await client.post(f"/v1/runs/{runs[1]['id']}/cancel", headers=mine)
        assert shown.json()["status"] in ("cancelling", "cancelled")
        # It does not wait for a place.
        assert (await ended(client, runs[1]["id"]))["status"] == "cancelled"
        gate.set()
        assert (await ended(client, runs[0]["id"]))["status"] == "completed"


async def test_long_runs_of_a_tenant_leave_a_place_for_others(
    engine: Any, weft: Any, until: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(runs_module, "PROCESSES", 3)
    gate = asyncio.Event()

    async def hold(wire: Any, request: Any) -> None:
        if request.json["messages"][0]["content"] == "text 0":
            await gate.wait()
        await chat(wire, request)

    async with engine(script=hold) as stub, weft(stub) as gateway:
        client = gateway.client
        runs = [await begin(client, rows=texts(1)) for _ in range(4)]
        await until(lambda: len(stub.requests) == 2)
        for _ in range(2):
            one = await begin(client, SAY, "sk-b", rows=[{"text": "quick"}])
            assert (await ended(client, one["id"], "sk-b"))["status"] == "completed"
        assert len(gateway.parts.runs._tasks) == 2
        gate.set()
        for one in runs:
            assert (await ended(client, one["id"]))["status"] == "completed"


def test_wrong_settings_are_refused(tmp_path: Path) -> None:
    for name, value in (
        ("run_databases", "shop"),
        ("run_databases", f"shop={tmp_path}/missing.db"),
        ("run_hosts", "http://example.org"),
        ("run_hosts", "example.org:99999"),
        ("run_hosts", "*"),
        ("run_hosts", ","),
    ):
        with pytest.raises(SettingsError, match=f"WEFT_{name.upper()}"):
            load(**{name: value})
    hosts = load(run_hosts="Example.org, [::1]:8000, 10.0.0.1").allowed_hosts
    assert hosts == {
        "example.org:80", "example.org:443", "[::1]:8000", "10.0.0.1:80", "10.0.0.1:443"
    }  # fmt: skip
