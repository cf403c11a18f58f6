"""Answers of tools that are no plain JSON of limited size fail their rows."""

from __future__ import annotations

import gzip
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.scripted_server import scripted
from weft_run.io.errors import CallFailed
from weft_run.io.tools import Tools
from weft_run.language.requests import HttpRequest, PythonRequest, SqlRequest
from weft_run.plan.commands import Failure

pytestmark = pytest.mark.anyio


async def failure(request: Any, **options: Any) -> Failure:
    tools = Tools(**options)
    with pytest.raises(CallFailed) as error:
        await tools.run(request, 1)
    await tools.aclose()
    return error.value.failure


@pytest.mark.parametrize("coding", ["gzip", "gzip, gzip", "zstd", "br", " GZIP"])
async def test_compressed_answers_are_refused(coding: str) -> None:
    with scripted(lambda _: (200, {"a": 1}, {"content-encoding": coding})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("GET", server.url), hosts=[host])
        assert (found.code, coding.strip().lower() in found.message) == ("compressed", True)
        assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_a_compressed_error_keeps_its_status() -> None:
    body = gzip.compress(b"no").decode("latin-1")
    with scripted(lambda _: (404, body, {"content-encoding": "gzip"})) as server:
        host = server.url.removeprefix("http://")
        found = await failure(HttpRequest("GET", server.url), hosts=[host])
        assert (found.code, found.message) == ("http_404", "Not Found")


async def test_headers_of_a_request_replace_the_usual_ones() -> None:
    headers = {"Content-Type": "text/x", "Accept-Encoding": "br"}
    with scripted(lambda _: (200, {}, {"content-encoding": "identity"})) as server:
        tools = Tools(hosts=[server.url.removeprefix("http://")])
        assert (await tools.run(HttpRequest("POST", server.url, headers, {}), 1)).value == {}
        await tools.aclose()
        found = server.asked[0].headers
        assert (found["content-type"], found["accept-encoding"]) == ("text/x", "br")


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


async def test_deep_answers_are_refused() -> None:
    answers = iter([nested(254), nested(101, "]]"), nested(100, "[[")])
    with scripted(lambda _: (200, next(answers))) as server:
        options: dict[str, Any] = {"hosts": [server.url.removeprefix("http://")]}
        for _ in range(2):
            found = await failure(HttpRequest("GET", server.url), **options)
            assert (found.code, "at most 100 levels" in found.message) == ("too_deep", True)
        tools = Tools(**options)
        assert (await tools.run(HttpRequest("GET", server.url), 1)).value == nested(100, "[[")
        await tools.aclose()


@dataclass
class Point:
    x: float | None


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (float("nan"), "not_json"),
        ([1, {"a": (None, float("inf"))}], "not_json"),
        ({"a": -float("inf")}, "not_json"),
        (Point(float("nan")), "not_json"),
        (nested(101), "too_deep"),
        (nested(300), "not_json"),
    ],
)
async def test_values_of_functions_that_are_not_json(
    monkeypatch: pytest.MonkeyPatch, value: Any, code: str
) -> None:
    module: Any = ModuleType("my_ops")
    module.give = lambda: value
    monkeypatch.setitem(sys.modules, "my_ops", module)
    assert (await failure(PythonRequest("my_ops:give"))).code == code


async def test_values_with_null_are_json(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("my_ops")
    module.give = lambda: [None, {"a": "null", "b": 1.5}, Point(None)]
    monkeypatch.setitem(sys.modules, "my_ops", module)
    tools = Tools()
    found = await tools.run(PythonRequest("my_ops:give"), 1)
    assert found.value == [None, {"a": "null", "b": 1.5}, {"x": None}]
    await tools.aclose()


async def test_an_infinite_number_of_a_query_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "empty.db"
    file.touch()
    found = await failure(SqlRequest("x", "SELECT 9e999 AS n, NULL AS m"), connections={"x": file})
    assert found.code == "not_json"


@pytest.mark.parametrize("url", ["nope", "", "/path", "//example.org/", "http://", "ftp://a.org/"])
async def test_a_text_that_is_no_absolute_url_is_named(url: str) -> None:
    found = await failure(HttpRequest("GET", url), hosts=["example.org"])
    assert found[:2] == ("not_allowed", f"{url!r} is no absolute http or https URL")


@pytest.mark.parametrize("port", ["65536", "70000", "99999999999", "-1"])
async def test_a_port_that_does_not_exist_fails_its_row(port: str) -> None:
    url = f"http://127.0.0.1:{port}/"
    found = await failure(HttpRequest("GET", url), hosts=["127.0.0.1"])
    assert (found.code, found.attempts) == ("not_allowed", 1)
