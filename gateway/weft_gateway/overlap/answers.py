"""An answer's message, put together from its stream once that has ended. Pure; linear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from weft_gateway.overlap.events import EventReader

# A longer answer is not read.
MAX_TAPE_BYTES: Final = 4 << 20


def streamed(data: bytes) -> dict[str, Any]:
    """The answer of a stream as it would have come without one, as far as its messages go."""
    return assembled(_chunks(data))


def assembled(chunks: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The messages of a stream's parsed chunks: `choices` with a `message` each (chat, and text
    completions), `content` blocks (Anthropic), or `output` items (responses)."""
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
    return {"choices": [{"message": _message(choices[number])} for number in sorted(choices)]}


def _choice(kept: dict[str, Any], choice: Mapping[str, Any]) -> None:
    delta = choice.get("delta")
    if not isinstance(delta, Mapping):
        text = choice.get("text")
        if isinstance(text, str):
            kept["content"].append(text)
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
    for event in EventReader().feed(data):
        try:
            chunk = orjson.loads(event.data)
        except orjson.JSONDecodeError:
            continue  # `[DONE]`.
        if isinstance(chunk, dict):
            yield chunk


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0
