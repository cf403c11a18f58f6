"""The calls of runs in one process: they wait here until the window of background calls allows
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import orjson

from weft_gateway.calls.call import Plan
from weft_gateway.calls.client import Disconnect
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.registry import Replica
from weft_gateway.runs.batch_calls import Answered, MeanService, Request, Submit, tokens_used
from weft_gateway.runs.batch_repeats import Repeats
from weft_gateway.runs.batch_results import checked
from weft_gateway.runs.batch_store import Api
from weft_gateway.runs.flow_wire import Ask, CallEnded
from weft_gateway.runs.sender import abort, end, serves

_PATH: Final = "/v1/chat/completions"
# Rows and groups whose replicas are remembered.
_MOST_PLACES: Final = 4096
_MESSAGE: Final = 500
_MOST_BYTES: Final = 16 << 20


@dataclass(slots=True, eq=False)
class RunCalls:
    """The calls of one or more runs, which are those of the program `program`. submit: makes one
    call. reply: takes each answer. expected: estimated number of calls of all these runs.
    """

    tenant: str
    program: str
    submit: Submit
    reply: Callable[[CallEnded], None]
    expected: int = 1
    in_flight: dict[int, Disconnect] = field(default_factory=dict)
    _asked: dict[int, Ask] = field(default_factory=dict)
    # Those that were never sent, in the order of the plan.
    _new: dict[int, Ask] = field(default_factory=dict)
    _repeats: Repeats = field(default_factory=Repeats)
    # The last replica of a row, and of a group of rows with the same beginning.
    _at: dict[int, str] = field(default_factory=dict)
    _homes: dict[int, str] = field(default_factory=dict)
    _service: MeanService = field(default_factory=MeanService)

    def ask(self, asked: Ask) -> None:
        """Add a call."""
        self._asked[asked.number] = self._new[asked.number] = asked

    def drop(self, number: int) -> None:
        """No operator needs a call any more."""
        self._asked.pop(number, None)
        self._new.pop(number, None)
        if number in self.in_flight:
            end(self.in_flight[number])

    def stop(self) -> None:
        """Abort all calls."""
        self._asked.clear()
        self._new.clear()
        abort(self)

    def take(
        self, replica: Replica, replicas: Sequence[Replica], near: Sequence[Replica], now_s: float
    ) -> int | None:
        """Return the next call for a replica; see `Source.take`. The calls of a row go to one
        replica if possible, and rows that begin alike, too, since they share a prefix.
        """
        if now_s < self._repeats.paused_s:
            return None
        while (due := self._repeats.due(now_s)) is not None:
            asked = self._asked.get(due)
            if asked is not None and not serves(replica, asked.model):
                # It stays first in its order, for the replicas that follow.
                self._new = {due: asked, **self._new}
            elif asked is not None:
                return due
        able = [one for one in self._new.values() if self._fits(one, replica, near)]
        if not able:
            return None
        first = min(able, key=lambda one: self._distance(one, replica.name))
        del self._new[first.number]
        _keep(self._at, first.row, replica.name)
        if first.group:
            _keep(self._homes, first.group, replica.name)
        return first.number

    def _fits(self, asked: Ask, replica: Replica, near: Sequence[Replica]) -> bool:
        """Whether a replica may take a call: it serves the model, and no replica with as much room
        has what the call shares. That one takes it, at the latest after its pause between calls.
        """
        home = self._at.get(asked.row) or self._homes.get(asked.group)
        others = (one for one in near if one.name == home and one is not replica)
        return serves(replica, asked.model) and not any(serves(one, asked.model) for one in others)

    def _distance(self, asked: Ask, replica: str) -> int:
        """Return how badly a call fits a replica: 0 if its row is there, up to 4."""
        at, home = self._at.get(asked.row), self._homes.get(asked.group)
        if at is not None:
            return 0 if at == replica else 4
        if home is not None:
            return 1 if home == replica else 3
        return 2

    def size(self, number: int) -> int:
        """Return the bytes of a call's body."""
        return len(self._asked[number].body)

    async def serve(self, number: int, replica: str, client: Disconnect) -> int:
        """Make a call; see `Source.serve`."""
        asked = self._asked.get(number)
        if asked is None:
            return 0
        plan = Plan(replica, self._service.seconds * self.expected)
        name = f"row-{asked.row}"
        request = Request(self.tenant, _PATH, self.program, name, asked.body, plan)
        try:
            found = await self.submit(request, client)
        except ClientGone:
            return 0
        found = found._replace(answer=checked(Api.OPENAI, found.answer))
        self._service.add(found)
        if number in self._asked and not self._repeats.repeat(
            number, found, monotonic(), asked.attempts
        ):
            self.reply(_answer(number, found, self._repeats.attempts(number)))
            self._repeats.forget(number)
            del self._asked[number]
        return tokens_used(found)


def _keep(places: dict[int, str], number: int, replica: str) -> None:
    places[number] = replica
    if len(places) > _MOST_PLACES:
        del places[next(iter(places))]


def _answer(number: int, found: Answered, attempts: int) -> CallEnded:
    """Return what the run learns of a call."""
    answer = found.answer
    if not answer.good:
        code = f"http_{answer.status}"
        return CallEnded(number, b"", code, _message(answer.body), max(1, attempts))
    if len(answer.body) > _MOST_BYTES:
        what = f"the answer has more than {_MOST_BYTES} bytes"
        return CallEnded(number, b"", "too_large", what)
    return CallEnded(number, answer.body)


def _message(body: bytes) -> str:
    return str(orjson.loads(body)["error"]["message"])[:_MESSAGE]
