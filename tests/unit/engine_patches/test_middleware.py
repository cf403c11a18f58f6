"""The report in the answer: a header on plain ones, a comment before the last frame of streams."""

from __future__ import annotations

import types

import anyio
import pytest
from weft_engine.middleware import ReportMiddleware
from weft_engine.wire import CallReport

REPORT = CallReport("c1", service_s=2.0)
COMMENT = b": weft-report " + REPORT.to_json().encode() + b"\n\n"


class Hub:
    async def report(self, call, timeout_s):
        return REPORT if call == "c1" else None


def answer(*messages, path="/v1/chat/completions", call=b"c1"):
    """Play an application's messages through the middleware; what the client gets."""
    sent = []

    async def app(scope, receive, send):
        for message in messages:
            await send(dict(message))

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "path": path,
        "headers": [(b"x-weft-call", call)] if call else [],
        "app": types.SimpleNamespace(state=types.SimpleNamespace(weft_hub=Hub())),
    }
    anyio.run(ReportMiddleware(app), scope, None, send)
    return sent


def start(kind=b"application/json", status=200):
    return {"type": "http.response.start", "status": status, "headers": [(b"content-type", kind)]}


def body(data, more=False):
    return {"type": "http.response.body", "body": data, "more_body": more}


def test_a_plain_answer_gets_a_header():
    sent = answer(start(), body(b"{}"))
    assert (b"x-weft-report", REPORT.to_json().encode()) in sent[0]["headers"]
    assert sent[1]["body"] == b"{}"


@pytest.mark.parametrize(
    "last",
    [
        b"data: [DONE]\n\n",
        b"event: message_stop\ndata: {}\n\n",
        b"event: response.completed\ndata: {}\n\n",
    ],
)
def test_a_stream_gets_a_comment_before_its_last_frame(last):
    sent = answer(
        start(b"text/event-stream; charset=utf-8"), body(b"data: {}\n\n", True), body(last, True),
        body(b""),
    )  # fmt: skip
    assert [m["body"] for m in sent[1:]] == [b"data: {}\n\n", COMMENT, last, b""]


def test_a_stream_without_a_known_end_gets_it_at_the_end():
    sent = answer(start(b"text/event-stream"), body(b"data: {}\n\n", True), body(b""))
    assert [m["body"] for m in sent[1:]] == [b"data: {}\n\n", COMMENT, b""]


@pytest.mark.parametrize(
    "options", [{"path": "/v1/models"}, {"call": b""}, {"call": b"unknown"}], ids=str
)
def test_other_answers_are_left_alone(options):
    messages = [start(), body(b"{}")]
    assert answer(*messages, **options) == messages


def test_an_error_is_left_alone():
    messages = [start(status=400), body(b"{}")]
    assert answer(*messages) == messages
