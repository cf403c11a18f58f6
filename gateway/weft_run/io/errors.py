"""The errors of runs."""

from __future__ import annotations

from weft_run.plan.commands import NO_USAGE, Failure, Usage


class JobError(ValueError):
    """The job cannot begin. One line per error."""


class CallFailed(Exception):
    """A call or tool has failed for good. usage: the tokens of an answer that cannot be used."""

    def __init__(self, failure: Failure, usage: Usage = NO_USAGE) -> None:
        super().__init__(failure.message)
        self.failure = failure
        self.usage = usage
