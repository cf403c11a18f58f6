"""The state of one call: the only mutable object of a call."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from weft_engine.wire import CallContext, CallReport

from weft_gateway.calls.body_bytes import HeldBytes
from weft_gateway.calls.client import Disconnect
from weft_gateway.calls.limits import Admitted
from weft_gateway.engine.endpoints import BY_PATH, Endpoint
from weft_gateway.engine.tokens import Counted
from weft_gateway.model import Decision, Outcome, Program, ProgramKey, PromptPrefix
from weft_gateway.model.hint import NO_HINTS, Hints
from weft_gateway.model.record import record
from weft_gateway.model.slo import Ask, CallBudget
from weft_gateway.model.spending import NO_ALLOWANCE, Allowance, Charge
from weft_gateway.model.usage import Usage
from weft_gateway.overlap.answers import parse_answer
from weft_gateway.overlap.prefill import Prefill
from weft_gateway.policies.admission import Claim
from weft_gateway.policies.tags_sections import Section
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.lineage.rules import Asked
from weft_gateway.programs.prompts import Found
from weft_gateway.programs.response_store import Connection
from weft_gateway.telemetry.receipts import Receipt
from weft_gateway.transcripts.reading import Reading
from weft_gateway.transcripts.transcript import Known, expanded

if TYPE_CHECKING:
    from weft_gateway.calls.features.traces import CallTrace


@dataclass(frozen=True, slots=True)
class Caller:
    """A client. tenant: a digest of its key. salt: of the prefix cache; "" for anonymous clients,
    which share the cache like clients of stock vLLM.
    """

    tenant: str
    salt: str


@record
class Placed:
    """A proposal for the process table. reason: why the router's choice was overridden, else "".
    prefix: the prompt's beginning, if the replica was chosen as a home.
    """

    replica: str
    sticky: bool
    decision: Decision
    prompt_tokens: int
    reason: str
    prefix: PromptPrefix | None


@record
class Plan:
    """The gateway's plan for a call that it makes itself, such as a request of a batch. No client
    can set it. replica: where the call should run. service_s: predicted service of the whole
    program, seconds, which counts from its first call on. ask: the program's goal.
    """

    replica: str
    service_s: float
    ask: Ask | None = None


@record
class Failed:
    """How a call failed. status, code: of the error that the client gets; 0 and "" if it gets none,
    because it has left or the gateway has a fault.

    The exception itself is not kept: its traceback refers to the call and to all bodies.
    """

    status: int = 0
    code: str = ""


# Takes bytes of a stream and returns the bytes for the client.
Tap = Callable[[bytes], bytes]
Hook = Callable[["Call"], Awaitable[None] | None]
StreamHook = Callable[["Call"], Tap | None]


@dataclass(slots=True)
class Hooks:
    """The hooks of a call's observers (`weft_gateway.calls.observers`)."""

    arrived: list[Hook] = field(default_factory=list)
    held: list[Hook] = field(default_factory=list)
    opened: list[Hook] = field(default_factory=list)
    sending: list[Hook] = field(default_factory=list)
    head: list[Hook] = field(default_factory=list)
    streams: list[StreamHook] = field(default_factory=list)
    closed: list[Hook] = field(default_factory=list)
    ended: list[Hook] = field(default_factory=list)


# The gateway's own calls, which prefill the beginning of a turn.
PREFILL: Final = replace(BY_PATH["/v1/chat/completions"], name="prefill")
# The calls of batches have their own label in metrics, and no features that predict a next turn.
BATCH: Final = {
    path: replace(endpoint, name=f"batch_{endpoint.name}") for path, endpoint in BY_PATH.items()
}
UNKNOWN_CALLER: Final = Caller("", "")
UNIDENTIFIED: Final = Identity(ProgramKey("", ""), MAIN_THREAD, "", "none", True)
_NO_PROGRAM: Final = Program(ProgramKey("", ""), 0.0)


def call_ids() -> Callable[[], str]:
    """Return a source of call ids that are unique across processes."""
    prefix = os.urandom(6).hex()
    count = itertools.count(1)
    return lambda: f"call-{prefix}-{next(count):x}"


