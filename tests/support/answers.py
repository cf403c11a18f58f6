"""Streamed answers of an engine in the three APIs that coding agents use."""

from __future__ import annotations

import json
from typing import Any

# The end of a stream of Chat Completions.
_DONE = b"data: [DONE]\n\n"


def answer(path: str, text: str, prompt_tokens: int) -> list[bytes]:
    """Return the events of an answer with a text, for the API at `path`, which may have a query."""
    path = path.partition("?")[0]
    if path.endswith("/messages"):
        return messages({"type": "text", "text": text}, prompt_tokens=prompt_tokens)
    if path.endswith("/responses"):
        return _responses(text, prompt_tokens)
    return _chat(text, prompt_tokens)


def messages(
    *blocks: dict[str, Any], stop: str = "end_turn", prompt_tokens: int = 10
) -> list[bytes]:
    """Return the events of an answer of the Messages API. blocks: its content."""
    usage = {"input_tokens": prompt_tokens, "output_tokens": 5}
    begun = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "weft-demo", "content": [],
        "stop_reason": None, "stop_sequence": None, "usage": usage,
    }  # fmt: skip
    events: list[dict[str, Any]] = [{"type": "message_start", "message": begun}]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty, delta = {"type": "text", "text": ""}, {**block, "type": "text_delta"}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [
            {"type": "content_block_start", "index": index, "content_block": empty},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    events += [
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": usage},
        {"type": "message_stop"},
    ]
    return [_event(each) for each in events]


def _responses(text: str, prompt_tokens: int) -> list[bytes]:
    usage = {
        "input_tokens": prompt_tokens, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt_tokens + 5,
    }  # fmt: skip
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "weft-demo"}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.added", "item": {**item, "content": []}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text},
        {"type": "response.output_item.done", "item": {**item, "content": [part]}},
        {
            "type": "response.completed",
            "response": {
                **response, "status": "completed", "output": [{**item, "content": [part]}],
                "usage": usage,
            },
        },
    ]  # fmt: skip
    indexes = {"output_index": 0, "content_index": 0}
    return [
        _event({**each, **indexes, "sequence_number": number}) for number, each in enumerate(events)
    ]


def _chat(text: str, prompt_tokens: int) -> list[bytes]:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "weft-demo"}
    usage = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 5,
        "total_tokens": prompt_tokens + 5,
    }
    deltas = (({"role": "assistant", "content": text}, None), ({}, "stop"))
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in deltas
    ] + [{**chunk, "choices": [], "usage": usage}]
    return [*(f"data: {json.dumps(each)}\n\n".encode() for each in chunks), _DONE]


def _event(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
