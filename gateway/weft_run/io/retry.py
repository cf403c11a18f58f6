"""When a failed call or tool is repeated, and after which time. Pure."""

from __future__ import annotations

from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random
from typing import Final

# All other 4xx statuses are errors of the request: a repetition fails again.
_PASSES: Final = frozenset({408, 425, 429})
_FIRST_S: Final = 0.5
_LONGEST_S: Final = 30.0
# A server that asks for a longer pause is treated as one that asks for this one.
_LONGEST_ASKED_S: Final = 120.0
# The start of an error that has its message.
_ERROR_BYTES: Final = 4096


def may_pass(status: int) -> bool:
    """Whether an error status may pass."""
    return status >= 500 or status in _PASSES


def model_is_away(status: int, body: bytes) -> bool:
    """Whether an error says that a server does not serve the model. A job checks its models before
    it begins, so another server or a later attempt may serve it. Servers give it no common code.
    """
    return status == 404 and b"model" in body[:_ERROR_BYTES].lower()


def pause(attempt: int, retry_after: str | None, now_s: float, random: Random) -> float:
    """Return the time before the next attempt, seconds. attempt: attempts so far. retry_after: the
    header (RFC 9110, 10.2.3): seconds or a date. now_s: Unix time.
    """
    asked = _asked(retry_after, now_s)
    if asked is not None:
        # Calls that were refused together must not return together.
        return asked + random.uniform(0, min(asked, _FIRST_S))
    most = min(_LONGEST_S, _FIRST_S * 2 ** min(attempt - 1, 16))
    return random.uniform(most / 2, most)


def _asked(retry_after: str | None, now_s: float) -> float | None:
    text = (retry_after or "").strip()
    if not text:
        return None
    if text.isascii() and text.isdigit():
        seconds = float(text[:9])
    else:
        try:
            date = parsedate_to_datetime(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now_s
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, seconds), _LONGEST_ASKED_S)
