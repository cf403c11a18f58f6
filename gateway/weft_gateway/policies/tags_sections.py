"""A body's messages as sections: what each is, and its text. Pure.

Reads the three shapes that have roles: chat completions (`messages`), Anthropic messages (`system`
beside them, tool results inside user messages) and responses (`instructions` and `input`). What is
malformed is left out: the engine says so better.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from weft_gateway.model.tag import Tag

# In a message's place: tools, and a system prompt beside the messages.
PREAMBLE: Final = -1

_TAGS: Final = {
    "system": Tag.SYSTEM_PROMPT,
    "developer": Tag.SYSTEM_PROMPT,
    "user": Tag.USER_QUERY,
    "assistant": Tag.RESPONSE,
    "tool": Tag.TOOL_OUTPUT,
    "function": Tag.TOOL_OUTPUT,
}
# With one of these a prompt is not its messages.
_OTHERWISE: Final = frozenset(
    {"previous_response_id", "conversation", "truncate_prompt_tokens", "chat_template", "documents"}
)
# Texts longer than this are told apart by their length, beginning, middle and end.
_WHOLE: Final = 3072
_SLICE: Final = 1024
_SALT: Final = 0x1F3D5B79
_QUERY: Final = Tag.USER_QUERY
_SYSTEM: Final = Tag.SYSTEM_PROMPT
_new: Final = tuple.__new__


class Section(NamedTuple):
    """A stretch of the prompt. tag: by its role. message: an index, or PREAMBLE. text: what the
    chat template will write out, but for its own markup. extras: tools and tool calls in it, which
    cost markup. media: images and the like, of which the text tells nothing. key: the same for the
    same content, in this process."""

    tag: Tag
    message: int
    text: str
    extras: int
    media: int
    key: int


def sections(body: Mapping[str, Any]) -> list[Section]:
    """The prompt's sections in the order in which chat templates write them; [] where nothing can
    be known: a raw prompt, the continuation of an answer that only the engine has, or a prompt that
    its own options cut or write in another way.

    The tools' definitions come after a leading system prompt, which is where templates put them or
    next to it, and are SYSTEM_PROMPT. A system message that follows other messages is a
    USER_QUERY: no other program can share it (Sutradhara 4.3).
    """
    return [] if is_otherwise(body) else visible(body)


def is_otherwise(body: Mapping[str, Any]) -> bool:
    """Whether the prompt is not what the body's messages say."""
    return not _OTHERWISE.isdisjoint(body) and any(body.get(name) for name in _OTHERWISE)


def visible(body: Mapping[str, Any]) -> list[Section]:
    """The sections in the body, though the prompt may hold more, or less, than they say. [] for a
    raw prompt."""
    messages = body.get("messages")
    if messages is None:
        messages = body.get("input")
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, list) or not messages:
        return []
    found: list[Section] = []
    beside = body.get("system") or body.get("instructions")
    if beside:
        found.append(_section(_SYSTEM, PREAMBLE, *_content(beside)))
    tools = body.get("tools")
    if not (isinstance(tools, list) and tools):
        tools = None
    leading = True
    for index, message in enumerate(messages):
        if type(message) is not dict:
            continue
        role = message.get("role")
        tag = _TAGS.get(role, _QUERY) if type(role) is str else _QUERY
        if tag is not _SYSTEM:
            leading = False
        elif not leading:
            tag = _QUERY
        if tools is not None and (index or not leading):
            found.append(_section(_SYSTEM, PREAMBLE, _json(tools), len(tools)))
            tools = None
        content = message.get("content")
        # What nearly all messages are.
        if type(content) is str and not message.get("tool_calls"):
            found.append(_section(tag, index, content))
        else:
            found.extend(_parts(message, index, tag))
    if tools is not None:
        found.append(_section(_SYSTEM, PREAMBLE, _json(tools), len(tools)))
    return found


def _section(
    tag: Tag, index: int, text: str, extras: int = 0, media: int = 0, mark: int = 0
) -> Section:
    key = _hash(text) ^ mark
    # As Section() does it, in half the time: there are hundreds in a long call.
    return _new(Section, (tag, index, text, extras, media, key ^ (tag * _SALT)))


def _hash(text: str) -> int:
    size = len(text)
    if size <= _WHOLE:
        return hash(text)
    middle = size // 2
    return hash((size, text[:_SLICE], text[middle : middle + _SLICE], text[-_SLICE:]))


def _parts(message: dict[str, Any], index: int, tag: Tag) -> Iterator[Section]:
    """A message that is not just a role and a text."""
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
        # Results come first, as messages of their own, wherever they stand in the message.
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
    """The text of a message's content, tool results left out; its tool calls; its media, and a
    mark that tells them apart from others."""
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
            elif kind not in ("tool_result", "thinking", "redacted_thinking"):
                media += 1
                mark = hash((mark, _media_mark(part)))
    return "".join(texts), extras, media, mark


def _media_mark(part: dict[str, Any]) -> int:
    """The same for the same picture: its data, or its address, is a text in the part or one level
    below."""
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
        # Nested deeper than can be written; the engine will refuse it.
        return ""
