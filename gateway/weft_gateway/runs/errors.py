"""The errors of runs."""

from __future__ import annotations

from weft_gateway.workflows.commands import Failure


class JobError(ValueError):
    """The job cannot begin. One line per error."""


class CallFailed(Exception):
    """A call or tool has failed for good."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure
