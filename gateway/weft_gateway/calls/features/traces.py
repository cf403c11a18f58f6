"""Traces: a span per program and call, with its phases, for OpenTelemetry."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Final

from weft_gateway.calls.call import PREFILL, UNKNOWN_CALLER, Call
from weft_gateway.calls.observers import CallObserver
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import Outcome, Program, ProgramKey
from weft_gateway.programs.lineage.rules import Verdict, shown
from weft_gateway.telemetry import traces
from weft_gateway.telemetry.traces import CallTrace, Ended, Ids, Phase

if TYPE_CHECKING:
    from weft_gateway.telemetry.otel import Otel

log = logging.getLogger(__name__)

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
    """Hands each call and program that has ended to OpenTelemetry. It comes first: calls are held
    after its hooks.
    """

    def __init__(self, otel: Otel, name_of: Callable[[str], str]) -> None:
        """name_of: the name of a tenant."""
        self._otel = otel
        self._name_of = name_of
        self._programs: dict[ProgramKey, _Program] = {}

    def observes(self, endpoint: Endpoint) -> bool:
        """Prefills have spans, too."""
        return True

    def held(self, call: Call) -> None:
        """Note when the call could be held."""
        call.trace = CallTrace(held_s=perf_counter() - call.begun)

    def opened(self, call: Call) -> None:
        """Give the call its span, and the engine its context. A retry keeps both."""
        trace = call.trace
        if trace is None:
            trace = call.trace = CallTrace()
        trace.opened_s, trace.call = perf_counter() - call.begun, call.id
        ids = trace.ids or self._begin(call, trace)
        kept = [pair for pair in call.headers if pair[0] != traces.HEADER]
        kept.append((traces.HEADER, traces.written(ids)))
        call.headers = kept

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
            trace = call.trace = CallTrace()
        trace.ended_s = perf_counter() - call.begun
        if trace.closed or trace.call != call.id:
            self._export(call, trace)

    def program_ended(self, program: Program | None, *, idle: bool = False) -> None:
        """Export a program that has ended. idle: it had no call for too long."""
        if program is None or program.ephemeral:
            return
        known = self._programs.pop(program.key, None)
        begun_ns = int(program.arrival_s * _NS)
        ended_ns = int(program.last_completion_s * _NS) if idle else time_ns()
        totals = {
            "gen_ai.usage.input_tokens": program.prompt_tokens,
            "gen_ai.usage.output_tokens": program.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": program.cached_tokens,
            "weft.calls": program.calls,
            "weft.errors": program.errors,
        }
        self._export_program(program.key, known, begun_ns, ended_ns, totals)

    async def aclose(self, *, programs_end: bool) -> None:
        """Export what is left. programs_end: the process table ends with this gateway."""
        for key, known in self._programs.items() if programs_end else ():
            self._export_program(key, known, known.begun_ns, time_ns(), {})
        await self._otel.aclose()

    def _begin(self, call: Call, trace: CallTrace) -> Ids:
        """Choose the span of a call that was just opened, or was refused."""
        client = traces.read(call.headers)
        if client is None:
            call.headers = [pair for pair in call.headers if pair[0] != b"tracestate"]
        program = self._program(call, client)
        trace.parent = client
        if program is not None:
            trace.agent = program.agent
            if client is None:
                trace.parent = program.ids
        parent = trace.parent
        if program is not None and parent is program.ids:
            number, sampled = parent.trace, parent.sampled
        else:
            number = traces.new_trace() if parent is None else parent.trace
            sampled = self._otel.sampled(number, parent)
        trace.ids = ids = Ids(number, traces.new_span(), sampled)
        if program is not None and trace.call:
            self._link(call, trace, program)
            threads = program.threads
            threads.pop(call.identity.thread, None)
            if len(threads) >= _THREADS:
                del threads[next(iter(threads))]
            threads[call.identity.thread] = ids
        return ids

    def _program(self, call: Call, client: Ids | None) -> _Program | None:
        """Return the program of a call, None if it has no span: it is the call, or unknown."""
        key, programs = call.key, self._programs
        known = programs.pop(key, None)
        if known is None:
            if call.identity.ephemeral or not call.replica:
                return None
            number, span = traces.of_program(key)
            # The program that begins with this call belongs to the client's trace.
            parent = client if call.program.calls <= 1 else None
            if parent is not None:
                number = parent.trace
            ids = Ids(number, span, self._otel.sampled(number, parent))
            known = _Program(ids, parent, _agent(call), time_ns())
            if len(programs) >= _PROGRAMS:
                del programs[next(iter(programs))]
        programs[key] = known
        return known

    def _link(self, call: Call, trace: CallTrace, program: _Program) -> None:
        """Link the call to its program in another trace, to the call that its thread forks from,
        and to the threads whose answers it joins.
        """
        links = [] if trace.parent is program.ids else [program.ids]
        threads, identity = program.threads, call.identity
        if identity.parent in threads and identity.thread not in threads:
            links.append(threads[identity.parent])
        if call.asked is not None:
            links += self._joined(call.key, program, call.asked.verdict)
        trace.links = tuple(links)

    def _joined(self, key: ProgramKey, program: _Program, verdict: Verdict) -> list[Ids]:
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
                self._export_program(folded, known, known.begun_ns, time_ns(), {}, (program.ids,))
        return found

    def _export_program(
        self,
        key: ProgramKey,
        known: _Program | None,
        begun_ns: int,
        ended_ns: int,
        totals: Mapping[str, int],
        links: tuple[Ids, ...] = (),
    ) -> None:
        if known is None:
            number, span = traces.of_program(key)
            known = _Program(Ids(number, span, self._otel.sampled(number, None)), None, "", 0)
        attributes: dict[str, str | int | float | bool] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.provider.name": traces.PROVIDER,
            "gen_ai.conversation.id": _text(key.program),
            "weft.tenant": _text(self._name_of(key.tenant)),
            **totals,
        }
        name = "invoke_agent"
        if known.agent:
            attributes["gen_ai.agent.name"] = known.agent
            name = f"invoke_agent {known.agent}"
        seconds = max(0, ended_ns - begun_ns) / _NS
        self._otel.export(
            Ended(
                name, False, known.ids, known.parent, links, begun_ns, seconds, attributes, "", (),
                ("invoke_agent", known.agent),
            )
        )  # fmt: skip

    def _export(self, call: Call, trace: CallTrace) -> None:
        ids = trace.ids or self._begin(call, trace)
        opened, prefill = trace.call == call.id, call.endpoint is PREFILL
        operation = "prefill" if prefill else _OPERATIONS[call.endpoint.path]
        identity, error, usage = call.identity, _error(call, opened=opened), call.usage
        attributes: dict[str, str | int | float | bool] = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": traces.PROVIDER,
            "gen_ai.request.stream": call.body.get("stream") is True,
            "weft.tenant": _text(self._name_of(call.caller.tenant)),
            "weft.call": call.id,
            "weft.request_id": call.request_id.decode(),
            "weft.outcome": call.outcome if opened else "refused",
        }
        name = operation
        model = call.model or call.body.get("model")
        if model and isinstance(model, str):
            attributes["gen_ai.request.model"] = model = _text(model)
            name = f"{operation} {model}"
        if identity.key.program and not identity.ephemeral:
            attributes["gen_ai.conversation.id"] = _text(identity.key.program)
            attributes["weft.thread"] = _text(identity.thread)
        if trace.agent:
            attributes["gen_ai.agent.name"] = trace.agent
        choices = call.body.get("n")
        if type(choices) is int and choices != 1 and abs(choices) < 1 << 31:
            attributes["gen_ai.request.choice.count"] = choices
        if opened:
            attributes["weft.replica"] = call.replica
            if call.failed:
                attributes["weft.retries"] = len(call.failed)
        if call.is_stream and call.first_byte_s:
            attributes["gen_ai.response.time_to_first_chunk"] = call.first_byte_s
        tokens = None
        if usage is not None:
            tokens = usage.prompt_tokens, usage.output_tokens, usage.cached_tokens
            attributes["gen_ai.usage.input_tokens"] = tokens[0]
            attributes["gen_ai.usage.output_tokens"] = tokens[1]
            attributes["gen_ai.usage.cache_read.input_tokens"] = tokens[2]
        if error:
            attributes["error.type"] = error
        begun_ns = time_ns() - int((perf_counter() - call.begun) * _NS)
        self._otel.export(
            Ended(
                name, True, ids, trace.parent, trace.links, begun_ns, trace.ended_s, attributes,
                error, _phases(call, trace, opened=opened),
                # Unknown models get no series: clients choose their names.
                (operation, call.model if opened else "")
                if call.endpoint.is_text and not prefill
                else None,
                call.first_byte_s if call.is_stream else 0.0, tokens,
            )
        )  # fmt: skip


def observer(name_of: Callable[[str], str]) -> TraceObserver | None:
    """Return the observer if OpenTelemetry's own variables turn it on. Nothing of OpenTelemetry is
    imported otherwise.
    """
    if not os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
        return None
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        from weft_gateway.telemetry.otel import Otel
    except ImportError as error:
        log.warning(
            "OTEL_EXPORTER_OTLP_ENDPOINT is set, but there are no traces (%s). Install them: "
            'pip install "weft-gateway[otel]"',
            error,
        )
        return None
    return TraceObserver(Otel(), name_of)


def _phases(call: Call, trace: CallTrace, *, opened: bool) -> tuple[Phase, ...]:
    """Return what the call waited for and what served it, in order. Only a stream tells when the
    answer began, and only the plugin how long the call was queued: otherwise one phase, `served`,
    stands for those that cannot be told apart.
    """
    end_s, at_s, found = trace.ended_s, trace.held_s, []
    if call.held_s:
        found.append(Phase("held", at_s, at_s := min(at_s + call.held_s, end_s)))
    if not opened:
        return tuple(found)
    found.append(Phase("placed", at_s, at_s := trace.opened_s))
    if call.memory_wait_s:
        found.append(Phase("held", at_s, min(at_s + call.memory_wait_s, end_s)))
    if not call.overhead_s:
        return tuple(found)  # It was not sent.
    report, at_s = call.report, call.sent_s
    first_s = call.first_byte_s if call.is_stream else 0.0
    until_s = first_s or end_s
    if report is not None and report.waiting_s:
        # The time includes waits after preemptions, and that of all sequences.
        found.append(Phase("queued", at_s, at_s := min(at_s + report.waiting_s, until_s)))
    known = report is not None and (first_s or call.endpoint is PREFILL)
    found.append(Phase("prefill" if known else "served", at_s, until_s))
    if first_s:
        found.append(Phase("decode", first_s, end_s))
    return tuple(found)


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
