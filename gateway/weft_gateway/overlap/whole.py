"""Finds the tool calls of a non-streamed answer, with the results of its stream. Sans-I/O."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from weft_gateway.overlap.tool_calls import ToolCall, ToolCallParser


def calls_of(answer: Any, names: Container[str] | None = None) -> list[ToolCall]:
    """Return all calls of a parsed answer, of any API. names: see ToolCallParser. Never raises."""
    parser = ToolCallParser(names)
    return [call for chunk in _chunks(answer) for call in parser.feed(chunk)]


def _chunks(answer: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(answer, Mapping):
        return
    if isinstance(answer.get("choices"), list):
        yield {"choices": [_delta(choice) for choice in _mappings(answer["choices"])]}
    elif isinstance(answer.get("content"), list):
        yield from _message(answer)
    elif isinstance(answer.get("output"), list):
        yield from _response(answer)


def _delta(choice: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a chat's or a plain completion's choice to one chunk."""
    message = choice.get("message")
    if not isinstance(message, Mapping):
        return dict(choice)
    calls = _mappings(message.get("tool_calls"))
    numbered = [{**call, "index": number} for number, call in enumerate(calls)]
    return {**choice, "delta": {"content": message.get("content"), "tool_calls": numbered}}


def _message(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for number, block in enumerate(_mappings(answer["content"])):
        if block.get("type") == "text":
            delta = {"type": "text_delta", "text": block.get("text")}
            yield {"type": "content_block_delta", "index": number, "delta": delta}
        else:
            yield {"type": "content_block_start", "index": number, "content_block": block}
    yield {"type": "message_delta", "delta": {"stop_reason": answer.get("stop_reason")}}


def _response(answer: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for number, item in enumerate(_mappings(answer["output"])):
        at = {"output_index": number}
        yield {"type": "response.output_item.added", **at, "item": item}
        for place, part in enumerate(_mappings(item.get("content"))):
            if part.get("type") == "output_text":
                text = {"content_index": place, "delta": part.get("text")}
                yield {"type": "response.output_text.delta", **at, **text}
    if answer.get("status") == "completed":
        yield {"type": "response.completed"}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
