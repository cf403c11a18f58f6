"""Readers of hint values: each returns a value clamped to its limits, or refuses it with a reason.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from weft_gateway.model.hint import OwnTag
from weft_gateway.model.tag import Tag

# Returns a value within the limits, and whether it was clamped. Raises ValueError with the reason
# for an invalid value.
Read = Callable[[Any], tuple[Any, bool]]

# Limits on hints. Priorities: in both directions from 0.
MAX_PRIORITY: Final = 8
MAX_REUSE_PRIORITY: Final = 4
MAX_RETAIN_S: Final = 3600.0
MAX_DEADLINE_S: Final = 86_400.0
MAX_TAGS: Final = 64
# Characters of a replica's name: a name is at most a URL.
_REPLICA: Final = 2048
# The highest tag for clients. PARTIAL_PREFILL is for prefills that the gateway requested.
MAX_TAG: Final = Tag.SYSTEM_PROMPT
# Above the length of any prompt.
MAX_TOKENS: Final = 1 << 30

_FLAGS: Final = {
    "1": True, "true": True, "yes": True, "on": True,
    "0": False, "false": False, "no": False, "off": False,
}  # fmt: skip
_TAGS: Final = {tag.name: tag for tag in Tag}
_CLASS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RETENTIONS: Final = {"24h": 86_400.0, "1h": 3600.0, "5m": 300.0}


def number(value: Any, low: float, high: float) -> tuple[float, bool]:
    """Return a number between `low` and `high`. Bytes, from a header, are parsed."""
    if isinstance(value, bytes):
        try:
            # Python also reads 1_0 as 10.
            value = None if b"_" in value else float(value)
        except ValueError:
            raise ValueError("must be a number") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError("must be a number")
    clamped = low if value < low else high if value > high else value
    return float(clamped), clamped != value


def _whole(value: Any, low: int, high: int) -> tuple[int, bool]:
    found, clamped = number(value, low, high)
    if found != int(found):
        raise ValueError("must be a whole number")
    return int(found), clamped


def sooner(value: Any) -> tuple[int, bool]:
    """Read a priority where higher is sooner: Dynamo, vllm-router, Weft."""
    return _whole(value, -MAX_PRIORITY, MAX_PRIORITY)


def later(value: Any) -> tuple[int, bool]:
    """Read a priority where lower is sooner: vLLM."""
    found, clamped = sooner(value)
    return -found, clamped


def tier(value: Any) -> tuple[int, bool]:
    """Read the number of eviction tiers by which KV blocks are kept longer, or shorter."""
    return _whole(value, -MAX_REUSE_PRIORITY, MAX_REUSE_PRIORITY)


def retention(value: Any) -> tuple[float, bool]:
    """Read the seconds for which KV blocks are kept."""
    return number(value, 0.0, MAX_RETAIN_S)


def named_retention(value: Any) -> tuple[float | None, bool]:
    """Read OpenAI's `prompt_cache_retention`, a name; None for `in_memory`, which requests no
    retention.
    """
    if value in ("in_memory", "in-memory"):
        return None, False
    if not isinstance(value, str) or value not in _RETENTIONS:
        raise ValueError("must be in_memory or 24h")
    return retention(_RETENTIONS[value])


def marked_retention(value: Any) -> tuple[float, bool]:
    """Read Anthropic's `cache_control`."""
    if not isinstance(value, dict) or value.get("type") != "ephemeral":
        raise ValueError("must be of type ephemeral")
    ttl = value.get("ttl", "5m")
    if ttl not in ("5m", "1h"):
        raise ValueError("ttl must be 5m or 1h")
    return retention(_RETENTIONS[ttl])


def deadline(value: Any) -> tuple[float, bool]:
    """Read a deadline: seconds from now, or from the first call of a program."""
    found, clamped = number(value, 0.0, MAX_DEADLINE_S)
    if not found:
        raise ValueError("must be more than 0")
    return found, clamped


def slo_class(value: Any) -> tuple[str, bool]:
    """Read the name of an SLO class."""
    if isinstance(value, bytes):
        value = value.decode("latin-1").strip()
    if not isinstance(value, str) or not _CLASS.fullmatch(value):
        raise ValueError("must be the name of a class")
    return value, False


def replica(value: Any) -> tuple[str, bool]:
    """Read the name of a replica. Names that no replica has are no error: replicas come and go."""
    if isinstance(value, bytes):
        value = value.decode("latin-1").strip()
    if not isinstance(value, str) or not 0 < len(value) <= _REPLICA:
        raise ValueError("must be the name of a replica")
    return value, False


def flag(value: Any) -> tuple[bool, bool]:
    """True or false."""
    if isinstance(value, bytes):
        value = _FLAGS.get(value.decode("latin-1").strip().lower())
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value, False


def service_tier(value: Any) -> tuple[bool, bool]:
    """Read OpenAI's `service_tier`: `flex` is for calls that can wait."""
    if value != "flex":
        raise ValueError("must be flex; other tiers have no effect")
    return True, False


def own_tag(name: str, value: Any) -> OwnTag:
    """Read a client's tag for a message (an index), for several (`messages`: first index and end
    index), or for tokens from `start` up to but not including `end`.
    """
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    tag = value.get("tag")
    if isinstance(tag, str) and tag.upper() in _TAGS:
        tag = _TAGS[tag.upper()]
    elif isinstance(tag, int) and not isinstance(tag, bool) and 0 <= tag <= max(Tag):
        tag = Tag(tag)
    else:
        raise ValueError(f"tag must be one of {', '.join(_TAGS)}")
    clamped = tag > MAX_TAG
    tag = min(tag, MAX_TAG)
    if "message" in value:
        message, outside = _whole(value["message"], -1, MAX_TOKENS)
        if outside:
            raise ValueError("message must be an index")
        return OwnTag(name, tag, message, clamped=clamped)
    if "messages" in value:
        first, after = _range(value["messages"])
        return OwnTag(name, tag, first, clamped=clamped, messages=after - first)
    start, early = _whole(value.get("start", 0), 0, MAX_TOKENS)
    end, late = _whole(value.get("end"), 0, MAX_TOKENS)
    if start >= end:
        raise ValueError("needs a message, or a start before an end")
    return OwnTag(name, tag, None, start, end, clamped or early or late)


def _range(span: Any) -> tuple[int, int]:
    if not isinstance(span, list) or len(span) != 2:
        raise ValueError("messages must be two indices")
    (first, early), (after, late) = (_whole(index, 0, MAX_TOKENS) for index in span)
    if early or late or first >= after:
        raise ValueError("messages must be a start before an end")
    return first, after
