"""The commands of `dispatch`, and the failures that it and its caller exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from weft_run.language.requests import (
    GraphRequest,
    HttpRequest,
    LlmRequest,
    PythonRequest,
    SqlRequest,
)

# The window of calls for which the plan prefers no replica.
ANY: Final = ""
# Compared with other turns of the same plan.
Turn = tuple[float, ...]


class Failure(NamedTuple):
    """The reason for a failed execution. code: for programs, for example `http_503`, `timeout` or
    `template`. message: for people. attempts: requests that were made.
    """

    code: str
    message: str
    attempts: int = 1


class Usage(NamedTuple):
    """Tokens of a call: of its prompt, of the prompt from the cache, and of the answer."""

    prompt: int = 0
    cached: int = 0
    output: int = 0

    @property
    def total(self) -> int:
        """Prompt and output."""
        return self.prompt + self.output


NO_USAGE: Final = Usage()

ToolRequest = PythonRequest | SqlRequest | HttpRequest | GraphRequest


@dataclass(frozen=True, slots=True)
class Work:
    """A request to make. It must be reported exactly once, by `Dispatch.succeeded` or
    `Dispatch.failed`.

    number: identifies it. row: of the first operator that needs it. operator: its path without
    items and rounds. key: its identity in the journal, unique in the row, or over all rows if
    `shared`. attempts: requests that may be made. safe: it may be made again after a crash. window:
    the replica whose window it uses, `ANY` if the plan prefers none.
    """

    number: int
    row: int
    operator: str
    key: str
    shared: bool
    attempts: int
    safe: bool
    request: LlmRequest | ToolRequest
    window: str = ANY

    @property
    def is_call(self) -> bool:
        """Whether it is an LLM call."""
        return isinstance(self.request, LlmRequest)


@dataclass(frozen=True, slots=True)
class Send:
    """Make an LLM call."""

    work: Work


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a tool."""

    work: Work


@dataclass(frozen=True, slots=True)
class Reply:
    """The end of a call that a tool asked for; see `Dispatch.asked`. failure: None if it has a
    value.
    """

    ask: int
    value: Any = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class RowError:
    """The reason for a failed row. operator: its place."""

    operator: str
    code: str
    message: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Row:
    """The result of a row: its output columns. Of a failed row, those columns that do not depend
    on the failed operator; the others are None. unmet: the row has not failed, and its error is
    that of a loop that kept its last round.
    """

    outputs: Mapping[str, Any]
    error: RowError | None = None
    unmet: bool = False

    @property
    def failed(self) -> bool:
        """Whether the row has failed."""
        return self.error is not None and not self.unmet


@dataclass(frozen=True, slots=True)
class Abort:
    """No operator needs this call any more: abort it, and report a failure."""

    number: int


@dataclass(frozen=True, slots=True)
class Read:
    """Read this number of further rows; fewer or none if the input ends."""

    count: int


@dataclass(frozen=True, slots=True)
class WriteRow:
    """A row has ended."""

    number: int
    row: Row


@dataclass(frozen=True, slots=True)
class Finish:
    """No further command follows, and open work need not be reported. reason: "done", "cancelled",
    "tokens" or "errors".
    """

    reason: str


Command = Send | RunTool | Reply | Abort | Read | WriteRow | Finish


class Plan(Protocol):
    """The order and placement of calls. operator: its path, as `report` or `loop.draft`."""

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """A row begins; its calls follow."""
        ...

    def ended(self, row: int) -> None:
        """A row has ended; no call of it follows."""
        ...

    def turn(self, operator: str, row: int) -> Turn:
        """Return the turn: calls with lower turns are sent first. Equal turns are sent by row,
        then in the order of the graph.
        """
        ...

    def replica(self, operator: str, row: int) -> str:
        """Return the preferred replica, `ANY` for none."""
        ...


class RowMajor:
    """The plan without a planner: row by row, in topological order. windows: take rows in turn."""

    def __init__(self, windows: Sequence[str] = (ANY,)) -> None:
        self._windows = tuple(windows)

    def begin(self, row: int, columns: Mapping[str, Any]) -> None:
        """Rows need no preparation."""

    def ended(self, row: int) -> None:
        """Nothing to release."""

    def turn(self, operator: str, row: int) -> Turn:
        """All turns are equal."""
        return ()

    def replica(self, operator: str, row: int) -> str:
        """Return the window of a row."""
        return self._windows[row % len(self._windows)]


class Gate(Protocol):
    """Admits calls within a budget; see `runs.budget`."""

    def admit(self, work: Work) -> bool:
        """Reserve the tokens of a call, or return False: it must wait."""
        ...

    def settle(self, call: int, tokens: int) -> None:
        """A call has ended and used `tokens`."""
        ...

    def row_failed(self) -> None:
        """A row has failed."""
        ...

    @property
    def spent(self) -> str:
        """The limit that is exceeded, "" if none."""
        ...


class NoLimits:
    """The gate without a budget."""

    spent: str = ""

    def admit(self, work: Work) -> bool:
        """Admit every call."""
        return True

    def settle(self, call: int, tokens: int) -> None:
        """Nothing to return."""

    def row_failed(self) -> None:
        """Any number of rows may fail."""
