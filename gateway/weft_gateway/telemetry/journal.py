"""The journal: the last calls that ended, without their text, for replays.

Adding a call collects references; the API's form is built on request. A gateway has the calls that
it served.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from time import time
from typing import Any, Final

from weft_engine.wire import CallReport

from weft_gateway.model import Outcome, ProgramKey, PromptPrefix
from weft_gateway.model.record import record
from weft_gateway.model.usage import Usage

# The calls, and the hashes of all their prompts: 16 MB at most.
_MOST_CALLS: Final = 16_384
_MOST_BLOCKS: Final = 131_072
_MASK: Final = 2**64 - 1


@record
class JournalCall:
    """One call that was sent to a replica.

    arrived_s: Unix time. sent_s, first_byte_s, total_s: seconds since then; 0 if the call did not
    get so far. usage: None if the engine has not counted the tokens. kind: what the predictions of
    the call's length depend on, "" if there were none. deadline_s: from the begin of the program,
    the turn or the call to its target, 0 without one. prefix: of the prompt, if the placement read
    it. continues: the call with whose prompt it has most in common, "" if none is known;
    common_tokens: how much.
    """

    call: str
    key: ProgramKey
    thread: str
    model: str
    endpoint: str
    replica: str
    kind: str
    arrived_s: float
    sent_s: float
    first_byte_s: float
    total_s: float
    outcome: Outcome
    usage: CallReport | Usage | None
    service_s: float | None
    deadline_s: float
    prefix: PromptPrefix | None
    continues: str
    common_tokens: float

    def to_json(self, number: int) -> dict[str, Any]:
        """Return the call in the API's format (`api.journal.JournalLine`)."""
        usage, prefix, tenant = self.usage, self.prefix, self.key.tenant
        return {
            "n": number,
            "call": self.call,
            "tenant": tenant or None,
            "program": _digest(tenant, self.key.program),
            "thread": _digest(tenant, self.key.program, self.thread),
            "model": self.model,
            "endpoint": self.endpoint,
            "replica": self.replica,
            "kind": _digest(self.kind) if self.kind else None,
            "arrived_at": self.arrived_s,
            "sent_s": self.sent_s or None,
            "first_byte_s": self.first_byte_s or None,
            "total_s": self.total_s,
            "outcome": self.outcome.value,
            "prompt_tokens": None if usage is None else usage.prompt_tokens,
            "cached_tokens": None if usage is None else usage.cached_tokens,
            "output_tokens": None if usage is None else usage.output_tokens,
            "service_s": self.service_s,
            "deadline_s": self.deadline_s or None,
            "continues": self.continues or None,
            "common_tokens": round(self.common_tokens) if self.continues else None,
            "block_tokens": None if prefix is None else prefix.step_tokens,
            "blocks": [] if prefix is None else [f"{m & _MASK:016x}" for m in prefix.marks],
        }


class Journal:
    """The last calls, the oldest first. Each has a number, one more than the call before it.
    Numbers grow also when a gateway starts again, so that a reader can go on.
    """

    def __init__(self) -> None:
        self._calls: deque[JournalCall] = deque()
        self._blocks = 0
        # Microseconds: no gateway serves a million calls a second.
        self._next = int(time() * 1e6)

    def add(self, call: JournalCall) -> None:
        """Add a call, and drop the oldest ones beyond the limits."""
        calls = self._calls
        calls.append(call)
        self._next += 1
        if call.prefix is not None:
            self._blocks += len(call.prefix.marks)
        while len(calls) > _MOST_CALLS or self._blocks > _MOST_BLOCKS:
            gone = calls.popleft().prefix
            if gone is not None:
                self._blocks -= len(gone.marks)

    def after(self, number: int, most: int) -> Sequence[tuple[int, JournalCall]]:
        """Return the oldest `most` calls with greater numbers. Another thread may call this."""
        # One operation of the interpreter, as `add` may run meanwhile.
        calls, after_last = list(self._calls), self._next
        first = after_last - len(calls)
        begin = max(0, number + 1 - first)
        return list(enumerate(islice(calls, begin, begin + most), first + begin))


def _digest(*names: str) -> str:
    """Return a digest of names that clients chose. It is the same in all gateways."""
    packed = "\n".join(names).encode("utf-8", "surrogatepass")
    return blake2b(packed, digest_size=8).hexdigest()
