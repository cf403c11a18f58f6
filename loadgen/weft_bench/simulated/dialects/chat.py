"""The Chat Completions API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from weft_bench.simulated.dialects import base
from weft_bench.simulated.dialects.base import Asked, Dialect, Usage, event
from weft_bench.simulated.dialects.tools import forced


class Chat(Dialect):
    """`POST /v1/chat/completions`."""

    kind = "chatcmpl"

    @classmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """See Dialect."""
        base.one_answer(body)
        messages = base.messages_of(body, "messages")
        return Asked(
            prompt=base.of_tools(body)
            + b"".join(map(base.said, messages))
            + base.role("assistant"),
            limit=base.limit(body, "max_completion_tokens", "max_tokens"),
            exactly=body.get("ignore_eos") is True,
            stream=body.get("stream") is True,
            include_usage=base.include_usage(body),
            tool=forced(body),
        )

    def plain(self, usage: Usage) -> bytes:
        """See Dialect."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.asked.tool is not None:
            call = {"id": self._call_id, "type": "function", "function": self._function(self.text)}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self._finish}
        return orjson.dumps(
            self._identity("chat.completion") | {"choices": [choice], "usage": usage.openai()}
        )

    def opening(self, usage: Usage) -> Sequence[bytes]:
        """See Dialect."""
        delta: dict[str, Any] = {"role": "assistant", "content": ""}
        if self.asked.tool is not None:
            head = {"index": 0, "id": self._call_id, "type": "function"}
            call = head | {"function": self._function("")}
            delta = {"role": "assistant", "content": None, "tool_calls": [call]}
        else:
            # The frame around each word is the same, so it is built once.
            frame = self._chunk({"content": "\0"}, None)
            self._before, _, self._after = frame.partition(rb"\u0000")
        return (self._chunk(delta, None),)

    def token(self, number: int) -> bytes:
        """See Dialect."""
        piece = self.piece(number)
        if self.asked.tool is None:
            return self._before + piece.encode() + self._after
        call = {"index": 0, "function": {"arguments": piece}}
        return self._chunk({"tool_calls": [call]}, None)

    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """See Dialect."""
        end = self._chunk({}, self._finish)
        if self.asked.include_usage:
            identity = self._identity("chat.completion.chunk")
            end += event(identity | {"choices": [], "usage": usage.openai()})
        return end, b"data: [DONE]\n\n"

    @property
    def _call_id(self) -> str:
        return f"call-{self.id}"

    @property
    def _finish(self) -> str:
        if self.cut_off:
            return "length"
        return "stop" if self.asked.tool is None else "tool_calls"

    def _function(self, arguments: str) -> dict[str, str]:
        assert self.asked.tool is not None
        return {"name": self.asked.tool.name, "arguments": arguments}

    def _identity(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": base.CREATED, "model": self.model}

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event(self._identity("chat.completion.chunk") | {"choices": [choice]})
