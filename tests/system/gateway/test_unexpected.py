"""Unexpected exceptions give an error in the API's format, and the log has the details."""

import logging
from typing import Any

import pytest

pytestmark = [pytest.mark.system, pytest.mark.anyio]


class Broken(RuntimeError):
    """An unexpected exception."""


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
@pytest.mark.parametrize("sent_id", ["mine-1", None])
async def test_an_unexpected_exception_is_a_logged_json_500(
    path: str,
    part: str,
    method: str,
    sent_id: str | None,
    engine: Any,
    weft: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    headers = {"x-request-id": sent_id} if sent_id else {}
    async with engine() as stub, weft(stub) as gateway:
        with monkeypatch.context() as patch:
            patch.setattr(part, broken)
            body = {} if path == "/v1/sessions" else {"model": "tiny"}
            json = body if method == "POST" else None
            got = await gateway.client.request(method, path, json=json, headers=headers)
        assert got.status_code == 500
        assert got.headers["content-type"] == "application/json"
        error = got.json()["error"]
        assert error.get("code") == (None if path == "/v1/messages" else "internal_error")
        assert "by hand" not in got.text
        error_type = "api_error" if path == "/v1/messages" else "server_error"
        assert error["type"] == error_type
        request_id = got.headers["x-request-id"]
        assert request_id == sent_id or (sent_id is None and request_id.startswith("req-"))
        (record,) = [r for r in caplog.records if r.exc_info and r.exc_info[0] is Broken]
        assert (record.levelno, request_id in record.getMessage()) == (logging.ERROR, True)
        metrics = (await gateway.client.get("/metrics")).text
        assert 'code="internal_error"} 1.0' in metrics
        # The connection and the gateway stay usable, and no call stays open.
        assert (await gateway.call()).status_code == 200


async def test_an_exception_during_an_answer_aborts_it(
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
