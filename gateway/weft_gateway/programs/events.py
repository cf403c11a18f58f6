"""What changes a process table, as values: so that a change can wait and be made later, once.

A call's opening and closing are events as they are: a call is opened once and closed once. What may
happen to a program more than once carries an id.
"""

from __future__ import annotations

import os

from weft_gateway.model import Closing, Opening, ProgramKey, Told
from weft_gateway.model.record import record


@record
class Started:
    """A program was started by its handle at `now_s` (Unix time). id: "" where nobody will ask for
    the same change again."""

    key: ProgramKey
    now_s: float
    id: str = ""


@record
class Ended:
    """A program was ended by its handle. See Started."""

    key: ProgramKey
    now_s: float
    id: str = ""


@record
class Telling:
    """Something was told of a program at `now_s`. See Started."""

    key: ProgramKey
    told: Told
    now_s: float
    id: str = ""


Event = Opening | Closing | Started | Ended | Telling


def new_id() -> str:
    """An id for an event, unique over all gateways."""
    return f"event-{os.urandom(12).hex()}"
