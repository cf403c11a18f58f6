"""Valid ids, from bytes and from JSON."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_gateway.programs.ids import (
    MAX_ID_BYTES,
    IdentityError,
    from_bytes,
    from_json,
    is_response_id,
)


def text_of(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


@given(st.binary(max_size=MAX_ID_BYTES))
def test_bytes_are_an_id_if_they_are_text_and_round_trip(raw: bytes) -> None:
    text = text_of(raw)
    if text is None:
        with pytest.raises(IdentityError) as raised:
            from_bytes(raw, b"x")
        assert raised.value.code == "bad_id"
    else:
        assert from_bytes(raw, b"x") == from_json(text, "x") == text.strip(" \t")


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_lone_surrogate_is_no_id(text: str) -> None:
    with pytest.raises(IdentityError) as raised:
        from_json(text, "the member")
    assert raised.value.code == "bad_id"
    assert "the member" in str(raised.value)


@pytest.mark.parametrize(("size", "refused"), [(MAX_ID_BYTES, False), (MAX_ID_BYTES + 1, True)])
def test_length_is_counted_in_wire_bytes(size: int, refused: bool) -> None:
    raw = ("é" * MAX_ID_BYTES).encode()[: size - size % 2] + b"x" * (size % 2)
    assert len(raw) == size
    for take, value in ((from_bytes, raw), (from_json, raw.decode())):
        if refused:
            with pytest.raises(IdentityError) as raised:
                take(value, b"x" if take is from_bytes else "x")  # type: ignore[operator]
            assert raised.value.code == "id_too_long"
            assert str(size) in str(raised.value)
        else:
            assert take(value, b"x" if take is from_bytes else "x")  # type: ignore[operator]


@pytest.mark.parametrize("around", [" ", "\t", " \t ", "  "])
def test_spaces_and_tabs_around_an_id_are_removed(around: str) -> None:
    for text in ("q", "a b", "\u00a0q", "q\n", "x" * MAX_ID_BYTES):
        padded = f"{around}{text}{around}"
        assert from_bytes(padded.encode(), b"x") == from_json(padded, "x") == text
    assert from_bytes(around.encode(), b"x") == from_json(around, "x") == ""


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("resp_1", True),
        ("resp_aB-_9" + "x" * 118, True),
        ("resp_" + "x" * 128, True),
        ("resp_" + "x" * 129, False),
        ("resp_", False),
        ("resp_1\n", False),
        ("resp_\u20ac", False),
        ("resp_\u0661", False),
        ("resp_%31", False),
        ("resp_1/..", False),
        ("\x01session:a", False),
        ("", False),
    ],
)
def test_response_id_has_a_limited_alphabet(text: str, is_one: bool) -> None:
    assert is_response_id(text) is is_one
