"""Prompt splitting in virtual time: which prefills run, and which turns wait for one. No clock.

As the gateway does it: a prefill is a call of its program with an answer of one token, under the
thread `prefill`. A turn that comes while its prefill runs waits for it, `TAKE_WAIT_S` at most; then
the prefill is stopped, and what it has computed by then stays in the cache.
"""

from __future__ import annotations

from typing import Final

from weft_engine.wire import CallReport

from weft_bench.virtual.records import PrefillRecord

THREAD: Final = "prefill"


class Prefills:
    """The prefills of a simulation. records: of all, in the order in which they were asked for."""

    def __init__(self) -> None:
        self.records: list[PrefillRecord] = []
        self._running: dict[str, PrefillRecord] = {}
        self._placed: dict[tuple[str, int], str] = {}
        self._held: dict[tuple[str, int], float] = {}

    def begin(self, call: str, record: PrefillRecord) -> None:
        """A prefill was sent to an engine, under the name `call`."""
        self.records.append(record)
        self._running[call] = record
        self._placed[record.program, record.number] = record.replica

    def running(self, call: str) -> PrefillRecord | None:
        """The prefill of that name, if it has not ended."""
        return self._running.get(call)

    def hold(self, program: str, number: int, now: float) -> str:
        """A turn comes. The name of the prefill that it waits for, "" if it need not."""
        call = name_of(program, number)
        if call not in self._running:
            return ""
        self._held[program, number] = now
        return call

    def release(self, program: str, number: int, now: float) -> tuple[float, str]:
        """A turn goes on: when it came, and the replica of its prefill, "" if it had none."""
        turn = (program, number)
        return self._held.pop(turn, now), self._placed.pop(turn, "")

    def end(self, report: CallReport, computed_tokens: int, now: float) -> tuple[str, int] | None:
        """A prefill has ended, or was stopped. computed_tokens: what it has added to the cache.
        The turn that was waiting for it, if one was."""
        record = self._running.pop(report.call)
        record.end_s = now
        record.service_s = report.service_s
        record.waiting_s = report.waiting_s
        record.cached_tokens = report.cached_tokens
        record.computed_tokens = computed_tokens
        turn = (record.program, record.number)
        return turn if turn in self._held else None


def name_of(program: str, number: int) -> str:
    """How the call is named that prefills for a program's call of that number."""
    return f"{program}/{number}/{THREAD}"
