"""Traces: a span per program and call, with its phases, for OpenTelemetry. A span is made when its
call or program has ended; only its ids are chosen before, for the engine. Imported where traces are
on: OpenTelemetry is an extra.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from time import perf_counter, time_ns
from typing import Final

from weft_gateway.calls.call import PREFILL, UNKNOWN_CALLER, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.programs.lineage.rules import Verdict, shown
from weft_gateway.telemetry.otel import Ended, Ids, Otel, Value, new_span, read

_HEADER: Final = b"traceparent"
# The names of the GenAI conventions, v0.1.0.
_OPERATIONS: Final = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/embeddings": "embeddings",
}
_AGENT: Final = re.compile(rb"[\w .+-]{1,64}")
_NS: Final = 1_000_000_000
# Programs, and threads of one, whose latest calls are kept for links.
_PROGRAMS: Final = 16_384
_THREADS: Final = 256
_TEXT: Final = 256


@dataclass(slots=True, eq=False)
class CallTrace:
    """The span of a call in progress. call: the attempt that was opened last, "" if none. ended_s:
    when its client had been served, in seconds since it arrived; 0 before that.
    """

    ids: Ids
    parent: Ids | None
    links: list[Ids]
    call: str = ""
    ended_s: float = 0.0
    closed: bool = False


@dataclass(slots=True, eq=False)
class _Program:
    """A program with calls through this gateway. begun_ns: of the first one. threads: the latest
    call of each.
    """

    ids: Ids
    parent: Ids | None
    agent: str
    begun_ns: int
    threads: dict[str, Ids] = field(default_factory=dict)


class TraceObserver(CallObserver):
    """Hands each call and program that has ended to OpenTelemetry."""

    def __init__(self, name_of: Callable[[str], str]) -> None:
        """name_of: the name of a tenant."""
        self._otel = Otel()
        self._name_of = name_of
        self._programs: dict[ProgramKey, _Program] = {}

    def observes(self, endpoint: Endpoint) -> bool:
        """Prefills have spans, too."""
        return True

    def opened(self, call: Call) -> None:
        """Give the call its span, and the engine its context. A retry keeps both."""
        trace = call.trace
        if trace is None:
            trace = call.trace = self._begin(call)
        trace.call = call.id
        kept = [pair for pair in call.headers if pair[0] != _HEADER]
        call.headers = [*kept, (_HEADER, b"00-%032x-%016x-%02x" % trace.ids)]

    def closed(self, call: Call) -> None:
        """Export a call that ended before, or a prefill. Other calls end later."""
        trace = call.trace
        if trace is None or call.superseded:
            return
        trace.closed = True
        if call.endpoint is PREFILL:
            trace.ended_s = perf_counter() - call.begun
        if trace.ended_s:
            self._export(call, trace)

    def ended(self, call: Call) -> None:
        """Export the call, unless its engine is still asked for the usage."""
        trace = call.trace
        if trace is None:
            if call.caller is UNKNOWN_CALLER:
                return
            trace = call.trace = self._begin(call)
        trace.ended_s = perf_counter() - call.begun
        if trace.closed or trace.call != call.id:
            self._export(call, trace)

    def program_ended(self, program: Program | None, *, idle: bool = False) -> None:
        """Export a program that has ended. idle: it had no call for too long."""
        if program is None or program.ephemeral:
            return
        totals = {
            "gen_ai.usage.input_tokens": program.prompt_tokens,
            "gen_ai.usage.output_tokens": program.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": program.cached_tokens,
            "weft.calls": program.calls,
            "weft.errors": program.errors,
        }
        known = self._programs.pop(program.key, None) or self._new(program.key, None, "")
        known.begun_ns = int(program.arrival_s * _NS)
        ended_ns = int(program.last_completion_s * _NS) if idle else time_ns()
        self._export_program(program.key, known, ended_ns, totals)

    async def aclose(self, *, programs_end: bool) -> None:
        """Export what is left. programs_end: the process table ends with this gateway."""
        for key, known in self._programs.items() if programs_end else ():
            self._export_program(key, known, time_ns(), {})
        await self._otel.aclose()

    def _begin(self, call: Call) -> CallTrace:
        """Choose the span of a call that was just opened, or was refused."""
        client = read(call.headers)
        if client is None:
            call.headers = [pair for pair in call.headers if pair[0] != b"tracestate"]
        program = self._program(call, client)
        if program is None:
            return CallTrace(self._otel.begin(client), client, [])
        parent = client or program.ids
        ids = parent._replace(span=new_span()) if client is None else self._otel.begin(client)
        trace = CallTrace(ids, parent, [])
        if call.replica:
            identity, threads = call.identity, program.threads
            if client is not None:
                trace.links.append(program.ids)
            if identity.parent in threads and identity.thread not in threads:
                trace.links.append(threads[identity.parent])
            if call.asked is not None:
                trace.links += self._joined(call.key, program, call.asked.verdict)
            threads.pop(identity.thread, None)
            if len(threads) >= _THREADS:
                del threads[next(iter(threads))]
            threads[identity.thread] = trace.ids
        return trace

    def _program(self, call: Call, client: Ids | None) -> _Program | None:
        """Return the program of a call, None if it has no span: it is the call, or unknown."""
        key, programs = call.key, self._programs
        known = programs.pop(key, None)
        if known is None:
            if call.identity.ephemeral or not call.replica:
                return None
            # The program that begins with this call belongs to the client's trace.
            known = self._new(key, client if call.program.calls <= 1 else None, _agent(call))
            if len(programs) >= _PROGRAMS:
                del programs[next(iter(programs))]
        programs[key] = known
        return known

    def _new(self, key: ProgramKey, parent: Ids | None, agent: str) -> _Program:
        # The ids follow from the key, so that all gateways give its calls the same parent.
        digest = sha256("\0".join(key).encode("utf-8", "surrogatepass")).digest()
        trace, span = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
        return _Program(self._otel.begin(parent, trace, span), parent, agent, time_ns())

    def _joined(self, key: ProgramKey, program: _Program, verdict: Verdict) -> list[Ids]:
        """Return the threads whose answers a call contains."""
        found = []
        for owner, thread in verdict.joined:
            ids = program.threads.get(shown(owner, thread, verdict.program))
            other = self._programs.get(ProgramKey(key.tenant, owner))
            if ids is None and other is not None:
                ids = other.threads.get(thread)
            if ids is not None:
                found.append(ids)
        for owner, _ in verdict.folds:
            # It turned out to be a part of this program.
            folded = ProgramKey(key.tenant, owner)
            known = self._programs.pop(folded, None)
            if known is not None:
                self._export_program(folded, known, time_ns(), {}, [program.ids])
        return found

    def _export_program(
        self,
        key: ProgramKey,
        known: _Program,
        ended_ns: int,
        totals: Mapping[str, int],
        links: list[Ids] | None = None,
    ) -> None:
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": _text(key.program),
            "weft.tenant": _text(self._name_of(key.tenant)),
            **totals,
        }
        name = "invoke_agent"
        if known.agent:
            attributes["gen_ai.agent.name"] = known.agent
            name = f"invoke_agent {known.agent}"
        seconds = max(0, ended_ns - known.begun_ns) / _NS
        self._otel.export(
            Ended(name, known.ids, known.parent, known.begun_ns, seconds, attributes, links or ())
        )

    def _export(self, call: Call, trace: CallTrace) -> None:
        opened, prefill = trace.call == call.id, call.endpoint is PREFILL
        operation = "prefill" if prefill else _OPERATIONS[call.endpoint.path]
        identity, error, usage = call.identity, _error(call, opened=opened), call.usage
        first_s = call.first_byte_s if call.is_stream else 0.0
        model, choices = call.model or call.body.get("model"), call.body.get("n")
        model = _text(model) if isinstance(model, str) else ""
        in_program = identity.key.program and not identity.ephemeral
        found: dict[str, Value | None] = {
            "gen_ai.operation.name": operation,
            "gen_ai.request.stream": call.body.get("stream") is True,
            "gen_ai.request.model": model or None,
            "gen_ai.conversation.id": _text(identity.key.program) if in_program else None,
            "gen_ai.agent.name": _agent(call) or None,
            "gen_ai.request.choice.count": choices
            if type(choices) is int and 1 < choices < 1 << 31
            else None,
            "gen_ai.response.time_to_first_chunk": first_s or None,
            "error.type": error or None,
            "weft.tenant": _text(self._name_of(call.caller.tenant)),
            "weft.call": call.id,
            "weft.request_id": call.request_id.decode(),
            "weft.outcome": call.outcome if opened else "refused",
            "weft.thread": _text(identity.thread) if in_program else None,
            "weft.replica": call.replica if opened else None,
            "weft.retries": len(call.failed) or None,
        }
        if usage is not None:
            found["gen_ai.usage.input_tokens"] = usage.prompt_tokens
            found["gen_ai.usage.output_tokens"] = usage.output_tokens
            found["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
        self._otel.export(
            Ended(
                f"{operation} {model}".rstrip(),
                trace.ids,
                trace.parent,
                time_ns() - int((perf_counter() - call.begun) * _NS),
                trace.ended_s,
                {name: value for name, value in found.items() if value is not None},
                trace.links,
                _phases(call, trace.ended_s, opened=opened),
                error,
            )
        )


def _phases(call: Call, ended_s: float, *, opened: bool) -> list[tuple[str, float, float]]:
    """Return what the call waited for and what served it, in order. Only a stream tells when the
    answer began, and only the plugin how long the call was queued: otherwise one phase, `served`,
    stands for those that cannot be told apart.
    """
    at_s, found = 0.0, []
    own = ("held", call.held_s), ("placed", call.overhead_s), ("held", call.memory_wait_s)
    for name, seconds in own:
        if seconds:
            found.append((name, at_s, at_s := at_s + seconds))
    if not opened or not call.overhead_s:
        return found  # It was not sent.
    report, first_s = call.report, call.first_byte_s if call.is_stream else 0.0
    until_s = first_s or ended_s
    if report is not None and report.waiting_s:
        # The time includes waits after preemptions, and that of all sequences.
        found.append(("queued", at_s, at_s := min(at_s + report.waiting_s, until_s)))
    known = report is not None and (first_s or call.endpoint is PREFILL)
    found.append(("prefill" if known else "served", at_s, until_s))
    if first_s:
        found.append(("decode", first_s, ended_s))
    return found


def _error(call: Call, *, opened: bool) -> str:
    """Return the type of the call's error, "" if it was answered."""
    error = call.error
    if error is not None and error.code:
        return error.code
    if call.outcome is Outcome.ABORTED or (error is not None and not opened):
        return "client_disconnected"
    if call.status >= 400:
        return str(call.status)
    if error is not None:
        return "internal_error"
    return "" if call.outcome is Outcome.OK else "engine_error"


def _agent(call: Call) -> str:
    """Return the product that the client names as its user agent."""
    for name, value in call.headers:
        if name == b"user-agent":
            match = _AGENT.match(value)
            return "" if match is None else match[0].decode("ascii", "ignore").strip()
    return ""


def _text(value: str) -> str:
    """Return a client's text as an attribute: valid Unicode, and short."""
    return value[:_TEXT] if value.isascii() else value[:_TEXT].encode(errors="replace").decode()