@dataclass(slots=True, eq=False)
class Call:
    """One call, from its request to its last byte. Each step of the path fills in its results.
    Durations are in seconds on the performance counter, since `begun`.
    """

    # id: for engines and the process table. headers: in ASGI form. request_id: the client's, or a
    # generated one. begun: arrival of the request. hooks: of the endpoint. client: its connection,
    # while it waits.
    id: str
    endpoint: Endpoint
    headers: list[tuple[bytes, bytes]]
    request_id: bytes
    begun: float
    hooks: Hooks
    client: Disconnect | None = None

    # The request. target: path and query for the engine. raw: the bytes of the body, until the
    # engine has them; size: their number; held: counts them. skimmed: the body was too long to read
    # its content. text_bytes: its size, in which media count as media; 0 before it is needed.
    # model: "" if the engine decides. program: from the path. prefill_id: from the path.
    # tool_dispatch: the client requests complete tool calls in its stream. tags: override all other
    # tags of the prompt. plan: of a call that the gateway makes. reading: where the messages of a
    # long body are, and which of them are known; they are not in `body`.
    target: bytes = b""
    body: dict[str, Any] = field(default_factory=dict)
    caller: Caller = UNKNOWN_CALLER
    raw: bytes = b""
    size: int = 0
    held: HeldBytes | None = None
    skimmed: bool = False
    reading: Reading | None = None
    text_bytes: int = 0
    model: str = ""
    program_in_path: str | None = None
    prefill_id: str = ""
    hints: Hints = NO_HINTS
    tool_dispatch: bool = False
    tags: tuple[int, ...] | None = None
    plan: Plan | None = None

    # Stored answers. connection: keeps the answers that are not stored. continued: the id of the
    # answer that this call continues, or "". previous: its name in the store. items: the call's own
    # input. The body contains the continued answers instead of their name.
    connection: Connection | None = None
    continued: str = ""
    previous: str = ""
    items: bytes = b""

    # The identity. asked: lineage's verdict, until lineage has learned the outcome. prefill: the
    # one that this call extends. matched: the program's prefills were compared with the call. ask:
    # the goal that the call asks for.
    identity: Identity = UNIDENTIFIED
    asked: Asked | None = None
    prefill: Prefill | None = None
    matched: bool = False
    admitted: Admitted | None = None
    ask: Ask | None = None

    # Budgets. allowance: of a program without one, as the client asks. charges: accounts that pay
    # beside the program. balances: of all budgets, for the client. held_for_budget: it waits, or
    # has waited, until one is raised.
    allowance: Allowance = NO_ALLOWANCE
    charges: tuple[Charge, ...] = ()
    balances: tuple[Any, ...] = ()
    held_for_budget: bool = False

    # The prompt, once its tokens have been counted.
    sections: Sequence[Section] = ()
    counted: Counted | None = None

    # found: how the prompt continues earlier ones, until the call closes. sources: where its tokens
    # came from, as in receipts. None if unknown. repairs: the rules that have changed it.
    found: Found | None = None
    sources: dict[str, Any] | None = None
    repairs: tuple[str, ...] = ()

    # The open call. placed: the proposal and its reason. replica: "" before the call is open.
    # program: its state when the call opened. local: the table's store was away. failed: replicas
    # that could not be reached, with error codes. superseded: another replica has the call now.
    # shared_tokens: of the prompt's beginning, which the replica received from other programs.
    # stage: as its prompt tells it, "" before it is needed. claim: on the replica's memory.
    # memory_wait_s: how long it waited for it. held_s: how long the gateway held it otherwise.
    placed: Placed | None = None
    replica: str = ""
    program: Program = _NO_PROGRAM
    local: bool = False
    failed: tuple[tuple[str, str], ...] = ()
    superseded: bool = False
    shared_tokens: int = 0
    stage: str = ""
    claim: Claim | None = None
    memory_wait_s: float = 0.0
    held_s: float = 0.0

    # The data sent to the engine. context: None for engines without the plugin. fates: of hints, as
    # `name=fate`. expected_s: mean service of the program's calls. budget: None without a target.
    context: CallContext | None = None
    fates: tuple[str, ...] = ()
    expected_s: float | None = None
    budget: CallBudget | None = None
    overhead_s: float = 0.0

    # The answer. body_out: of a non-streamed answer without an error. recorded: the pieces of a
    # stream, if an observer requested them; empty above record_limit bytes. early: the client has
    # the head of a stream, although the engine has not answered. response_id: of an answer that
    # later calls can continue; response: its JSON, b"" until it is known. disowned: the answer
    # belongs to another call. dispatched: tools that the client received within the stream, and
    # when.
    status: int = 0
    is_stream: bool = False
    early: bool = False
    first_byte_s: float = 0.0
    body_out: bytes | None = None
    recorded: list[bytes] | None = None
    record_limit: int = 0
    response_id: str = ""
    response: bytes = b""
    disowned: bool = False

    dispatched: Sequence[tuple[str, float]] = ()

    # The end. dropped: malformed reports. saved_s: seconds by overlap. tools: those that were
    # dispatched before the answer ended, and by how many seconds. error: None if it was answered.
    # answer_usage: the usage in the answer of an engine that sends no report.
    outcome: Outcome = Outcome.ERROR
    report: CallReport | None = None
    answer_usage: Usage | None = None
    dropped: int = 0
    saved_s: Mapping[str, float] | None = None
    tools: tuple[tuple[str, float], ...] = ()
    error: Failed | None = None
    receipt: Receipt | None = None
    trace: CallTrace | None = None
    _parsed: dict[str, Any] | None = None

    @property
    def key(self) -> ProgramKey:
        """The call's program."""
        return self.identity.key

    @property
    def known(self) -> Known | None:
        """What stands in the body for messages that were read with an earlier call."""
        return None if self.reading is None else self.reading.known

    @property
    def text(self) -> bytes:
        """The text of the body without known messages."""
        return self.raw if self.reading is None else self.reading.fresh

    def read_whole(self) -> None:
        """Parse known messages as well, for what needs them in the body."""
        known = self.known
        if known is not None and self.reading is not None:
            messages = [*expanded(self.body[known.of.name])]
            self.body = {**self.body, known.of.name: messages}
            self.reading = self.reading.whole()

    @property
    def in_background(self) -> bool:
        """Whether the engine may work on the answer after the call has ended."""
        return self.body.get("background") is True

    @property
    def kept(self) -> bool:
        """Whether later calls may refer to the answer."""
        return self.connection is not None or self.body.get("store") is not False

    def stored_as(self, name: str) -> str:
        """Return the name in the store of the answer, or of an item of it, with this id."""
        if self.connection is None or self.body.get("store") is not False:
            return name
        return self.connection.keep(name)

    @property
    def sent_s(self) -> float:
        """When the call was sent: after the gateway's own time, and after all holds."""
        return self.overhead_s + self.memory_wait_s + self.held_s

    @property
    def usage(self) -> CallReport | Usage | None:
        """The tokens that the engine counted, None if unknown."""
        return self.answer_usage if self.report is None else self.report

    @property
    def good(self) -> bool:
        """Whether the engine replied without an error."""
        return self.status < 400

    def record(self, limit: int) -> None:
        """Record the bytes of the answer, if they are at most `limit`."""
        if self.recorded is None:
            self.recorded = []
        self.record_limit = max(self.record_limit, limit)

    def answer(self) -> bytes:
        """Return the engine's answer: the body, or the recorded stream."""
        return b"".join(self.recorded or ()) if self.body_out is None else self.body_out

    def parsed_answer(self) -> dict[str, Any]:
        """Return the complete answer, parsed once; {} if it is invalid or too long."""
        if self._parsed is None:
            self._parsed = parse_answer(self.answer(), self.is_stream)
        return self._parsed

    def save(self, overlap: str, seconds: float) -> None:
        """Set the seconds that an overlap saved the call's program."""
        self.saved_s = {**(self.saved_s or {}), overlap: seconds}

    def split(self, call_id: str) -> Call:
        """Return a failed copy for the attempt so far. This call continues as a new call with the
        given id.
        """
        attempt = copy.copy(self)
        attempt.superseded = True
        attempt.asked = None
        self.id = call_id
        return attempt
