"""The routes under `/weft` of an engine's API server."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from weft_engine.endpoints import SECRET_HEADER, SECRET_VARIABLE, WeftEndpoints
from weft_engine.report_server import EngineLinkError
from weft_engine.wire import CallReport


class Reports:
    """A report server that knows one call, with one engine core."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.error = ""

    async def report(self, call: str, timeout_s: float) -> CallReport | None:
        return CallReport(call, queue_path=(0, 1)) if call == "known" else None

    async def command(self, message: dict[str, Any]) -> list[dict[str, Any]]:
        if self.error:
            raise EngineLinkError(self.error)
        self.messages.append(message)
        return [{"accepted": True}]


@pytest.fixture
def reports() -> Reports:
    return Reports()


@pytest.fixture
def client(reports: Reports) -> TestClient:
    app = FastAPI()
    WeftEndpoints().attach_router(app)
    app.state.weft_hub = reports
    return TestClient(app)


def refused(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return answer.status_code, error["code"]


def test_the_secret_is_checked_on_every_route(client, monkeypatch):
    monkeypatch.setenv(SECRET_VARIABLE, "s")
    for method, path in (("GET", "state"), ("GET", "calls/c"), ("POST", "policy"), ("POST", "kv")):
        assert refused(client.request(method, f"/weft/{path}")) == (403, "bad_secret")
    assert client.get("/weft/state", headers={SECRET_HEADER: "s"}).status_code == 200


def test_an_engine_without_the_channel_is_named(client):
    client.app.state.weft_hub = None
    assert refused(client.get("/weft/state")) == (503, "no_channel")


def test_a_report_is_served_with_all_its_fields(client):
    answer = client.get("/weft/calls/known")
    assert CallReport.from_json(answer.content) == CallReport("known", queue_path=(0, 1))
    assert refused(client.get("/weft/calls/other")) == (404, "unknown_call")


def test_commands_reach_the_engine_cores(client, reports):
    assert client.post("/weft/policy", json={"policy": "fcfs"}).json() == {
        "engines": [{"accepted": True}]
    }
    client.post("/weft/kv", json={"action": "release", "program": "p"})
    policy, kv = reports.messages
    assert policy == {"policy": "fcfs", "reset_cache": False, "options": {}}
    assert (kv["do"], kv["kv"]["action"], kv["kv"]["program"]) == ("kv", "release", "p")


def test_invalid_bodies_and_missing_engines_are_refused(client, reports):
    assert refused(client.post("/weft/policy", content=b"[]")) == (400, "bad_json")
    assert refused(client.post("/weft/policy", json={"options": 3})) == (400, "bad_json")
    assert refused(client.post("/weft/kv", json={"action": "burn"})) == (400, "bad_command")
    reports.error = "no engine core"
    assert refused(client.get("/weft/state")) == (503, "no_engine")
    assert refused(client.post("/weft/policy", json={"policy": "x"})) == (400, "bad_command")
    command = {"action": "release", "program": "p"}
    assert refused(client.post("/weft/kv", json=command)) == (503, "no_engine")
