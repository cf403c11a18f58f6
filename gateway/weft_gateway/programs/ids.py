"""Validates ids: UTF-8 text of at most 256 bytes. The same rule holds for headers, paths, queries
and bodies. Pure.

Spaces and tabs around an id are removed, because header parsers may remove them: an id names the
same program wherever it appears. Otherwise bytes and text map one to one, so two ids never become
one. Bytes that are not UTF-8 and lone surrogates, which UTF-8 cannot encode, are refused.
"""

from __future__ import annotations

import re
from typing import Any, Final

MAX_ID_BYTES: Final = 256
# As around a header field (RFC 9110, 5.6.3). Other white space is part of an id.
_SPACE: Final = " \t"
_SPACE_BYTES: Final = _SPACE.encode()

RESPONSE_ID: Final = "resp_[A-Za-z0-9_-]{1,128}"
"""Regular expression for the id of a stored answer (Responses API). It needs no escaping in a path,
in JSON or in a Redis key."""
_RESPONSE_ID: Final = re.compile(RESPONSE_ID)
# An engine could overwrite an answer if an item had the id of one.
_ITEM_ID: Final = re.compile("(?!resp_)[A-Za-z0-9_-]{1,128}")


class IdentityError(ValueError):
    """An invalid id. code: `id_too_long` or `bad_id`. name: the header or field with the id."""

    def __init__(self, code: str, name: str, what: str) -> None:
        super().__init__(f"{name} {what}")
        self.code = code
        self.name = name


def from_bytes(raw: bytes, name: bytes) -> str:
    """Return the id in these bytes, "" if empty. `name`: the header or field, for the message.
    Raises IdentityError.
    """
    raw = raw.strip(_SPACE_BYTES)
    if len(raw) > MAX_ID_BYTES:
        raise _too_long(name.decode(), len(raw))
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _no_text(name.decode()) from None


def from_json(value: Any, name: str) -> str:
    """Return the id in a member of a JSON body: a string, or an integer, which stands for its
    digits. Raises IdentityError.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise IdentityError("bad_id", name, f"must be a string, got {type(value).__name__}")
    text = str(value).strip(_SPACE)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise _no_text(name) from None
    if size > MAX_ID_BYTES:
        raise _too_long(name, size)
    return text


def is_response_id(text: str) -> bool:
    """Whether the text has the form of a stored answer's id."""
    return _RESPONSE_ID.fullmatch(text) is not None


def is_item_id(text: str) -> bool:
    """Whether the text has the form of the id of an item of a stored answer."""
    return _ITEM_ID.fullmatch(text) is not None


def _no_text(name: str) -> IdentityError:
    return IdentityError("bad_id", name, "must be text in UTF-8")


def _too_long(name: str, size: int) -> IdentityError:
    what = f"has {size} bytes; at most {MAX_ID_BYTES} are allowed"
    return IdentityError("id_too_long", name, what)
