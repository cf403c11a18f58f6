"""Builds agents' calls as chat messages. Pure.

All calls are chats, which agents use and every front can read. A trace with parts and no text gets
generated text: a word for each token, a message for each part. Each word is one token of the demo
model, which emulated engines have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as with_values
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace
from weft_deploy.local.demo import corpus

from weft_bench.workloads.cutting import ReadyCall
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.traces.coding import ids_of

# Tool output has the user's role, as in Anthropic's dialect, because tool roles need ids of tool
# calls.
_ROLE_OF_KIND: Final = {"system": "system", "assistant": "assistant"}
_WORDS: Final = 256
# Tokens that the demo model's template adds: around instructions at the start, around another
# message, and before the answer.
_INSTRUCTIONS: Final = 6
_MESSAGE: Final = 5
_ANSWER: Final = 3


def messages_of(call: TraceCall) -> tuple[Mapping[str, Any], ...]:
    """Return the call's messages, generated from its parts if it has none. Raises ValueError if it
    has neither.
    """
    if not (call.messages or call.parts):
        raise ValueError("the call has neither messages nor parts")
    return call.messages or tuple(map(_message, call.parts))


def exact_chat(ready: ReadyCall, name: str) -> ReadyCall:
    """Return a call of parts with messages, and with the parts that are the same prompt: they have
    exactly the tokens that the demo model's chat template makes of the messages.

    name: of the call. The prompt has three tokens more than before. A call without parts is
    returned unchanged.
    """
    if not ready.call.parts:
        return ready
    told, prompt = [], []
    for number, part in enumerate(ready.call.parts):
        around = _MESSAGE if number or part.kind != "system" else _INSTRUCTIONS
        words = max(1, part.tokens - around)
        told.append(Part(part.name, words, part.kind))
        prompt.append((part.name, words + around))
    messages = messages_of(TraceCall(parts=tuple(told)))
    # The gateway knows a message by its role.
    roles = [str(message["role"]) for message in messages]
    parts = [Part(*part, role) for part, role in zip(prompt, roles, strict=True)]
    parts.append(Part(f"{name}/answer", _ANSWER, "assistant"))
    call = replace(ready.call, messages=messages, parts=tuple(parts))
    return with_values(ready, call=call, prompt_tokens=sum(part.tokens for part in parts))


def body_of(call: TraceCall, messages: Sequence[Any], model: str, max_tokens: int) -> bytes:
    """Return the body of a streamed chat completion that generates exactly the recorded length."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if call.tools:
        body["tools"], body["tool_choice"] = list(call.tools), "none"
    return json.dumps(body).encode()


def _message(part: Part) -> Mapping[str, Any]:
    # Each part stays a message, so that a longer prompt begins with the messages of a shorter one.
    role = _ROLE_OF_KIND.get(part.kind, "user")
    return {"role": role, "content": _text(ids_of(part.name, part.tokens))}


def _text(ids: Iterable[int]) -> str:
    words = _words()
    return "".join([words[number % _WORDS] for number in ids])


@lru_cache(maxsize=1)
def _words() -> list[str]:
    """Return frequent words, each with the space before it."""
    return [f" {word}" for word in corpus.words()[:_WORDS]]
