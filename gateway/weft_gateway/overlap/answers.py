"""Parses an answer of any API from its bytes, whole or streamed. Pure; linear, bounded.

Used after the client has been served: the bytes are recorded as they pass and parsed once. A stream
is converted to the body of the same answer without streaming, as far as its messages go.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from weft_gateway.overlap.events import EventReader

# Longer answers are not parsed.
MAX_ANSWER_BYTES: Final = 1 << 20
# The events of a shorter stream are parsed one by one.
_LONG_STREAM: Final = 1024
# From the end of a text in one event to its continuation in the next event.
_BETWEEN: Final = re.compile(
    rb'"(?:content|text|arguments|partial_json|delta)": ?"(?:[^"\\\n]|\\.)*'
    rb'("[^\n]*\n\n(?:event:[^\n]*\n)?'
    rb'data: [^\n]*?"(?:content|text|arguments|partial_json|delta)": ?")'
)

_ESCAPED: Final = re.compile(rb"\\.")


def parse_answer(raw: bytes, stream: bool) -> dict[str, Any]:
    """Return an answer's body. stream: the bytes are server-sent events. {} for an invalid or too
    long answer; never raises.
    """
    if len(raw) > MAX_ANSWER_BYTES:
        return {}
    if stream:
        return assembled(_chunks(raw))
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    return body if isinstance(body, dict) else {}


def assembled(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Assemble the messages of a stream's parsed chunks: `choices` with a `message` each (chat) or
    a `text` (completions), `content` blocks (Anthropic), or `output` items (responses).
    """
    choices: dict[int, dict[str, Any]] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        kind = chunk.get("type")
        if kind == "response.completed" or kind == "response.incomplete":
            response = chunk.get("response")
            if isinstance(response, dict):
                return {"output": response.get("output")}
        elif isinstance(kind, str) and kind.startswith("content_block"):
            _block(blocks, chunk)
        for choice in _dicts(chunk.get("choices")):
            _choice(choices.setdefault(_number(choice.get("index")), {"content": []}), choice)
    if blocks:
        return {"role": "assistant", "content": [_closed(blocks[n]) for n in sorted(blocks)]}
    return {"choices": [_whole(choices[number]) for number in sorted(choices)]}


def _choice(kept: dict[str, Any], choice: Mapping[str, Any]) -> None:
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        text = choice.get("text")
        if isinstance(text, str):
            kept.setdefault("text", []).append(text)
        return
    text = delta.get("content")
    if isinstance(text, str):
        kept["content"].append(text)
    for piece in _dicts(delta.get("tool_calls")):
        calls = kept.setdefault("calls", {})
        call = calls.setdefault(_number(piece.get("index")), {"id": "", "name": "", "text": []})
        function = piece.get("function")
        if isinstance(piece.get("id"), str):
            call["id"] = call["id"] or piece["id"]
        if isinstance(function, Mapping):
            if isinstance(function.get("name"), str):
                call["name"] = call["name"] or function["name"]
            if isinstance(function.get("arguments"), str):
                call["text"].append(function["arguments"])


def _whole(kept: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in kept:
        return {"text": "".join(kept["text"])}
    return {"message": _message(kept)}


def _message(kept: Mapping[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(kept["content"]) or None}
    calls = kept.get("calls")
    if calls:
        message["tool_calls"] = [
            {
                "id": calls[number]["id"],
                "type": "function",
                "function": {
                    "name": calls[number]["name"],
                    "arguments": "".join(calls[number]["text"]),
                },
            }
            for number in sorted(calls)
        ]
    return message


def _block(blocks: dict[int, dict[str, Any]], chunk: Mapping[str, Any]) -> None:
    number = _number(chunk.get("index"))
    if chunk["type"] == "content_block_start":
        begun = chunk.get("content_block")
        blocks[number] = {"begun": begun if isinstance(begun, dict) else {}, "text": []}
        return
    delta = chunk.get("delta")
    block = blocks.get(number)
    if block is None or not isinstance(delta, Mapping):
        return
    for name in ("text", "partial_json"):
        if isinstance(delta.get(name), str):
            block["text"].append(delta[name])


def _closed(block: Mapping[str, Any]) -> dict[str, Any]:
    begun, text = block["begun"], "".join(block["text"])
    if begun.get("type") != "tool_use":
        return {**begun, "text": begun.get("text", "") + text} if text else dict(begun)
    try:
        return {**begun, "input": orjson.loads(text)} if text else dict(begun)
    except orjson.JSONDecodeError:
        return dict(begun)


def _chunks(data: bytes) -> Iterable[dict[str, Any]]:
    for event in EventReader().feed(condensed(data)):
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            continue  # `[DONE]`.
        if isinstance(chunk, dict):
            yield chunk


def condensed(stream: bytes) -> bytes:
    """Join events that differ only in their piece of one text. A model's tokens arrive in events
    that are otherwise equal. The bytes between two pieces contain a line end, which JSON text does
    not, so removing them joins the pieces.
    """
    for quarter in (2, 1, 3):
        if len(stream) < _LONG_STREAM:
            break
        found = _BETWEEN.search(stream, quarter * len(stream) // 4)
        if found is not None:
            stream = _without(found[1], stream)
    return stream


def _without(between: bytes, stream: bytes) -> bytes:
    """Remove these bytes from the stream wherever the same text continues across them."""
    begins = between[between.rindex(b"\n") + 1 :]
    first, *others = stream.split(between)
    whole = _ends_in_text(first[first.rfind(b"\n") + 1 :], begins)
    words = b"".join(others[:-1])
    if whole and b"\n" not in words and _is_text(words):  # The usual case.
        return first + words + others[-1]
    made = [first]
    for part in others:
        if not whole:
            made.append(between)
        made.append(part)
        line = part.rfind(b"\n") + 1
        whole = _ends_in_text(part[line:], begins) if line else _is_text(part)
    return b"".join(made)


def _ends_in_text(line: bytes, begins: bytes) -> bool:
    return line.startswith(begins) and _is_text(line[len(begins) :])


def _is_text(part: bytes) -> bool:
    """Whether the part is inside of one JSON string from its start to its end."""
    return b'"' not in part or b'"' not in _ESCAPED.sub(b"", part)


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
