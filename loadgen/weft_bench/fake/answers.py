"""The bytes of all answers, precomputed if possible. Pure.

A streamed answer has one HTTP chunk per SSE event, so that each can be one write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import orjson
from weft_engine.wire import REPORT_COMMENT

from weft_bench.fake.http import END_OF_BODY, STREAM_HEAD, chunk, json_response, response

WORD: Final = " weft"
CREATED: Final = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one answer."""

    prompt_tokens: int
    output_tokens: int

    def to_bytes(self) -> bytes:
        """Return the `usage` object as JSON."""
        return b'{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}' % (
            self.prompt_tokens,
            self.output_tokens,
            self.prompt_tokens + self.output_tokens,
        )


def models(name: str) -> bytes:
    """Return the whole response of `GET /v1/models`."""
    card = {
        "id": name,
        "object": "model",
        "created": CREATED,
        "owned_by": "weft-mock-engine",
        "mock": True,
        "root": name,
        "parent": None,
    }
    return json_response({"object": "list", "data": [card]})


def event(data: bytes) -> bytes:
    """Return one SSE event as one HTTP chunk."""
    return chunk(b"data: %b\n\n" % data)


def response_events(model: str, usage: Usage) -> tuple[bytes, ...]:
    """Return a streamed answer of the Responses API, one item per write.

    Each word is a delta of some kilobytes, so that a slow reader fills all buffers on the path.
    """

    def named(kind: str, **more: Any) -> bytes:
        return chunk(
            b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps({"type": kind, **more}))
        )

    whole = {
        "id": "resp-mock",
        "object": "response",
        "created_at": CREATED,
        "model": model,
        "status": "completed",
        "output": [],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "output_tokens": usage.output_tokens,
            "total_tokens": usage.prompt_tokens + usage.output_tokens,
        },
    }
    word = named("response.output_text.delta", delta=WORD * 512)
    words = [word] * usage.output_tokens
    return STREAM_HEAD, *words, named("response.completed", response=whole) + END_OF_BODY


class Answers:
    """Answers of one API (`chat` or text completions) under one model name."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._chat = chat
        identity: dict[str, Any] = {
            "id": "chatcmpl-mock" if chat else "cmpl-mock",
            "object": "chat.completion" if chat else "text_completion",
            "created": CREATED,
            "model": model,
        }
        self._plain: dict[int, bytes] = {}
        self._identity = identity
        chunk = identity | ({"object": "chat.completion.chunk"} if chat else {})
        self._first = event(self._chunk(chunk, {"role": "assistant", "content": ""}, None))
        self._word = event(self._chunk(chunk, {"content": WORD}, None))
        self._last = event(self._chunk(chunk, {}, "length"))
        self._usage_open = orjson.dumps(chunk | {"choices": []})[:-1] + b',"usage":'

    def _chunk(self, base: dict[str, Any], delta: dict[str, str], finish: str | None) -> bytes:
        said = {"delta": delta} if self._chat else {"text": delta.get("content", "")}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": finish}
        return orjson.dumps(base | {"choices": [choice]})

    def plain(self, usage: Usage) -> bytes:
        """Return a whole response of `usage.output_tokens` words."""
        words = usage.output_tokens
        opened = self._plain.get(words)
        if opened is None:
            text = WORD * words
            said = (
                {"message": {"role": "assistant", "content": text}}
                if self._chat
                else {"text": text}
            )
            choice = {"index": 0, **said, "logprobs": None, "finish_reason": "length"}
            body = self._identity | {"choices": [choice]}
            opened = self._plain[words] = orjson.dumps(body)[:-1] + b',"usage":'
        return response(200, opened + usage.to_bytes() + b"}")

    def stream(self, usage: Usage, *, include_usage: bool, call: bytes = b"") -> tuple[bytes, ...]:
        """Return a streamed response, one item per write.

        It has a role chunk (chat), one chunk per word, the finish reason, the usage if requested,
        and `[DONE]`. call: the call that the plugin's report at the end is about, b"" for none.
        """
        parts = [STREAM_HEAD + self._first] if self._chat else [STREAM_HEAD + self._word]
        parts += [self._word] * (usage.output_tokens - (0 if self._chat else 1))
        end = self._last
        if include_usage:
            end += event(self._usage_open + usage.to_bytes() + b"}")
        end += event(b"[DONE]")
        if call:
            end += chunk(
                b'%b{"call":"%b","service_s":0.01,"prompt_tokens":%d,"output_tokens":%d}\n\n'
                % (REPORT_COMMENT, call, usage.prompt_tokens, usage.output_tokens)
            )
        parts.append(end + END_OF_BODY)
        return tuple(parts)
