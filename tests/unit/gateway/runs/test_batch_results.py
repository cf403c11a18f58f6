"""Lines of results, and what a later run reads from them."""

from __future__ import annotations

import json

import pytest
from weft_gateway.runs.batch_results import (
    Answer,
    checked,
)
from weft_gateway.runs.records import Api


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (Answer(200, b'{"a": 1}'), 200, {"a": 1}),
        (Answer(200, b'{\n "a": "\\n"\n}\n'), 200, {"a": "\n"}),
        (Answer(200, b"{a}"), 502, None),
        (Answer(200, b""), 502, None),
    ],
)
def test_a_body_fits_into_a_line(api: Api, answer: Answer, status: int, body: object) -> None:
    found = checked(api, answer)
    assert found.status == status
    assert b"\n" not in found.body
    read = json.loads(found.body)
    assert read == body if body is not None else "error" in read
    assert ("type" in read) is (body is None and api is Api.ANTHROPIC)
