"""Assembles the assistant's message from the chunks of a chat stream. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Message:
    """The first choice of one answer. content: the text so far. finish_reason: None until the
    answer ends. calls: the tool calls by index, complete or not."""

    def __init__(self) -> None:
        self.content = ""
        self.finish_reason: str | None = None
        self.calls: dict[int, dict[str, Any]] = {}
        self._complete: dict[int, dict[str, str]] = {}

    def add(self, chunk: Mapping[str, Any]) -> None:
        """Add a chunk. Chunks of other APIs and of other choices are ignored."""
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                delta = choice.get("delta") or {}
                self.content += delta.get("content") or ""
                for piece in delta.get("tool_calls") or ():
                    call = self.calls.setdefault(piece.get("index") or 0, {"id": ""})
                    call["id"] = call["id"] or piece.get("id") or ""
                    function = piece.get("function") or {}
                    call["name"] = call.get("name") or function.get("name") or ""
                self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def complete(self, index: int, name: str, arguments: str) -> None:
        """Record that the tool call `index` is complete."""
        if index in self.calls:
            self._complete[index] = {"name": name, "arguments": arguments}

    @property
    def incomplete(self) -> list[int]:
        """Indexes of the tool calls that were cut off or are not JSON. They cannot run."""
        return sorted(self.calls.keys() - self._complete.keys())

    def as_json(self) -> dict[str, Any]:
        """The message as the next request repeats it. Incomplete tool calls get empty arguments,
        since chat templates reject arguments that are not JSON."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.calls:
            message["content"] = self.content or None
            message["tool_calls"] = [self._call_json(index) for index in sorted(self.calls)]
        return message

    def _call_json(self, index: int) -> dict[str, Any]:
        head = self.calls[index]
        function = self._complete.get(index) or {"name": head.get("name", ""), "arguments": "{}"}
        return {"id": head["id"], "type": "function", "function": function}
