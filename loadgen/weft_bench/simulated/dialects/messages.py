"""Anthropic's Messages API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from weft_bench.simulated import tokens
from weft_bench.simulated.dialects import base
from weft_bench.simulated.dialects.base import Asked, Dialect, Usage, event
from weft_bench.simulated.dialects.tools import forced


class Messages(Dialect):
    """`POST /v1/messages`."""

    kind = "msg"

    @classmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """See Dialect."""
        messages = base.messages_of(body, "messages")
        system = tokens.pad(base.text_of(body.get("system")))
        return Asked(
            prompt=base.of_tools(body)
            + system
            + b"".join(map(base.said, messages))
            + base.role("assistant"),
            limit=base.limit(body, "max_tokens"),
            exactly=body.get("ignore_eos") is True,
            stream=body.get("stream") is True,
            tool=forced(body),
        )

    def plain(self, usage: Usage) -> bytes:
        """See Dialect."""
        tool = self.asked.tool
        block: dict[str, Any] = {"type": "text", "text": self.text}
        if tool is not None:
            block = self._tool() | {"input": {} if self.cut_off else orjson.loads(self.text)}
        stop = {"content": [block], "stop_reason": self._stop, "usage": _usage(usage)}
        return orjson.dumps(self._message() | stop)

    def opening(self, usage: Usage) -> Sequence[bytes]:
        """See Dialect."""
        begun = self._message() | {"usage": _usage(usage) | {"output_tokens": 0}}
        block: dict[str, Any] = {"type": "text", "text": ""}
        if self.asked.tool is not None:
            block = self._tool() | {"input": {}}
        return (
            _event({"type": "message_start", "message": begun}),
            _event({"type": "content_block_start", "index": 0, "content_block": block}),
        )

    def token(self, number: int) -> bytes:
        """See Dialect."""
        piece = self.piece(number)
        delta = {"type": "text_delta", "text": piece}
        if self.asked.tool is not None:
            delta = {"type": "input_json_delta", "partial_json": piece}
        return _event({"type": "content_block_delta", "index": 0, "delta": delta})

    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """See Dialect."""
        delta = {"stop_reason": self._stop, "stop_sequence": None}
        end = _event({"type": "content_block_stop", "index": 0})
        end += _event({"type": "message_delta", "delta": delta, "usage": _usage(usage)})
        return end, _event({"type": "message_stop"})

    @property
    def _stop(self) -> str:
        if self.cut_off:
            return "max_tokens"
        return "end_turn" if self.asked.tool is None else "tool_use"

    def _tool(self) -> dict[str, Any]:
        assert self.asked.tool is not None
        return {"type": "tool_use", "id": f"toolu-{self.id}", "name": self.asked.tool.name}

    def _message(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self.model,
            "stop_reason": None,
            "stop_sequence": None,
        }


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.output_tokens,
    }


def _event(data: dict[str, Any]) -> bytes:
    return event(data, data["type"])
