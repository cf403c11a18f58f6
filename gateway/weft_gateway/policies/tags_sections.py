"""Splits a body's messages into sections with a tag and a text each. Pure.

Reads the three formats with roles: chat completions (`messages`), Anthropic messages (`system`
beside them, tool results inside user messages) and responses (`instructions` and `input`).
Malformed parts are skipped: the engine reports them better.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from weft_gateway.model.tag import Tag
from weft_gateway.policies.unseen import seen, seen_message
from weft_gateway.transcripts.transcript import Known, numbered

# Message index of tools, and of a system prompt beside the messages.
PREAMBLE: Final = -1

_TAGS: Final = {
    "system": Tag.SYSTEM_PROMPT,
    "developer": Tag.SYSTEM_PROMPT,
    "user": Tag.USER_QUERY,
    "assistant": Tag.RESPONSE,
    "tool": Tag.TOOL_OUTPUT,
    "function": Tag.TOOL_OUTPUT,
}
# With one of these options, the prompt is not the rendered messages.
_OTHERWISE: Final = frozenset(
    {"previous_response_id", "conversation", "truncate_prompt_tokens", "chat_template", "documents"}
)
_MEDIA: Final = re.compile("image|audio|video|file|document|screenshot")
# Longer texts are identified by their length, beginning, middle and end.
_WHOLE: Final = 3072
_SLICE: Final = 1024
_SALT: Final = 0x1F3D5B79
_QUERY: Final = Tag.USER_QUERY
_SYSTEM: Final = Tag.SYSTEM_PROMPT
_new: Final = tuple.__new__


class Section(NamedTuple):
    """A part of the prompt. tag: by role. message: an index, or PREAMBLE. text: the rendered text
    without the template's markup. extras: number of tools and tool calls in it, which add markup.
    media: number of images and similar parts, whose tokens are not in the text. key: equal for
    equal content, in this process.
    """

    tag: Tag
    message: int
    text: str
    extras: int
    media: int
    key: int


def sections(body: Mapping[str, Any]) -> list[Section | Known]:
    """Return the prompt's sections in the order of chat templates. [] if the prompt is unknown: a
    raw prompt, the continuation of a stored answer, or a prompt that options cut or render in
    another way. What stands for known messages stays in their place.

    Tool definitions come after a leading system prompt, where templates put them or close to it,
    and are SYSTEM_PROMPT. A system message after other messages is a USER_QUERY: no other program
    can share it (Sutradhara 4.3).
    """
    return [] if is_otherwise(body) else visible(body)


def is_otherwise(body: Mapping[str, Any]) -> bool:
    """Whether the prompt differs from the body's messages."""
    return not _OTHERWISE.isdisjoint(body) and any(body.get(name) for name in _OTHERWISE)


def visible(body: Mapping[str, Any]) -> list[Section | Known]:
    """Return the sections in the body, even if the prompt holds more or less than these. [] for a
    raw prompt.
    """
    messages = body.get("messages")
    if messages is None:
        messages = body.get("input")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        return []
    found: list[Section | Known] = []
    beside = body.get("system") or body.get("instructions")
    if beside:
        found.append(_section(_SYSTEM, PREAMBLE, *_content(seen(beside))))
    tools = body.get("tools")
    if not (isinstance(tools, list) and tools):
        tools = None
    leading = True
    for index, message in numbered(messages):
        if type(message) is Known:
            leading = False
            if tools is not None:
                found.append(_section(_SYSTEM, PREAMBLE, _json(tools), len(tools)))
                tools = None
            found.append(message)
        if type(message) is not dict:
            continue
        role = message.get("role")
        tag = _TAGS.get(role, _QUERY) if type(role) is str else _QUERY
        if tag is not _SYSTEM:
            leading = False
        else:
            message = seen_message(message)
            tag = tag if leading else _QUERY
        if tools is not None and (index or not leading):
            found.append(_section(_SYSTEM, PREAMBLE, _json(tools), len(tools)))
            tools = None
        content = message.get("content")
        # The usual case.
        if type(content) is str and not message.get("tool_calls"):
            found.append(_section(tag, index, content))
        else:
            found.extend(_parts(message, index, tag))
    if tools is not None:
        found.append(_section(_SYSTEM, PREAMBLE, _json(tools), len(tools)))
    return found


def of_known(known: Known) -> list[Section]:
    """Return sections that stand for the known messages in tags: each ends where the highest tag
    from there to the last message changes.
    """
    return [Section(Tag(tag), known.last - 1, "", 0, 0, 0) for _, tag in known.spans()]


def _section(
    tag: Tag, index: int, text: str, extras: int = 0, media: int = 0, mark: int = 0
) -> Section:
    key = _hash(text) ^ mark
    # Half the cost of Section(): a long call has hundreds.
    return _new(Section, (tag, index, text, extras, media, key ^ (tag * _SALT)))


def _hash(text: str) -> int:
    size = len(text)
    if size <= _WHOLE:
        return hash(text)
    middle = size // 2
    return hash((size, text[:_SLICE], text[middle : middle + _SLICE], text[-_SLICE:]))


def _parts(message: dict[str, Any], index: int, tag: Tag) -> Iterator[Section]:
    """Yield the sections of a message that has more than a role and a text."""
    kind = message.get("type")
    if kind in ("function_call", "reasoning", "custom_tool_call"):
        text = _join(message.get("name"), message.get("arguments"), message.get("input"))
        if text:
            yield _section(Tag.RESPONSE, index, text, 1)
        return
    if kind in ("function_call_output", "custom_tool_call_output"):
        yield _section(Tag.TOOL_OUTPUT, index, *_content(message.get("output")))
        return
    content = message.get("content")
    if tag is _QUERY and isinstance(content, list):
        # Tool results come first, as separate messages, regardless of their position in the
        # message.
        for part in content:
            if isinstance(part, dict) and part.get("type") == "tool_result":
                yield _section(Tag.TOOL_OUTPUT, index, *_content(part.get("content")))
    text, extras, media, mark = _content(content)
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        for call in calls:
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                text += _join(function.get("name"), function.get("arguments"))
                extras += 1
    if text or extras or media or not isinstance(content, list):
        yield _section(tag, index, text, extras, media, mark)


def _content(content: Any) -> tuple[str, int, int, int]:
    """Return the text of a message's content without tool results, the number of its tool calls,
    the number of its media, and a hash that identifies the media.
    """
    if isinstance(content, str):
        return content, 0, 0, 0
    if not isinstance(content, list):
        return "", 0, 0, 0
    texts: list[str] = []
    extras = media = mark = 0
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            text = part.get("text")
            kind = part.get("type")
            if isinstance(text, str):
                texts.append(text)
            elif kind == "tool_use":
                texts.append(_join(part.get("name"), part.get("input")))
                extras += 1
            elif isinstance(kind, str) and _MEDIA.search(kind):
                media += 1
                mark = hash((mark, _media_mark(part)))
    return "".join(texts), extras, media, mark


def _media_mark(part: dict[str, Any]) -> int:
    """Return a hash that is equal for equal media: the data or the URL is a text in the part or one
    level below.
    """
    mark = 1
    for value in part.values():
        for text in value.values() if isinstance(value, dict) else (value,):
            if isinstance(text, str):
                mark = hash((mark, _hash(text)))
    return mark


def _join(*values: Any) -> str:
    return "".join(
        value if isinstance(value, str) else _json(value) for value in values if value is not None
    )


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value).decode()
    except TypeError:
        # Nested too deeply to serialize; the engine will refuse it.
        return ""
