"""Finds media in JSON, and gives each tenant its own names of media. Pure.

The bytes of an image are no text: each of the media counts as MEDIA_TOKENS, in any body.

vLLM caches an image, audio or video under the `uuid` of its part of the prompt, if it has one, for
all clients: a name that two tenants use would show one of them the other's picture. So the name is
hashed with the tenant's salt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha1
from operator import is_not
from typing import Any, Final

from weft_gateway.engine.salts import tenant_salt

_NAME: Final = "uuid"
_PROMPTS: Final = ("messages", "input")
_PARTS: Final = ("content", "output")
# A name in JSON that is not parsed. A value that is an object describes a tool's parameter. More
# than 64 blanks count as a name, so a match has a bounded length. No encoder escapes these letters.
_PLAIN: Final = re.compile(rb'"uuid"\s{0,64}+(?:\s|:\s{0,64}+[^{\[])')
_ESCAPED: Final = re.compile(rb"\\u00(?:75|69|64)")
# At least the length of a match.
OVERLAP: Final = 160
MEDIA_TOKENS: Final = 600.0
# A member with media: its name, and the beginning of a data URL or base64. Some encoders escape a
# slash. Quotes inside of a text are escaped, so no text matches.
_EMBEDDED: Final = re.compile(
    rb'"(?:data|url|image_url|audio_url|video_url|file_data)"\s{0,8}+:\s{0,8}+"'
    rb'(?:data:[^",]{0,200}+,)?[A-Za-z0-9+/=_\\-]{256}'
)
_LONGEST: Final = 512
# Bytes that are searched in one step, and those of text with as many tokens as one of the media.
_STEP: Final = 1 << 18
COUNTED_BYTES: Final = 2400


def embedded(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each of the media inside of a JSON text begins and ends. Yields (0, 0) at least
    once per _STEP bytes of other text, so that the caller can pause.
    """
    at, size = 0, len(raw)
    while at < size:
        end = at + _STEP
        while at < end and (found := _EMBEDDED.search(raw, at, end + _LONGEST)):
            at = raw.find(b'"', found.end())
            if at < 0:
                at = size
            yield found.end() - 256, at
        at = max(at, end)
        yield 0, 0


def shortened(data: bytes) -> bytes:
    """Return JSON with a digest in place of each of the media."""
    at = 0
    parts: list[bytes] = []
    for begin, end in embedded(data):
        if end:
            parts += data[at:begin], sha1(data[begin:end], usedforsecurity=False).digest()
            at = end
    return b"".join([*parts, data[at:]]) if parts else data


def text_bytes(raw: bytes) -> int:
    """Return the size of a JSON text, in which each of the media counts as MEDIA_TOKENS."""
    return len(raw) - sum([end - begin - COUNTED_BYTES for begin, end in embedded(raw) if end])


def may_name(raw: bytes) -> bool:
    """Whether a body may name media. Takes a millisecond per megabyte."""
    return b'uuid"' in raw or b"\\u00" in raw


def seems_to_name(raw: bytes) -> bool:
    """Whether a body, or a piece of it, that is not parsed may name media; sometimes True for other
    bodies. Pieces must overlap by OVERLAP bytes.
    """
    return may_name(raw) and bool(_PLAIN.search(raw) or _ESCAPED.search(raw))


def has_prompt(body: dict[str, Any]) -> bool:
    """Whether the body has a parsed prompt that can name media."""
    return any(type(body.get(name)) is list for name in _PROMPTS)


def own_names(body: dict[str, Any], salt: str) -> dict[str, Any]:
    """Return the parsed body with a tenant's own names, the same object if it has none."""
    own = {
        name: renamed
        for name in _PROMPTS
        if type(items := body.get(name)) is list and (renamed := _own(items, salt)) is not items
    }
    return {**body, **own} if own else body


def _own(items: list[Any], salt: str, levels: int = 2) -> list[Any]:
    """Return messages or their parts with a tenant's own names, the same list if no name exists."""
    own = [_one(item, salt, levels) if type(item) is dict else item for item in items]
    return own if any(map(is_not, own, items)) else items


def _one(item: dict[str, Any], salt: str, levels: int) -> dict[str, Any]:
    own: dict[str, Any] = {}
    for name in _PARTS if levels else ():
        parts = item.get(name)
        if type(parts) is list and (renamed := _own(parts, salt, levels - 1)) is not parts:
            own[name] = renamed
    if item.get(_NAME) is not None:
        own[_NAME] = tenant_salt(salt, str(item[_NAME]))
    return {**item, **own} if own else item
