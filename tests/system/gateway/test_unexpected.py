"""Exceptions that nobody foresaw: an answer in the API's shape, and a line that finds them."""

import logging
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]


class Broken(RuntimeError):
    """What nobody foresaw."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken("by hand")


@pytest.mark.parametrize(
    ("path", "part", "method"),
    [
        ("/v1/chat/completions", "weft_gateway.calls.engines.build_engine_request", "POST"),
        ("/v1/messages", "weft_gateway.calls.engines.build_engine_request", "POST"),
        ("/v1/sessions", "weft_gateway.api.sessions.session_json", "POST"),
        ("/health", "weft_gateway.api.status.replica_json", "GET"),
        ("/tokenize", "weft_gateway.api.passthrough.for_engine", "POST"),
    ],
)
@pytest.mark.parametrize("given", ["mine-1", None])
async def test_an_unforeseen_exception_is_a_json_500_that_the_log_explains(
    path: str,
    part: str,
    method: str,
    given: str | None,
    engine: Any,
    weft: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = {"x-request-id": given} if given else {}
    async with engine() as stub, weft(stub) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(part, broken)
            json = {"model": "tiny"} if method == "POST" else None
            got = await gateway.client.request(method, path, json=json, headers=headers)
        assert got.status_code == 500
        assert got.headers["content-type"] == "application/json"
        error = got.json()["error"]
        assert error["code"] == "internal_error"
        assert "by hand" not in got.text
        shape = "api_error" if path == "/v1/messages" else "server_error"
        assert error["type"] == shape
        request_id = got.headers["x-request-id"]
        assert request_id == given or (given is None and request_id.startswith("req-"))
        (told,) = [r for r in caplog.records if r.exc_info and r.exc_info[0] is Broken]
        assert (told.levelno, request_id in told.getMessage()) == (logging.ERROR, True)
        metrics = (await gateway.client.get("/metrics")).text
        assert 'code="internal_error"} 1.0' in metrics
        # The connection and the gateway live on, and nothing is left open.
        assert (await gateway.call()).status_code == 200


async def test_an_exception_after_the_answer_has_begun_breaks_it_off(
    engine: Any, weft: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import httpx

    async def script(wire: Any, request: Any) -> None:
        await wire.stream(b"data: 1\n\n", b"data: [DONE]\n\n")

    async with engine(script=script) as stub, weft(stub) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr("weft_gateway.calls.relay.StreamFilter.finish", broken)
            with pytest.raises(httpx.RemoteProtocolError):
                await gateway.call(body={"stream": True})
        assert [r for r in caplog.records if r.exc_info and r.exc_info[0] is Broken]
        assert (await gateway.call(body={"stream": True})).status_code == 200
