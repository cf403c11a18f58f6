"""The state of one call: the one object that changes while the call is served."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from weft_engine.wire import CallContext, CallReport

from weft_gateway.calls.limits import Admitted
from weft_gateway.engine.endpoints import BY_PATH, Endpoint
from weft_gateway.engine.tokens import Counted
from weft_gateway.model import Decision, Outcome, Program, ProgramKey, PromptPrefix
from weft_gateway.model.hint import NO_HINTS, Hints
from weft_gateway.model.record import record
from weft_gateway.overlap.prefill import Prefill
from weft_gateway.policies.tags_sections import Section
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.lineage.rules import Asked
from weft_gateway.telemetry.receipts import Receipt


@dataclass(frozen=True, slots=True)
class Caller:
    """A client. tenant: a digest of its key. salt: of the prefix cache; "" for anonymous ones,
    who share what stock vLLM would share among them."""

    tenant: str
    salt: str


@record
class Placed:
    """A proposal for the process table. reason: why it is not the router's own, else "". prefix:
    what the prompt begins with, where the replica was chosen as a home."""

    replica: str
    sticky: bool
    decision: Decision
    prompt_tokens: int
    reason: str
    prefix: PromptPrefix | None


# Takes bytes of a stream; returns those for the client.
Tap = Callable[[bytes], bytes]
Hook = Callable[["Call"], Awaitable[None] | None]
HeadHook = Callable[["Call"], Tap | None]


@dataclass(slots=True)
class Hooks:
    """What observers do in the course of a call (`weft_gateway.calls.observers`)."""

    arrived: list[Hook] = field(default_factory=list)
    opened: list[Hook] = field(default_factory=list)
    sending: list[Hook] = field(default_factory=list)
    head: list[HeadHook] = field(default_factory=list)
    closed: list[Hook] = field(default_factory=list)
    ended: list[Hook] = field(default_factory=list)


# The gateway's own calls, which compute what turns begin with.
PREFILL: Final = replace(BY_PATH["/v1/chat/completions"], name="prefill")
UNKNOWN_CALLER: Final = Caller("", "")
UNIDENTIFIED: Final = Identity(ProgramKey("", ""), MAIN_THREAD, "", "none", True)
_NO_PROGRAM: Final = Program(ProgramKey("", ""), 0.0)


def call_ids() -> Callable[[], str]:
    """A source of call ids, unique over processes."""
    prefix = os.urandom(6).hex()
    count = itertools.count(1)
    return lambda: f"call-{prefix}-{next(count):x}"


@dataclass(slots=True, eq=False)
class Call:
    """One call, from its request to its last byte. Each part of the path fills in what it finds.
    Durations are in seconds on the performance counter, since `begun`."""

    # id: to engines and the process table. headers: as ASGI has them. request_id: the client's, or
    # one made for it. begun: when the request arrived. hooks: of the endpoint.
    id: str
    endpoint: Endpoint
    headers: list[tuple[bytes, bytes]]
    request_id: bytes
    begun: float
    hooks: Hooks

    # The request. target: path and query for the engine. skimmed: the content of the body was too
    # long to be read. model: "" where the engine decides. program: as the path named it.
    # prefill_id: of the prefill that the path names. tool_dispatch: the client wants complete tool
    # calls in its stream. tags: the only tags of the prompt.
    target: bytes = b""
    body: dict[str, Any] = field(default_factory=dict)
    caller: Caller = UNKNOWN_CALLER
    raw: bytes = b""
    skimmed: bool = False
    model: str = ""
    program_in_path: str | None = None
    prefill_id: str = ""
    hints: Hints = NO_HINTS
    tool_dispatch: bool = False
    tags: tuple[int, ...] | None = None

    # Whose call it is. holder: the replica that stores the answer that this call continues, or "".
    # asked: how lineage has placed the call, until it has learned the outcome. prefill: the one
    # that this call extends. matched: the program's prefills were compared with the call.
    identity: Identity = UNIDENTIFIED
    holder: str = ""
    asked: Asked | None = None
    prefill: Prefill | None = None
    matched: bool = False
    admitted: Admitted | None = None

    # The prompt, once it has been counted.
    sections: Sequence[Section] = ()
    counted: Counted | None = None

    # The open call. placed: what was proposed, and why. replica: "" before the call is open.
    # program: as it was when the call opened. local: the table's store was away. failed:
    # replicas that could not be reached, with the error's code. superseded: another replica has the
    # call now.
    placed: Placed | None = None
    replica: str = ""
    program: Program = _NO_PROGRAM
    local: bool = False
    failed: tuple[tuple[str, str], ...] = ()
    superseded: bool = False

    # What the engine was told. context: None where it does not run the plugin. fates: of hints, as
    # `name=fate`. expected_s: mean service of the program's calls.
    context: CallContext | None = None
    fates: tuple[str, ...] = ()
    expected_s: float | None = None
    overhead_s: float = 0.0

    # The answer. body_out: of an answer that is no stream, and no error. recorded: the pieces of a
    # stream, where an observer has asked for them; none of a stream of more than record_limit
    # bytes. response_id: of an answer that later calls can continue; stored: the replica keeps it.
    # disowned: the answer belongs to another call. dispatched: tools that the client was told of
    # within the stream, and when.
    status: int = 0
    is_stream: bool = False
    first_byte_s: float = 0.0
    body_out: bytes | None = None
    recorded: list[bytes] | None = None
    record_limit: int = 0
    response_id: str = ""
    stored: bool = False
    disowned: bool = False

    dispatched: Sequence[tuple[str, float]] = ()

    # The end. dropped: malformed reports. saved_s: seconds by overlap. tools: those that were
    # dispatched before the answer ended, and by how many seconds. error: what ended the call.
    outcome: Outcome = Outcome.ERROR
    report: CallReport | None = None
    dropped: int = 0
    saved_s: Mapping[str, float] | None = None
    tools: tuple[tuple[str, float], ...] = ()
    error: Exception | None = None
    receipt: Receipt | None = None

    @property
    def key(self) -> ProgramKey:
        """The call's program."""
        return self.identity.key

    @property
    def good(self) -> bool:
        """Whether the engine has answered without an error."""
        return self.status < 400

    def record(self, limit: int) -> None:
        """Keep the bytes of the answer, if they are at most `limit`."""
        if self.recorded is None:
            self.recorded = []
        self.record_limit = max(self.record_limit, limit)

    def answer(self) -> bytes:
        """What the engine has answered: the body, or the stream as far as it was recorded."""
        return b"".join(self.recorded or ()) if self.body_out is None else self.body_out

    def save(self, overlap: str, seconds: float) -> None:
        """An overlap took so many seconds off the call's program."""
        self.saved_s = {**(self.saved_s or {}), overlap: seconds}

    def split(self, call_id: str) -> Call:
        """The attempt so far as a call of its own, which has failed; this call goes on as a new
        one."""
        attempt = copy.copy(self)
        attempt.superseded = True
        attempt.asked = None
        self.id = call_id
        return attempt
