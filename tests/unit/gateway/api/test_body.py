"""Bodies in JSON, and what is wrong with them."""

from __future__ import annotations

import json

import pytest

from gateway.api.body import check_depth, json_object
from gateway.api.errors import ApiError

DEEP = b"[" * 300 + b"]" * 300


def test_an_object_comes_with_its_bytes() -> None:
    assert json_object(b' {"a": 1}') == (b' {"a": 1}', {"a": 1})


def test_a_byte_order_mark_is_left_out() -> None:
    assert json_object(b'\xef\xbb\xbf{"a": 1}') == (b'{"a": 1}', {"a": 1})


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"", "invalid_json"),
        (b"\xef\xbb\xbf", "invalid_json"),
        ('{"a": 1}'.encode("utf-16"), "invalid_json"),
        (b'{"a": "\\ud800"}', "invalid_json"),
        (b"7", "invalid_body"),
        (b"[" * 5000, "too_deeply_nested"),
        (b'{"depth": }', "invalid_json"),
    ],
)
def test_a_mistake_has_its_code(raw: bytes, code: str) -> None:
    with pytest.raises(ApiError) as raised:
        json_object(raw)
    assert (raised.value.status, raised.value.code) == (400, code)


def test_what_was_read_can_be_written_again_unless_it_is_too_deep() -> None:
    check_depth(json.loads('{"a": [1, 1.5, null, true, "\u00e9", {}]}'))
    with pytest.raises(ApiError) as raised:
        check_depth(json.loads(DEEP))
    assert raised.value.code == "too_deeply_nested"
