"""A fake engine that parses strictly, answers at once, and records invalid requests.

A request head is invalid if two parsers could read it in different ways.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter

_CALLS = rb"/v1/(?:chat/completions|completions|responses|messages|embeddings)"
_OTHER = (
    rb"/v1/responses/resp_[A-Za-z0-9_-]{1,128}(?:/cancel|/input_items)?"
    rb"|/v1/messages/count_tokens|/tokenize|/detokenize"
)
_ASIDE = rb"/health|/v1/models|/weft/state|/weft/kv|/weft/calls/call-[0-9a-f-]+"
_QUERY = rb"(?:\?[A-Za-z0-9._~!$&'()*+,;=:@/?%-]+)?"
_LINE = re.compile(
    rb"(GET|POST|DELETE) (?:((?:%b))|((?:%b))|(?:%b))%b HTTP/1\.1"
    % (_CALLS, _OTHER, _ASIDE, _QUERY)
)
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ?([\t -~\x80-\xff]*)")
_CALL = re.compile(rb"call-[0-9a-f]+-[0-9a-f]+")
_SALT = re.compile(r"[0-9a-f]{64}")
_FORWARDED = {
    b"accept", b"accept-language", b"baggage", b"content-type", b"traceparent", b"tracestate",
    b"user-agent",
}  # fmt: skip
_PREFIXES = (b"x-vllm-", b"anthropic-", b"openai-")
_CREDENTIAL = re.compile(rb"key|token|secret|auth|cookie|organization|project")
_OWN = {b"host", b"content-length", b"x-request-id", b"x-weft-call", b"x-weft-context"}
_OWN_ASIDE = {b"accept-encoding", b"connection", b"x-weft-secret"}

_STATE = {"weft": {"policy": "fcfs"}}
_MODELS = {"object": "list", "data": [{"id": "tiny", "object": "model", "max_model_len": 4096}]}


def _answer(body: object) -> bytes:
    raw = json.dumps(body).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(raw),
        raw,
    )


class Recorder:
    """Checks requests. wrong: findings, each with its request head. served: requests by kind.

    marks: texts that must not appear in a head or in a call's body.
    """

    def __init__(self, marks: tuple[bytes, ...]) -> None:
        self.wrong: list[str] = []
        self.served: Counter[str] = Counter()
        self._marks = marks
        self._next = 0
        self._asides = {b"/v1/models": _answer(_MODELS), b"/weft/state": _answer(_STATE)}
        self._plain = _answer({})

    def take(self, head: bytes, body: bytes) -> bytes:
        """Check a request, and return the answer to it."""
        line, *fields = head.split(b"\r\n")
        found = _LINE.fullmatch(line)
        if found is None:
            self._note("its line", head)
            return self._plain
        kind = "call" if found[2] else "other" if found[3] else "aside"
        self.served[kind] += 1
        self._check_fields(kind, head, fields)
        if any(mark in head for mark in self._marks):
            self._note("a mark", head)
        if kind == "aside":
            return self._asides.get(line.split(b" ")[1], self._plain)
        if kind == "call":
            self._check_body(head, body)
            self._next += 1
            return _answer({"id": f"resp_{self._next:032x}", "object": "any"})
        return self._plain

    def _check_fields(self, kind: str, head: bytes, fields: list[bytes]) -> None:
        names: Counter[bytes] = Counter()
        for field in fields:
            parts = _FIELD.fullmatch(field)
            if parts is None:
                self._note(f"the field {field!r}", head)
                continue
            name, value = parts[1].lower(), parts[2]
            names[name] += 1
            forwarded = name in _FORWARDED or (
                name.startswith(_PREFIXES) and not _CREDENTIAL.search(name)
            )
            if not (forwarded or name in _OWN or (kind == "aside" and name in _OWN_ASIDE)):
                self._note(f"the header {name!r}", head)
            if name in (b"x-request-id", b"x-weft-call") and not _CALL.fullmatch(value):
                self._note(f"the id {value!r}", head)
        twice = [name for name in _OWN if names[name] > 1]
        if twice or names[b"host"] != 1:
            self._note(f"{twice} twice, or no host", head)

    def _check_body(self, head: bytes, body: bytes) -> None:
        if any(mark in body for mark in self._marks):
            self._note(f"a mark in its body {body!r}", head)
        sent = json.loads(body)
        salt = sent.get("cache_salt")
        if salt is not None and salt != "" and not _SALT.fullmatch(str(salt)):
            self._note(f"the salt {salt!r}", head)
        if "request_id" in sent:
            self._note(f"the request id {sent['request_id']!r}", head)

    def _note(self, what: str, head: bytes) -> None:
        if len(self.wrong) < 20:
            self.wrong.append(f"{what}: {head!r}")


class RecordingProtocol(asyncio.Protocol):
    """One connection of the gateway."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while True:
            head, end, rest = self._data.partition(b"\r\n\r\n")
            if not end:
                return
            size = 0
            for field in head.split(b"\r\n"):
                name, _, value = field.partition(b":")
                if name.lower() == b"content-length":
                    size = int(value)
            if len(rest) < size:
                return
            self._data = rest[size:]
            assert self._transport is not None
            self._transport.write(self._recorder.take(head, rest[:size]))
