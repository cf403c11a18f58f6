"""The Responses API: items in, items out, with answers that continue earlier ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from weft_bench.simulated import tokens
from weft_bench.simulated.dialects import base
from weft_bench.simulated.dialects.base import Asked, Dialect, Refused, Usage, event
from weft_bench.simulated.dialects.tools import forced


class Responses(Dialect):
    """`POST /v1/responses`."""

    kind = "resp"

    def __init__(self, model: str, number: int, asked: Asked, text: str, cut_off: bool) -> None:
        super().__init__(model, number, asked, text, cut_off)
        self._sequence = 0

    @classmethod
    def read(cls, body: Mapping[str, Any], told: Mapping[str, bytes]) -> Asked:
        """See Dialect."""
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        if not isinstance(items, list) or not items:
            raise Refused("input must be text or a list of items")
        previous = body.get("previous_response_id")
        head = base.of_tools(body) + tokens.pad(base.text_of(body.get("instructions")))
        if previous is not None:
            if previous not in told:
                raise Refused(f"Response with id '{previous}' not found.", 404)
            head = told[previous]
        return Asked(
            prompt=head + b"".join(map(base.said, items)) + base.role("assistant"),
            limit=base.limit(body, "max_output_tokens"),
            exactly=body.get("ignore_eos") is True,
            stream=body.get("stream") is True,
            tool=forced(body),
        )

    def plain(self, usage: Usage) -> bytes:
        """See Dialect."""
        return orjson.dumps(self._response(self._status, [self._item(self._status)], usage))

    def opening(self, usage: Usage) -> Sequence[bytes]:
        """See Dialect."""
        begun = self._response("in_progress", [], None)
        item = self._item("in_progress", "")
        frames = [
            self._event("response.created", response=begun),
            self._event("response.in_progress", response=begun),
            self._event("response.output_item.added", output_index=0, item=item),
        ]
        if self.asked.tool is None:
            frames.append(self._part("response.content_part.added", part=_text("")))
        return frames

    def token(self, number: int) -> bytes:
        """See Dialect."""
        piece = self.piece(number)
        if self.asked.tool is not None:
            return self._part("response.function_call_arguments.delta", delta=piece)
        return self._part("response.output_text.delta", delta=piece, logprobs=[])

    def closing(self, usage: Usage) -> tuple[bytes, bytes]:
        """See Dialect."""
        item = self._item(self._status)
        if self.asked.tool is not None:
            arguments, name = self.text, self.asked.tool.name
            end = self._part(
                "response.function_call_arguments.done", arguments=arguments, name=name
            )
        else:
            end = self._part("response.output_text.done", text=self.text, logprobs=[])
            end += self._part("response.content_part.done", part=_text(self.text))
        end += self._event("response.output_item.done", output_index=0, item=item)
        whole = self._response(self._status, [item], usage)
        return end, self._event(f"response.{self._status}", response=whole)

    @property
    def _status(self) -> str:
        return "incomplete" if self.cut_off else "completed"

    @property
    def _item_id(self) -> str:
        return f"item-{self.id}"

    def _event(self, kind: str, **more: Any) -> bytes:
        self._sequence += 1
        return event({"type": kind, "sequence_number": self._sequence - 1, **more}, kind)

    def _part(self, kind: str, **more: Any) -> bytes:
        where: dict[str, Any] = {"item_id": self._item_id, "output_index": 0}
        if self.asked.tool is None:
            where["content_index"] = 0
        return self._event(kind, **where, **more)

    def _item(self, status: str, text: str | None = None) -> dict[str, Any]:
        text = self.text if text is None else text
        if self.asked.tool is not None:
            return {
                "type": "function_call",
                "id": self._item_id,
                "call_id": f"call-{self.id}",
                "name": self.asked.tool.name,
                "arguments": text,
                "status": status,
            }
        return {
            "type": "message",
            "id": self._item_id,
            "role": "assistant",
            "status": status,
            "content": [] if status == "in_progress" else [_text(text)],
        }

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: Usage | None
    ) -> dict[str, Any]:
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        return {
            "id": self.id,
            "object": "response",
            "created_at": base.CREATED,
            "model": self.model,
            "status": status,
            "error": None,
            "incomplete_details": reason,
            "instructions": None,
            "metadata": {},
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": None if usage is None else _usage(usage),
        }


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.output_tokens,
    }
