"""Repairs prompts whose beginning a client changes from call to call, so that the caches of engines
keep what comes behind. Pure. Each rule changes what a model reads, so an operator turns it on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

Members = dict[str, msgspec.Raw]

# A proxy may have joined the blocks of the system prompt, with up to two line ends or with none.
_BILLING: Final = re.compile(
    r"\Ax-anthropic-billing-header:(?: \w+=[^;\s]*(?:;|(?=\n|\Z)))+\n{0,2}"
)
# A short line with both gives the date or the time of now.
_NOW: Final = re.compile(r"\b(?:today|now|current(?:ly)?)\b", re.IGNORECASE)
_DATE: Final = re.compile(
    r"\b(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4}|\d\d?:\d\d"
    r"|(?:jan|feb|mar|apr|may|june?|july?|aug|sept?|oct|nov|dec)[a-z]*\.? \d)",
    re.IGNORECASE,
)
_LINE: Final = range(9, 160)
# Characters of a system prompt that are searched: up to 0.2 us each.
_SEARCHED: Final = 1 << 16
_LEADING: Final = ("system", "developer")
_NONE: Final = msgspec.Raw(b"[]")
_value: Final = msgspec.json.Decoder().decode
_each: Final = msgspec.json.Decoder(Members).decode
_split: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


class _Head(msgspec.Struct):
    """What says which item of a prompt it is."""

    name: str | None = ""
    type: str | None = ""
    role: str | None = ""


class _Tool(_Head):
    function: _Head = msgspec.field(default_factory=_Head)


_head: Final = msgspec.json.Decoder(_Head).decode
_tool: Final = msgspec.json.Decoder(_Tool).decode


def repaired(raw: bytes, rules: Collection[str]) -> tuple[bytes, tuple[str, ...]]:
    """Return a body for an engine after the rules, and the names of those that have changed it.
    Takes about a millisecond per megabyte.
    """
    applied = []
    try:
        members = _each(raw)
        for name, rule in RULES.items():
            after = rule(members) if name in rules else members
            if after is not members:
                members = after
                applied.append(name)
    except (ValueError, TypeError, AttributeError):
        # Not the form of a prompt: the engine has the precise error.
        return raw, ()
    return (msgspec.json.encode(members) if applied else raw), tuple(applied)


def billing_line(members: Members) -> Members:
    """Drop the line with which Claude Code begins its system prompt, as vLLM does: its version ends
    with a digest of the session's first message.
    """
    return _with_prompt(members, lambda text: _BILLING.sub("", text))


def tool_order(members: Members) -> Members:
    """Sort tools by name."""
    tools = _list(members, "tools")
    heads = [_tool(tool) for tool in tools]
    names = [head.function.name or head.name or head.type or "" for head in heads]
    order = sorted(range(len(names)), key=names.__getitem__)
    if order == [*range(len(names))]:
        return members
    return {**members, "tools": _raw([tools[at] for at in order])}


def date_line(members: Members) -> Members:
    """Move lines that give the date or the time of now from the system prompt to the end of the
    last message of a user or a tool.
    """
    moved: list[str] = []
    left = _SEARCHED

    def cut(text: str) -> str:
        nonlocal left
        left -= len(text)
        if left < 0:
            return text
        kept: list[str] = []
        for line in text.split("\n"):
            is_now = len(line) in _LINE and _NOW.search(line) and _DATE.search(line)
            (moved if is_now else kept).append(line)
        return "\n".join(kept)

    found = _with_prompt(members, cut)
    lines = "\n".join([line.strip() for line in moved])
    return _with_end(found, f"<system-reminder>\n{lines}\n</system-reminder>") if moved else members


RULES: Final[Mapping[str, Callable[[Members], Members]]] = {
    "billing_line": billing_line,
    "tool_order": tool_order,
    "date_line": date_line,
}
# The rule that helps against a kind of change (`weft_gateway.transcripts.outline`).
BY_KIND: Final = {
    "billing line": "billing_line",
    "tools reordered": "tool_order",
    "date or counter": "date_line",
}


def _with_prompt(members: Members, edit: Callable[[str], str]) -> Members:
    """Return a body with edited texts of the system prompt: the same one if nothing changes. Texts
    that become empty are left out.
    """
    found, changed = dict(members), False
    for name in ("system", "instructions"):
        content = _value(members[name]) if name in members else None
        own = _edited(content, edit)
        if own != content:
            changed = True
            found[name] = _raw(own)
            if not own:
                del found[name]
    name, items = _items(members)
    kept: list[msgspec.Raw] = []
    for at, item in enumerate(items):
        if _head(item).role not in _LEADING:
            kept += items[at:]
            break
        message = _value(item)
        own = _edited(message.get("content"), edit)
        if own == message.get("content"):
            kept.append(item)
            continue
        changed = True
        if own:
            kept.append(_raw({**message, "content": own}))
    if len(items) > 0:
        found[name] = _raw(kept)
    return found if changed else members


def _with_end(members: Members, text: str) -> Members:
    """Return a body whose last message of a user or a tool ends with a text."""
    name, items = _items(members)
    if name == "input" and not items:
        return {**members, name: _raw(_extended(_value(members[name]), "", text))}
    part = "input_text" if name == "input" else "text"
    for at in range(len(items) - 1, -1, -1):
        head = _head(items[at])
        key = "output" if head.type == "function_call_output" else "content"
        if key == "content" and head.role not in ("user", "tool"):
            continue
        message = _value(items[at])
        items[at] = _raw({**message, key: _extended(message.get(key), part, text)})
        return {**members, name: _raw(items)}
    raise ValueError("a prompt without messages")


def _extended(content: Any, part: str, text: str) -> Any:
    """Return a content that ends with a text. part: type of a new part."""
    if content is None or isinstance(content, str):
        return f"{content or ''}\n\n{text}"
    if not isinstance(content, list):
        raise TypeError("a content of another type")
    last = content[-1] if content else {}
    if last.get("type") == "tool_result":
        # Templates forget an agent's thoughts when another message of a user follows.
        return [*content[:-1], {**last, "content": _extended(last.get("content"), part, text)}]
    return [*content, {"type": part, "text": text}]


def _items(members: Members) -> tuple[str, list[msgspec.Raw]]:
    """Return the name of the member with the messages, and these."""
    name = "messages" if "messages" in members else "input"
    return name, _list(members, name)


def _list(members: Members, name: str) -> list[msgspec.Raw]:
    """Return the items of a list, none if the member is something else, such as null."""
    piece = members.get(name, _NONE)
    return _split(piece) if bytes(memoryview(piece)[:1]) == b"[" else []


def _edited(content: Any, edit: Callable[[str], str]) -> Any:
    """Return a text or a list of parts with edited texts."""
    if isinstance(content, str):
        return edit(content)
    if not isinstance(content, list):
        return content
    found = []
    for part in content:
        text = part.get("text")
        own = edit(text) if isinstance(text, str) else text
        if own == text:
            found.append(part)
        elif own:
            found.append({**part, "text": own})
    return found


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
