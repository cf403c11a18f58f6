"""What the model said, out of an answer's bytes, of any API, whole or streamed. Pure.

Meant for after the client has been served: the bytes are kept as they pass and read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from weft_gateway.programs.lineage.canonical import Atom, answer_atoms, item_atoms, text_atoms

# A longer answer is not read: its call is remembered without what was said.
MAX_ANSWER_BYTES: Final = 1 << 20
# Of a shorter stream, the events are read one by one.
_LONG_STREAM: Final = 1024
# From the end of a text in one event to where it goes on in the next one.
_BETWEEN: Final = re.compile(
    rb'"(?:content|text|arguments|partial_json|delta)": ?"(?:[^"\\\n]|\\.)*'
    rb'("[^\n]*\n\n(?:event:[^\n]*\n)?'
    rb'data: [^\n]*?"(?:content|text|arguments|partial_json|delta)": ?")'
)

_ESCAPED: Final = re.compile(rb"\\.")


def parse_answer(body: bytes, stream: bool) -> Mapping[str, Any]:
    """An answer as it is without a stream, as far as lineage goes by it. stream: the body is made
    of server-sent events. What is not understood is {}; never raises."""
    if len(body) > MAX_ANSWER_BYTES:
        return {}
    try:
        answer = _gathered(body) if stream else orjson.loads(body)
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}
    return answer if isinstance(answer, dict) else {}


def said_in(answer: Mapping[str, Any]) -> list[list[Atom]]:
    """What an answer says: one list of atoms for each choice. Never raises."""
    try:
        return [atoms for atoms in _answers(answer) if atoms]
    except (ValueError, TypeError, KeyError, AttributeError):
        return []


def _answers(answer: Mapping[str, Any]) -> Iterator[list[Atom]]:
    if isinstance(answer.get("choices"), list):
        for choice in answer["choices"]:
            if isinstance(choice.get("message"), dict):
                yield answer_atoms(choice["message"])
            elif isinstance(choice.get("text"), str):
                yield text_atoms(choice["text"])
    elif isinstance(answer.get("output"), list):
        yield item_atoms(answer["output"])
    elif isinstance(answer.get("content"), list):
        yield answer_atoms(answer)


def _gathered(body: bytes) -> Mapping[str, Any]:
    """The answer that a stream builds up, in the shape of the whole one."""
    choices: dict[int, dict[str, Any]] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for line in condensed(body).split(b"\n"):
        if not line.startswith(b"data:") or b"{" not in line:
            continue
        event = orjson.loads(line[5:])
        if "choices" in event:
            for choice in event["choices"]:
                _add_choice(choices.setdefault(choice.get("index", 0), {}), choice)
        elif event.get("type") in ("response.completed", "response.incomplete"):
            return dict(event["response"])
        elif "index" in event:
            _add_block(blocks, event)
    if choices:
        return {"choices": [_whole(choices[index]) for index in sorted(choices)]}
    return {"content": [_block(blocks[index]) for index in sorted(blocks)]}


def condensed(stream: bytes) -> bytes:
    """The same stream with fewer events: those that differ in their piece of one text alone become
    one. A model's tokens come as events that are alike but for a word; two of them meet in bytes
    that hold a line end, which no text in JSON does, and without these their texts are one."""
    for quarter in (2, 1, 3):
        if len(stream) < _LONG_STREAM:
            break
        found = _BETWEEN.search(stream, quarter * len(stream) // 4)
        if found is not None:
            stream = _without(found[1], stream)
    return stream


def _without(between: bytes, stream: bytes) -> bytes:
    """The stream without these bytes, where what stands before them is more of the same text."""
    begins = between[between.rindex(b"\n") + 1 :]
    first, *others = stream.split(between)
    whole = _ends_in_text(first[first.rfind(b"\n") + 1 :], begins)
    words = b"".join(others[:-1])
    if whole and b"\n" not in words and _is_text(words):  # As most are.
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
    """Whether it is inside of one text from its beginning to its end."""
    return b'"' not in part or b'"' not in _ESCAPED.sub(b"", part)


def _add_choice(into: dict[str, Any], choice: Mapping[str, Any]) -> None:
    if isinstance(choice.get("text"), str):
        into.setdefault("text", []).append(choice["text"])
    delta = choice.get("delta") or {}
    if isinstance(delta.get("content"), str):
        into.setdefault("content", []).append(delta["content"])
    for part in delta.get("tool_calls") or ():
        call = into.setdefault("calls", {}).setdefault(part.get("index", 0), {})
        if part.get("id"):
            call["id"] = part["id"]
        function = part.get("function") or {}
        if function.get("name"):
            call["name"] = function["name"]
        call.setdefault("arguments", []).append(function.get("arguments") or "")


def _whole(parts: Mapping[str, Any]) -> dict[str, Any]:
    if "text" in parts:
        return {"text": "".join(parts["text"])}
    calls = [
        {
            "id": call.get("id"),
            "name": call.get("name"),
            "arguments": "".join(call["arguments"]),
        }
        for _, call in sorted(parts.get("calls", {}).items())
    ]
    return {"message": {"content": "".join(parts.get("content", ())), "tool_calls": calls}}


def _add_block(blocks: dict[int, dict[str, Any]], event: Mapping[str, Any]) -> None:
    """One event of Anthropic's stream."""
    if isinstance(event.get("content_block"), dict):
        blocks[event["index"]] = {**event["content_block"], "parts": []}
    elif isinstance(event.get("delta"), dict) and event["index"] in blocks:
        delta = event["delta"]
        blocks[event["index"]]["parts"].append(delta.get("text") or delta.get("partial_json") or "")


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    said = "".join(block["parts"])
    if block.get("type") == "tool_use":
        return {**block, "input": orjson.loads(said or "{}")}
    return {**block, "text": said or block.get("text", "")}
