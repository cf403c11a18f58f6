"""Builds agents' calls as chat messages, and finds the part of a prompt that was sent before. Pure.

All calls are chats, which agents use and every front can read. A trace with token ids or parts and
no text gets generated text: a word for each token, in messages that follow the trace's tags or
parts. Each word is one token of the demo model, which emulated engines have.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec.structs import replace
from weft_deploy.local.demo import corpus

from weft_bench.peers.turns import CALLS_TOOL, tool_message
from weft_bench.workloads.schema import Part, TraceCall
from weft_bench.workloads.traces.coding import ids_of

# Tool output has the user's role, as in Anthropic's dialect, because tool roles need ids of tool
# calls. Plays with targets of turns give it the role of a tool.
_ROLES: Final = {
    "SYSTEM_PROMPT": "system",
    "USER_QUERY": "user",
    "TOOL_OUTPUT": "user",
    "RESPONSE": "assistant",
}
_ROLE_OF_KIND: Final = {"system": "system", "assistant": "assistant"}
_WORDS: Final = 256
# Estimates the bytes of a block. The engine's tokenizer and template are not known here.
_BYTES_PER_TOKEN: Final = 4


def messages_of(call: TraceCall, *, tools: bool = False) -> tuple[Mapping[str, Any], ...]:
    """Return the call's messages, generated from its token ids or parts if it has none.

    tools: generated tool output has the role of a tool.

    Raises ValueError if it has no messages, no token ids and no parts.
    """
    if call.messages:
        return call.messages
    if call.parts:
        return tuple(map(_message, call.parts))
    if not call.prompt_ids:
        raise ValueError("the call has neither messages nor token ids nor parts")
    spans = call.tags or ((len(call.prompt_ids), "USER_QUERY"),)
    made: list[Mapping[str, Any]] = []
    start = 0
    for end, tag in spans:
        text = _text(call.prompt_ids[start:end])
        is_tool = tools and tag == "TOOL_OUTPUT"
        made.append(tool_message(text) if is_tool else {"role": _ROLES[tag], "content": text})
        start = end
    return tuple(made)


def as_chat(call: TraceCall, *, tools: bool = False) -> TraceCall:
    """Return the call with `messages_of` as its prompt."""
    return replace(call, messages=messages_of(call, tools=tools), prompt_ids=(), tags=(), parts=())


def body_of(
    call: TraceCall,
    messages: Sequence[Any],
    model: str,
    max_tokens: int,
    *,
    calls_tool: bool = False,
) -> bytes:
    """Return the body of a chat completion that generates exactly the recorded length.

    calls_tool: asks the call log of the engine for a tool call in the answer.
    """
    body: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    if call.tools:
        body["tools"], body["tool_choice"] = list(call.tools), "none"
    if calls_tool:
        body["metadata"] = {"answer": CALLS_TOOL}
    return json.dumps(body).encode()


def blocks_of(body: bytes, block_tokens: int) -> tuple[int, ...]:
    """Return a hash for each full block of the prompt, which covers all blocks before it.

    The lengths of the blocks are estimated from the characters.
    """
    call = json.loads(body)
    text = b"".join(json.dumps(one).encode() for one in [call.get("tools"), *call["messages"]])
    size = block_tokens * _BYTES_PER_TOKEN
    found: list[int] = []
    before = 0
    for end in range(size, len(text) + 1, size):
        before = hash((before, text[end - size : end]))
        found.append(before)
    return tuple(found)


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


def known(blocks: Sequence[int], sent: Collection[int]) -> int:
    """Return how many of a prompt's first blocks were sent before."""
    for count, block in enumerate(blocks):
        if block not in sent:
            return count
    return len(blocks)
