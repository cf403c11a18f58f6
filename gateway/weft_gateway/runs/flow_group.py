"""One worker process on the gateway's side: a run, or the joined runs of a tenant's workflow.

A run joins while the process accepts further ones. It does not wait for the rows of the others, and
they do not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Final

from weft_gateway.calls.lifecycle import Lifecycle
from weft_gateway.model import ProgramKey
from weft_gateway.programs.table import TableUnavailable
from weft_gateway.runs.flow_calls import RunCalls
from weft_gateway.runs.flow_child import Child, ChildLost
from weft_gateway.runs.flow_store import Run
from weft_gateway.runs.flow_wire import Ask, Cancel, Drop, InputRead, Over, Progress, Start, Wrong
from weft_gateway.runs.sender import Sender

# Each run has threads and a journal in the process, whose memory is limited.
_MOST_RUNS: Final = 32
End = Over | Wrong | ChildLost


@dataclass(slots=True, eq=False)
class Member:
    """A run of a process. over: its end. start: the message that begins it, once it can begin.
    saved_s, unsaved: when its state was stored, and whether it has changed since then.
    """

    run: Run
    over: asyncio.Future[End]
    start: Start | None = None
    saved_s: float = 0.0
    unsaved: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """A process and its runs. first: the run that it was begun for, whose id is the program of all
    calls. news: called with the figures of a run. crowded: whether several runs were in the process
    when it was lost, so that it is not known which one is the reason.
    """

    first: Run
    child: Child
    calls: RunCalls
    sender: Sender
    lifecycle: Lifecycle
    news: Callable[[Member, InputRead | Progress], None]
    members: dict[str, Member] = field(default_factory=dict, init=False)
    crowded: bool = field(default=False, init=False)
    _until_s: float = field(init=False)
    _ready: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._until_s = monotonic() + self.first.batch_ms / 1000
        self.join(self.first)

    def takes(self, run: Run) -> bool:
        """Whether a run may join."""
        first = self.first
        alike = (run.tenant, run.workflow, run.model) == (
            first.tenant, first.workflow, first.model
        )  # fmt: skip
        open_ = not self._closed and monotonic() < self._until_s
        return open_ and alike and run.batch_ms > 0 and len(self.members) < _MOST_RUNS

    def join(self, run: Run) -> None:
        """Add a run. It begins with `work`."""
        self.members[run.id] = Member(run, asyncio.get_running_loop().create_future())

    def close(self) -> None:
        """Take no further runs."""
        self._until_s = 0.0

    async def work(self, start: Start) -> End:
        """Begin a run that has joined, and return its end. Raises OSError if the process cannot be
        started.
        """
        member = self.members[start.run]
        member.start = start
        if self._ready:
            self.child.send(start)
        return await member.over

    def cancel(self, run_id: str) -> None:
        """Cancel a run."""
        member = self.members.get(run_id)
        if member is not None and member.start is not None:
            member.start.finish = True
            self.child.send(Cancel(run_id))

    async def serve(self) -> None:
        """Run the process until all runs have ended and no further one may join."""
        try:
            async with self.child:
                self._ready = True
                self.sender.sources[self.calls.program] = self.calls
                for member in self.members.values():
                    if member.start is not None:
                        self.child.send(member.start)
                await self._listen()
        except (ChildLost, OSError) as error:
            self._fail(error)
        finally:
            self._fail(ChildLost("its process has ended"))
            self.calls.stop()
            self.sender.sources.pop(self.calls.program, None)
        with suppress(TableUnavailable):
            await self.lifecycle.end(ProgramKey(self.first.tenant, self.calls.program), time())

    def _fail(self, error: ChildLost | OSError) -> None:
        """End the runs that are left."""
        self._closed = True
        left = [member for member in self.members.values() if not member.over.done()]
        self.crowded = self.crowded or len(left) > 1
        for member in left:
            if isinstance(error, OSError):
                member.over.set_exception(error)
            else:
                member.over.set_result(error)

    async def _listen(self) -> None:
        """Serve the messages of the process. Raises ChildLost."""
        # Messages come several times per second, also without runs.
        while self.members or monotonic() < self._until_s:
            match message := await self.child.receive():
                case Ask():
                    self.calls.ask(message)
                    self.sender.dispatch()
                case Drop(number):
                    self.calls.drop(number)
                case InputRead(run) | Progress(run):
                    member = self.members[run]
                    if isinstance(message, InputRead):
                        self.calls.expected += message.rows * member.run.calls
                    self.news(member, message)
                case Over(run) | Wrong(run=run):
                    self.members.pop(run).over.set_result(message)
        # The process stops now, which takes a moment.
        self._closed = True
