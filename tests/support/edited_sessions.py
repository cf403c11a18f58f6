"""Agents whose bodies grow, in all three APIs, and what may happen to their histories."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from random import Random
from typing import Any

PATHS = {
    "chat": "/v1/chat/completions", "messages": "/v1/messages", "responses": "/v1/responses",
}  # fmt: skip
TEXTS = (
    "plain words, and a {brace] or two", 'a "quoted" word\\', "line\nline\ttab", "ünïcödé ✓ 漢字",
    "\x1b[31mred\x1b[0m", "<|im_end|>", "", " ", "]}", '"uuid": "x"', "x" * 700,
)  # fmt: skip


@dataclass
class Client:
    """An agent whose body grows, in one API and one style of JSON."""

    random: Random
    api: str
    messages: list[Any] = field(default_factory=list)
    others: dict[str, Any] = field(default_factory=dict)
    first: bool = True
    named: bool = False

    def __post_init__(self) -> None:
        random = self.random
        self.style: dict[str, Any] = {
            "ensure_ascii": random.random() < 0.5,
            "separators": random.choice([(",", ":"), (", ", ": ")]),
            "indent": random.choice([None, None, 1]),
        }
        self.first = random.random() < 0.5
        tools = [{"type": "function", "function": {"name": "f", "description": self.text()}}]
        self.others = {"model": "m", "max_tokens": 5, "tools": tools}
        if self.api == "messages":
            self.others["system"] = [{"type": "text", "text": self.text()}]
        elif self.api == "responses":
            self.others["instructions"] = self.text()
        elif random.random() < 0.8:
            self.messages.append({"role": "system", "content": self.text() * 9})
        for _ in range(random.randrange(6, 14)):
            self.turn()

    def text(self) -> str:
        return " ".join(self.random.choice(TEXTS) for _ in range(self.random.randrange(1, 9)))

    def turn(self) -> None:
        """Add an answer and what follows it."""
        text, name = self.text(), f"call_{self.random.getrandbits(64):016x}"
        arguments = json.dumps({"text": self.text()})
        if self.api == "messages":
            used = {"type": "tool_use", "id": name, "name": "f", "input": {"text": self.text()}}
            said = [{"type": "text", "text": text or "x"}, used]
            result: list[Any] = [
                {"type": "tool_result", "tool_use_id": name, "content": self.text()}
            ]
            if self.random.random() < 0.3:
                result.append({"type": "text", "text": self.text()})
            self.messages += [
                {"role": "user", "content": self.text()},
                {"role": "assistant", "content": said},
                {"role": "user", "content": result},
            ]
        elif self.api == "responses":
            self.messages += [
                {"role": "user", "content": [{"type": "input_text", "text": text}]},
                {"type": "function_call", "call_id": name, "name": "f", "arguments": arguments},
                {"type": "function_call_output", "call_id": name, "output": self.text()},
            ]
        else:
            called = {"id": name, "type": "function"}
            called["function"] = {"name": "f", "arguments": arguments}
            self.messages += [
                {"role": "user", "content": text},
                {"role": "assistant", "content": None, "tool_calls": [called]},
                {"role": "tool", "tool_call_id": name, "content": self.text()},
            ]

    def body(self) -> bytes:
        """Return the body, with the list of messages first or last."""
        content = {"input" if self.api == "responses" else "messages": self.messages}
        whole = {**content, **self.others} if self.first else {**self.others, **content}
        return json.dumps(whole, **self.style).encode()


def one_byte(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(raw))
    return raw[:at] + bytes([client.random.randrange(32, 127)]) + raw[at + 1 :]


def inserted(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(raw))
    return raw[:at] + client.random.choice([b" ", b"\n", b"a", b"\\u0041", b'"', b","]) + raw[at:]


def duplicate(client: Client, raw: bytes) -> bytes:
    twice = client.random.choice(
        [b'"model":"m",', b'"messages":[],', b'"input":[],', b'"weft":{},']
    )
    return (
        b"{" + twice + raw[1:]
        if client.random.random() < 0.5
        else raw[:-1] + b"," + twice[:-1] + b"}"
    )


def tools(client: Client, raw: bytes) -> bytes:
    client.others["tools"][0]["function"]["description"] += ", too" * 20
    return client.body()


def removed(client: Client, raw: bytes) -> bytes:
    if len(client.messages) > 4:
        del client.messages[client.random.randrange(1, len(client.messages))]
    return client.body()


def compacted(client: Client, raw: bytes) -> bytes:
    client.messages[1:-3] = [{"role": "user", "content": "Summary: " + client.text()}]
    for _ in range(9):
        client.turn()
    return client.body()


def reordered(client: Client, raw: bytes) -> bytes:
    at = client.random.randrange(len(client.messages))
    if isinstance(client.messages[at], dict):
        client.messages[at] = dict(reversed(client.messages[at].items()))
    client.others = dict(reversed(client.others.items()))
    return client.body()


def trailing(client: Client, raw: bytes) -> bytes:
    name = client.random.choice(["weft", "session_id", "priority", "vllm_xargs", "cache_salt", "n"])
    client.others[name] = {
        "weft": {"priority": 1}, "session_id": "s", "priority": 3, "vllm_xargs": {"a": 1},
        "cache_salt": "salt", "n": 2,
    }[name]  # fmt: skip
    return client.body()


def marked(client: Client, raw: bytes) -> bytes:
    for message in client.messages[-3:]:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list) and content:
            content[-1]["cache_control"] = {"type": "ephemeral"}
    return client.body()


def named(client: Client, raw: bytes) -> bytes:
    client.named = True
    part = {"type": "image_url", "image_url": {"url": "data:x"}, "uuid": "picture"}
    client.messages.append({"role": "user", "content": [part]})
    return client.body()


def odd(client: Client, raw: bytes) -> bytes:
    client.messages.append(client.random.choice([None, 7, "text", [], {}]))
    return client.body()


def retried(client: Client, raw: bytes) -> bytes:
    return raw


def grown(client: Client, raw: bytes) -> bytes:
    client.turn()
    return client.body()


EDITS = (
    *[grown] * 10, one_byte, one_byte, inserted, inserted, duplicate, tools, removed, compacted,
    reordered, trailing, marked, named, odd, retried,
)  # fmt: skip
