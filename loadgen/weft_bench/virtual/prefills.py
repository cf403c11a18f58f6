"""Prompt splitting in virtual time: the running prefills and the turns that wait for them. No
clock.

As in the gateway, a prefill is a call of its program with an answer of one token, under the thread
`prefill`. A turn that arrives while its prefill runs waits up to `TAKE_WAIT_S`. Then the prefill is
stopped, and the blocks it computed stay in the cache.
"""

from __future__ import annotations

from typing import Final

from weft_engine.wire import CallReport

from weft_bench.virtual.records import PrefillRecord

THREAD: Final = "prefill"


class Prefills:
    """The prefills of a simulation. records: all of them, in the order of their requests."""

    def __init__(self) -> None:
        self.records: list[PrefillRecord] = []
        self._running: dict[str, PrefillRecord] = {}
        self._placed: dict[tuple[str, int], str] = {}
        self._held: dict[tuple[str, int], float] = {}

    def begin(self, call: str, record: PrefillRecord) -> None:
        """Record that a prefill was sent to an engine, under the name `call`."""
        self.records.append(record)
        self._running[call] = record
        self._placed[record.program, record.number] = record.replica

    def running(self, call: str) -> PrefillRecord | None:
        """Return the prefill with this name if it has not ended."""
        return self._running.get(call)

    def hold(self, program: str, number: int, now: float) -> str:
        """Return the name of the prefill that an arriving turn waits for, "" for none."""
        call = name_of(program, number)
        if call not in self._running:
            return ""
        self._held[program, number] = now
        return call

    def release(self, program: str, number: int, now: float) -> tuple[float, str]:
        """Continue a turn. Returns its arrival and the replica of its prefill, "" for none."""
        turn = (program, number)
        return self._held.pop(turn, now), self._placed.pop(turn, "")

    def end(self, report: CallReport, computed_tokens: int, now: float) -> tuple[str, int] | None:
        """End or stop a prefill. Returns the turn that waits for it, or None.

        computed_tokens: tokens that the prefill added to the cache.
        """
        record = self._running.pop(report.call)
        record.end_s = now
        record.service_s = report.service_s
        record.waiting_s = report.waiting_s
        record.cached_tokens = report.cached_tokens
        record.computed_tokens = computed_tokens
        turn = (record.program, record.number)
        return turn if turn in self._held else None


def name_of(program: str, number: int) -> str:
    """Return the name of the prefill for this call of a program."""
    return f"{program}/{number}/{THREAD}"
