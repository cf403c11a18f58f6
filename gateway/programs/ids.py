"""What an id is: text of at most 256 bytes in UTF-8. One rule, whichever way an id comes. Pure.

Bytes and text answer each other one to one, so that two ids never become one: what is not UTF-8,
and half of a surrogate pair, which UTF-8 cannot hold, is refused.
"""

from __future__ import annotations

from typing import Any, Final

MAX_ID_BYTES: Final = 256


class IdentityError(ValueError):
    """An id that cannot be taken. code: `id_too_long` or `bad_id`. name: of what held it."""

    def __init__(self, code: str, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.code = code
        self.name = name


def from_bytes(raw: bytes, name: bytes) -> str:
    """The id in these bytes, "" where there are none. `name`: of what holds it, for the message.
    Raises IdentityError."""
    if len(raw) > MAX_ID_BYTES:
        raise _too_long(name.decode(), len(raw))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _no_text(name.decode()) from None


def from_json(value: Any, name: str) -> str:
    """The id in a member of a JSON body: a string, or a whole number, which stands for its digits.
    Raises IdentityError."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise IdentityError("bad_id", name, f"must be a string, got {type(value).__name__}")
    text = str(value)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _no_text(name) from None
    if size > MAX_ID_BYTES:
        raise _too_long(name, size)
    return text


def _no_text(name: str) -> IdentityError:
    return IdentityError("bad_id", name, "must be text in UTF-8")


def _too_long(name: str, size: int) -> IdentityError:
    what = f"has {size} bytes; at most {MAX_ID_BYTES} are allowed"
    return IdentityError("id_too_long", name, what)
