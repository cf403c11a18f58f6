"""What agents send: calls as chat messages, and how much of a prompt was sent before. Pure.

All calls are chats, since that is what agents speak and what every front reads. Where a trace has
token ids and no text, its text is made: a word of four characters for each token, in messages as
the trace's tags have it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from weft_bench.simulated.dialects.chat import Chat
from weft_bench.simulated.tokens import block_hashes, word
from weft_bench.workloads.schema import TraceCall

# Tool output comes back as the user's, as in Anthropic's dialect: ids of tool calls would have to
# be invented otherwise.
_ROLES: Final = {
    "SYSTEM_PROMPT": "system",
    "USER_QUERY": "user",
    "TOOL_OUTPUT": "user",
    "RESPONSE": "assistant",
}


def messages_of(call: TraceCall) -> tuple[Mapping[str, Any], ...]:
    """The call's messages; made of its token ids where it has none. ValueError where it has
    neither."""
    if call.messages:
        return call.messages
    if not call.prompt_ids:
        raise ValueError("the call has neither messages nor token ids")
    spans = call.tags or ((len(call.prompt_ids), "USER_QUERY"),)
    made, start = [], 0
    for end, tag in spans:
        text = "".join(map(word, call.prompt_ids[start:end]))
        made.append({"role": _ROLES[tag], "content": text})
        start = end
    return tuple(made)


def body_of(call: TraceCall, messages: Sequence[Any], model: str, max_tokens: int) -> bytes:
    """The body of a chat completion. The recorded length is generated exactly."""
    body: dict[str, Any] = {
        "model": model,
        "messages": list(messages),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    if call.tools:
        body["tools"], body["tool_choice"] = list(call.tools), "none"
    return json.dumps(body).encode()


def blocks_of(body: bytes, block_tokens: int) -> tuple[int, ...]:
    """A hash for each whole block of the prompt and all before it."""
    return tuple(block_hashes(prompt_of(body), block_tokens))


def prompt_of(body: bytes) -> bytes:
    """The prompt as a simulated replica has it: four bytes a token."""
    return Chat.read(json.loads(body), {}).prompt


def known(blocks: Sequence[int], sent: Collection[int]) -> int:
    """How many of a prompt's first blocks were sent before."""
    for count, block in enumerate(blocks):
        if block not in sent:
            return count
    return len(blocks)
