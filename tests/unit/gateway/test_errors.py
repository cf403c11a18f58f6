"""Errors in the formats of the APIs."""

import json
import re
from pathlib import Path

import pytest
import weft_gateway
from weft_gateway import errors
from weft_gateway.errors import ApiError


def test_openai_error_has_all_four_members() -> None:
    body = json.loads(errors.model_not_found("x").body())
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["code"] == "model_not_found"
    assert body["error"]["type"] == "invalid_request_error"
    assert "`x`" in body["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (502, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_anthropic_error_has_its_types(status: int, kind: str) -> None:
    body = json.loads(ApiError(status, "code", "text").body("anthropic", b"req-1"))
    # Nothing that Anthropic's API does not have.
    inner = {"type": kind, "message": "text"}
    assert body == {"type": "error", "error": inner, "request_id": "req-1"}


def test_server_errors_have_their_type() -> None:
    assert json.loads(ApiError(502, "c", "m").body())["error"]["type"] == "server_error"


def test_error_events_are_complete_frames() -> None:
    error = ApiError(502, "replica_closed", "gone\nnow")
    assert error.event().startswith(b'data: {"error":')
    assert error.event("anthropic").startswith(b'event: error\ndata: {"type":"error"')
    assert error.event().count(b"\n") == 2
    assert error.event().endswith(b"\n\n")


def test_failed_response_stream_ends_like_openais() -> None:
    frames = (
        ApiError(502, "replica_closed", "gone\nnow").response_events("resp_1", 4).split(b"\n\n")
    )
    assert frames.pop() == b""
    (error, failed) = (json.loads(frame.partition(b"data: ")[2]) for frame in frames)
    names = [frame.partition(b"\n")[0] for frame in frames]
    assert names == [b"event: error", b"event: response.failed"]
    assert (error["type"], error["sequence_number"]) == ("error", 4)
    # OpenAI's Python client and the AI SDK read the inner object, OpenAI's types the outer.
    assert error["error"]["message"] == error["message"] == "gone\nnow"
    assert (error["error"]["type"], error["error"]["code"]) == ("server_error", "replica_closed")
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 5)
    assert failed["response"]["id"] == "resp_1"
    assert failed["response"]["status"] == "failed"
    assert failed["response"]["error"] == {"code": "replica_closed", "message": "gone\nnow"}


def test_retryable_errors_have_retry_after() -> None:
    error = errors.of("no_replica", retry_after_s=7)
    assert (error.status, error.code) == (503, "no_replica")
    assert (b"retry-after", b"7") in error.headers


def test_the_table_has_exactly_the_codes_in_use() -> None:
    used = {
        code
        for file in Path(weft_gateway.__file__).parent.rglob("*.py")
        for code in re.findall(r'errors\.of\(\s*"(\w+)"', file.read_text())
    }
    assert used == errors._ERRORS.keys()


def test_wrong_method_lists_the_allowed_ones() -> None:
    assert (b"allow", b"POST") in errors.wrong_method("GET", "/v1/x", "POST").headers


def test_long_names_are_truncated_in_errors() -> None:
    assert len(errors.model_not_found("m" * 100_000).message) < 500
