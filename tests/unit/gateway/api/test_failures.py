"""Responses for exceptions, without a server."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from weft_gateway.api.failures import Failures
from weft_gateway.errors import ApiError

pytestmark = pytest.mark.anyio

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/a\nb", "headers": []}


class Sent(list[dict[str, Any]]):
    """Records one response. begun: a response has started already."""

    def __init__(self, begun: bool = False) -> None:
        self._begun = begun

    async def __call__(self, message: Any) -> None:
        if self._begun:
            raise RuntimeError("the answer has begun")
        self.append(message)


async def respond(send: Sent, error: Exception, **options: Any) -> list[str]:
    """Return the counted error codes."""
    counted: list[str] = []
    failures = Failures(counted.append, lambda: "call-abc-1", 1)
    await failures.respond(SCOPE | options, send, error)
    return counted


async def test_api_error_becomes_a_response() -> None:
    send = Sent()
    error = ApiError(418, "teapot", "no coffee", headers=((b"retry-after", b"2"),))
    counted = await respond(send, error, headers=[(b"x-request-id", b"mine")])
    assert send[0]["status"] == 418
    headers = dict(send[0]["headers"])
    assert (headers[b"retry-after"], headers[b"x-request-id"]) == (b"2", b"mine")
    assert json.loads(send[1]["body"])["error"]["code"] == "teapot"
    assert counted == ["teapot"]


async def test_unexpected_error_appears_only_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    send = Sent()
    counted = await respond(send, KeyError("secret"))
    assert send[0]["status"] == 500
    assert dict(send[0]["headers"])[b"x-request-id"] == b"req-abc-1"
    assert b"secret" not in send[1]["body"]
    assert counted == ["internal_error"]
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.getMessage() == "request req-abc-1, GET /a\\nb: unexpected KeyError"
    assert record.exc_info is not None


async def test_error_after_the_response_started_is_raised() -> None:
    with pytest.raises(KeyError, match="secret"):
        await respond(Sent(begun=True), KeyError("secret"))
