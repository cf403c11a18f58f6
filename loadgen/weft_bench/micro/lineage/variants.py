"""Variants of a program's calls as clients send them, for `weft bench lineage`.

No variant may change the program of a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import sha256
from typing import Any, Final

from weft_bench.micro.lineage.data import Calls, body_of

_ACT: Final = {"name": "act", "arguments": "{}"}
# Messages that a client keeps when it shortens a history.
_KEPT: Final = 8
_THOUGHT: Final = "First I look at what is asked, and then at what I have been told. "


def as_recorded(calls: Calls) -> Calls:
    """Return the calls unchanged."""
    return calls


def reasoning_dropped(calls: Calls) -> Calls:
    """Return calls whose answers contain reasoning that the client does not send back.

    The reasoning is in a separate field or in the text.
    """
    return [
        replace(call, answer=body_of(_reasoned(json.loads(call.answer or b"{}"), number)))
        for number, call in enumerate(calls)
    ]


def keys_reordered(calls: Calls) -> Calls:
    """Return calls of which every second has reordered keys and texts as lists of parts.

    The arguments of tool calls are reordered too.
    """
    return [
        replace(call, body=body_of(_parts(_backwards(json.loads(call.body)))))
        if number % 2
        else call
        for number, call in enumerate(calls)
    ]


def repeated(calls: Calls) -> Calls:
    """Return calls that each fail once and are sent again."""
    made = []
    for call in calls:
        took = call.took_s / 3
        made.append(replace(call, took_s=took, answer=None, broken=True))
        made.append(replace(call, at_s=call.at_s + 1.1 * took, took_s=1.9 * took))
    return made


def asked_twice(calls: Calls) -> Calls:
    """Return calls that are each sent again after their answer."""
    made = []
    for call in calls:
        made.append(replace(call, took_s=call.took_s / 2))
        made.append(replace(call, at_s=call.at_s + 0.6 * call.took_s, took_s=call.took_s / 3))
    return made


def clock_and_ids(calls: Calls) -> Calls:
    """Return calls whose system prompt contains the time, so that no prefix is shared.

    The model only calls a tool without arguments, so that only the ids of these calls continue.
    Programs whose prompts have no turns of the model, and so no ids, stay unchanged.
    """
    run = sha256(calls[-1].body).hexdigest()
    bodies = [json.loads(call.body) for call in calls]
    turns = [message["role"] for body in bodies for message in body.get("messages", ())]
    if "assistant" not in turns or not all("messages" in body for body in bodies):
        return calls
    made = []
    for call, body in zip(calls, bodies, strict=True):
        messages = [{"role": "system", "content": f"It is {call.at_s:.3f} s past noon."}]
        count = 0
        for message in body["messages"]:
            if message["role"] == "assistant":
                count += 1
                messages.append(_acts(run, count))
            elif count:
                text = message.get("content")
                messages.append({"role": "tool", "tool_call_id": _id(run, count), "content": text})
            else:
                messages.append(message)
        answer = {"choices": [{"message": _acts(run, count + 1)}]}
        body = body_of({**body, "messages": messages})
        made.append(replace(call, body=body, answer=body_of(answer)))
    return made


def answers_unseen(calls: Calls) -> Calls:
    """Return calls whose answers the gateway never sees."""
    return [replace(call, answer=None) for call in calls]


def one_key(calls: Calls) -> Calls:
    """Return calls with the same `prompt_cache_key` in all programs, as OpenAI recommends for
    prompts that begin alike.
    """
    return [replace(call, body=_keyed(call.body, "support-v3")) for call in calls]


def id_per_request(calls: Calls) -> Calls:
    """Return calls with a new `x-correlation-id` each, as proxies send it."""
    return _named(calls, b"x-correlation-id", lambda number: number)


def key_until_middle(calls: Calls) -> Calls:
    """Return calls with a `prompt_cache_key` per program, which changes in its middle, as some
    clients do when they compact the history.
    """
    run, middle = _run(calls), len(calls) // 2
    return [replace(c, body=_keyed(c.body, f"{run}-{n >= middle}")) for n, c in enumerate(calls)]


def compacted(calls: Calls) -> Calls:
    """Return calls of a chat whose history is shortened once, in the middle of the program, to the
    system prompt and the last messages. Without a key.
    """
    middle = len(calls) // 2
    cut = max(1, len(json.loads(calls[middle].body).get("messages", ())) - _KEPT)
    return [
        replace(call, body=_cut(call.body, cut)) if number >= middle else call
        for number, call in enumerate(calls)
    ]


def key_until_compaction(calls: Calls) -> Calls:
    """Return the same calls with a key that changes there."""
    bodies = [call.body for call in key_until_middle(calls)]
    keys = [json.loads(body)["prompt_cache_key"] for body in bodies]
    made = compacted(calls)
    return [replace(c, body=_keyed(c.body, key)) for c, key in zip(made, keys, strict=True)]


def session_per_request(calls: Calls) -> Calls:
    """Return calls with a new `x-session-id` each, which is trusted: it names a program."""
    return _named(calls, b"x-session-id", lambda number: number)


AS_RECORDED: Final = "as recorded"
VARIANTS: Final[Mapping[str, Callable[[Calls], Calls]]] = {
    AS_RECORDED: as_recorded,
    "reasoning dropped": reasoning_dropped,
    "keys reordered": keys_reordered,
    "repeated": repeated,
    "asked twice": asked_twice,
    "answers unseen": answers_unseen,
    "clock and ids": clock_and_ids,
}
# Calls with names that mislead. Those of sessions are trusted.
NAMES: Final[Mapping[str, Callable[[Calls], Calls]]] = {
    "one cache key": one_key,
    "id per request": id_per_request,
    "key until the middle": key_until_middle,
    "compacted, no key": compacted,
    "compacted, new key": key_until_compaction,
    "session per request": session_per_request,
}


def _run(calls: Calls) -> str:
    return sha256(calls[-1].body).hexdigest()[:16]


def _keyed(body: bytes, key: str) -> bytes:
    return body_of({**json.loads(body), "prompt_cache_key": key})


def _named(calls: Calls, header: bytes, part: Callable[[int], int]) -> Calls:
    """Return calls with a header whose value differs by program and by part of the program."""
    run = _run(calls)
    return [
        replace(call, headers=((header, f"{run}-{part(number)}".encode()),))
        for number, call in enumerate(calls)
    ]


def _cut(body: bytes, cut: int) -> bytes:
    """Return a body whose chat lacks the messages after the first one, up to `cut`."""
    read = json.loads(body)
    if "messages" in read:
        read["messages"] = [read["messages"][0], *read["messages"][cut:]]
    return body_of(read)


def _acts(run: str, number: int) -> dict[str, Any]:
    call = {"id": _id(run, number), "type": "function", "function": _ACT}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _id(run: str, number: int) -> str:
    return f"call_{sha256(f'{run} {number}'.encode()).hexdigest()[:24]}"


def _reasoned(answer: dict[str, Any], number: int) -> dict[str, Any]:
    choice = answer["choices"][0]
    if "text" in choice:
        choice["text"] = f"<think>{_THOUGHT}</think>{choice['text']}"
    elif number % 2:
        choice["message"]["reasoning_content"] = _THOUGHT
    else:
        said = choice["message"].get("content") or ""
        choice["message"]["content"] = f"<think>{_THOUGHT}</think>\n\n{said}"
    return answer


def _backwards(value: Any) -> Any:
    if isinstance(value, dict):
        turned = {key: _backwards(value[key]) for key in sorted(value, reverse=True)}
        if isinstance(turned.get("arguments"), str):
            turned["arguments"] = json.dumps(_backwards(json.loads(turned["arguments"])), indent=1)
        return turned
    return [_backwards(item) for item in value] if isinstance(value, list) else value


def _parts(body: dict[str, Any]) -> dict[str, Any]:
    for message in body.get("messages", ()):
        if message.get("content"):
            message["content"] = [{"text": message["content"], "type": "text"}]
    return body
