"""One batch in progress: which requests are left, and what their answers mean. No I/O of calls."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final

import msgspec

from weft_gateway.calls.client import Disconnect
from weft_gateway.engine.registry import Replica
from weft_gateway.policies.batch_spans import Spans
from weft_gateway.runs.batch_calls import Answered, Repeats
from weft_gateway.runs.batch_input import Index
from weft_gateway.runs.batch_results import Results, checked, line_id, result_line
from weft_gateway.runs.records import Api, Batch
from weft_gateway.runs.sender import serves

# The service of a call before the first report, seconds.
_ASSUMED_S: Final = 1.0


class _Name(msgspec.Struct):
    custom_id: str


class _OpenAILine(_Name):
    body: msgspec.Raw


class _AnthropicLine(_Name):
    params: msgspec.Raw


_name: Final = msgspec.json.Decoder(_Name).decode
_openai: Final = msgspec.json.Decoder(_OpenAILine).decode
_anthropic: Final = msgspec.json.Decoder(_AnthropicLine).decode


@dataclass(slots=True)
class _Part:
    """The requests of one model. first: the position of the first one in the order."""

    first: int
    spans: Spans
    repeats: Repeats = field(default_factory=Repeats)

    @property
    def waits(self) -> bool:
        """Whether a request is left to send."""
        return bool(self.spans.left) or self.repeats.waiting


@dataclass(slots=True, eq=False)
class Active:
    """A batch in progress: a source of the sender. input: its open file. finished: a flag for each
    request. serve: makes a call, see `Source.serve`. stop: why the rest is not sent, "" if it is.
    in_flight: the running calls by request. dirty: the record on disk is older.
    """

    batch: Batch
    index: Index
    input: int
    results: Results
    finished: bytearray
    serve: Callable[[int, str, Disconnect], Coroutine[Any, Any, int]]
    stop: str = ""
    in_flight: dict[int, Disconnect] = field(default_factory=dict)
    dirty: bool = False
    ending: bool = False
    _parts: dict[str, _Part] = field(init=False)
    # The part of each request that was taken and has not ended.
    _part_of: dict[int, _Part] = field(default_factory=dict)
    # The service of the calls with a report, seconds, and their number.
    _service_s: float = 0.0
    _reports: int = 0

    def __post_init__(self) -> None:
        counts = self.index.counts
        firsts = accumulate(counts.values(), initial=0)
        self._parts = {
            model: _Part(first, Spans(count))
            for (model, count), first in zip(counts.items(), firsts, strict=False)
        }

    @property
    def over(self) -> bool:
        """Whether no call is left to send or to wait for."""
        waits = any(part.waits for part in self._parts.values())
        return not self.in_flight and (bool(self.stop) or not waits)

    @property
    def service_s(self) -> float:
        """The predicted service of the whole batch, seconds."""
        mean_s = self._service_s / self._reports if self._reports else _ASSUMED_S
        return mean_s * len(self.index)

    @property
    def tenant(self) -> str:
        """The tenant of the batch."""
        return self.batch.tenant

    def size(self, number: int) -> int:
        """Return the bytes of a request."""
        return self.index.sizes[number]

    def take(self, replica: Replica, replicas: Sequence[Replica], now_s: float) -> int | None:
        """Return the next request for a replica, None if none can be sent now."""
        found = [
            ([one.name for one in replicas if serves(one, model)], part)
            for model, part in (() if self.stop else self._parts.items())
            if part.waits and now_s >= part.repeats.paused_s and serves(replica, model)
        ]
        # Models that more replicas serve can wait for those.
        for names, part in sorted(found, key=lambda one: len(one[0])):
            request = part.repeats.due(now_s)
            if request is None:
                position = part.spans.take(replica.name, names)
                if position is None:
                    continue
                request = self.index.order[part.first + position]
            self._part_of[request] = part
            return request
        return None

    def again(self, request: int, at_s: float) -> None:
        """Send a request that was taken at a later time, monotonic clock."""
        self._part_of[request].repeats.add(request, at_s)

    def read(self, request: int) -> tuple[str, bytes]:
        """Return custom id and body of a request. Raises OSError and msgspec.MsgspecError if the
        file has changed.
        """
        raw = self._line(request)
        if self.batch.api is Api.ANTHROPIC:
            asked = _anthropic(raw)
            return asked.custom_id, bytes(asked.params)
        line = _openai(raw)
        return line.custom_id, bytes(line.body)

    def custom_id(self, request: int) -> str:
        """Return the custom id of a request. Raises as `read`."""
        return _name(self._line(request)).custom_id

    def _line(self, request: int) -> bytes:
        return os.pread(self.input, self.index.sizes[request], self.index.offsets[request])

    def answered(self, request: int, custom_id: str, found: Answered, now_s: float) -> int:
        """Write the result of a request and its copies, or note that it must be sent again. Returns
        the number of results. Raises OSError; a repetition then writes the rest.
        """
        answer = checked(self.batch.api, found.answer)
        if found.report is not None:
            self._reports += 1
            self._service_s += found.report.service_s
        repeats = self._part_of[request].repeats
        if repeats.repeat(request, found._replace(answer=answer), now_s):
            return 0
        batch = self.batch
        targets = (request, *self.index.copies.get(request, ()))
        for target in targets:
            if self.finished[target]:
                continue
            name = custom_id if target == request else self.custom_id(target)
            own = answer
            if target != request:
                own = answer._replace(request_id=f"{answer.request_id}-{target}")
            written = result_line(batch.api, name, line_id(batch.id, target), own)
            self.results.write(written, good=own.good)
            self.finished[target] = 1
            if own.good:
                batch.completed += 1
                batch.usage += answer.tokens
            else:
                batch.failed += 1
        self.dirty = True
        repeats.forget(request)
        del self._part_of[request]
        return len(targets)

    def close(self) -> None:
        """Close the files."""
        os.close(self.input)
        self.results.close()
