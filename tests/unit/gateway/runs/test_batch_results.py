"""Lines of results, and what a later run reads from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft_gateway.runs.batch_input import read_results
from weft_gateway.runs.batch_results import (
    CANCELLED,
    EXPIRED,
    Answer,
    Kind,
    checked,
    kind_of,
    result_line,
    unsent_line,
)
from weft_gateway.runs.batch_store import Api

NAMES = ("row-1", 'a"b', "\u2028 \n", '","response":{"status_code":200')


@pytest.mark.parametrize("api", Api)
@pytest.mark.parametrize("name", NAMES)
def test_a_line_says_what_became_of_its_request(api: Api, name: str) -> None:
    good = result_line(api, name, "1", Answer(200, b'{"id": 1}', "req-1"))
    failed = result_line(api, name, "2", Answer(400, b'{"type": "error"}', "req-2"))
    unsent = [unsent_line(api, name, "3", code) for code in (EXPIRED, CANCELLED)]
    kinds = [Kind.GOOD, Kind.FAILED, Kind.UNSENT, Kind.UNSENT]
    for line, kind in zip([good, failed, *unsent], kinds, strict=True):
        assert json.loads(line)["custom_id"] == name
        assert line.count(b"\n") == 1
        assert kind_of(api, name, line) is kind


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


@pytest.mark.parametrize("tail", [b'{"custom_id":"b', b"\0\0\0\n", b"[]\n", b'{"custom_id":1}\n'])
def test_an_interrupted_write_is_removed(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "results"
    whole = b'{"custom_id":"a"}\n{"custom_id":"b"}\n'
    path.write_bytes(whole + tail)
    assert [name for name, _, _ in read_results(path)] == ["a", "b"]
    assert path.read_bytes() == whole
