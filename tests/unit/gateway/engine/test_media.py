"""Names of media in bodies that are not parsed."""

from __future__ import annotations

import asyncio

import pytest
from weft_gateway.api import body
from weft_gateway.api.body import check_media_names
from weft_gateway.calls.turns import Turns
from weft_gateway.engine.media import OVERLAP, has_prompt, seems_to_name
from weft_gateway.errors import ApiError


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        (b'{"uuid":"x"}', True),
        (b'{"uuid" \n: "x"}', True),
        (b'{"uuid":7}', True),
        (b'{"\\u0075uid":"x"}', True),
        (b'{"uuid"' + b" " * 500 + b':"x"}', True),
        (b'{"uuid":' + b" " * 500 + b'"x"}', True),
        (b'{"uuid": {"type":"string"}}', False),
        (b'["uuid"]', False),
        (b'{"uid":"x"}', False),
    ],
)
def test_names_are_found_in_raw_json(raw: bytes, names: bool) -> None:
    assert seems_to_name(raw) == names


@pytest.mark.parametrize("raw", [b'"uuid"' + b" " * 64 + b":" + b" " * 64 + b'"x"', b"\\u0075"])
def test_a_name_across_two_pieces_is_found(raw: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "_SEARCHED", 1000)
    for start in range(1000 - OVERLAP, 1001):
        whole = (b"." * start + raw).ljust(3000, b".")
        with pytest.raises(ApiError, match="uuid"):
            asyncio.run(check_media_names(whole, Turns(), "tenant"))
    asyncio.run(check_media_names(b"." * 3000, Turns(), "tenant"))


def test_a_body_whose_content_is_not_parsed_has_no_prompt_with_names() -> None:
    assert has_prompt({"messages": []})
    assert not has_prompt({"messages": b"[]", "model": "tiny"})
