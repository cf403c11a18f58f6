"""Converts the hints of all client dialects to one form. Pure.

The rows of a table, in order: Weft's own hints, vllm-router's `agentic_context`, Dynamo's
`nvext.agent_hints`, then single names of other clients. The first valid value wins. Only this
module converts the polarity of priorities. A hint never fails a call: malformed hints are ignored,
and the fate of every hint is reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from weft_gateway.model.hint import NO_HINTS, Hints, OwnTag
from weft_gateway.policies import hints_values as values
from weft_gateway.policies.tags_sections import PREAMBLE
from weft_gateway.transcripts.transcript import Known, numbered

_MARK: Final = b'"cache_control"'
# Maximum fates per call, which bounds the size of a receipt.
_MAX_FATES: Final = 96
_SHOWN: Final = 40


class _Row(NamedTuple):
    """A hint's place in a body (keys) or among headers (bytes), the field that it sets, and its
    reader.
    """

    place: tuple[str, ...] | bytes
    sets: str
    read: values.Read


# Weft's own hints, in the body's `weft` and as headers: the fields that they set.
_WEFT: Final[Mapping[str, values.Read]] = {
    "priority": values.sooner,
    "reuse_priority": values.tier,
    "retain_s": values.retention,
    "deadline_s": values.deadline,
    "slo": values.slo_class,
    "program_deadline_s": values.deadline,
    "prefill_next": values.flag,
    "replica": values.replica,
    "batch": values.flag,
}
_ROWS: Final = (
    *(_Row(("weft", name), name, read) for name, read in _WEFT.items()),
    *(
        _Row(f"x-weft-{name.replace('_', '-')}".encode(), name, read)
        for name, read in _WEFT.items()
    ),
    _Row(("vllm_xargs", "agentic_context", "priority"), "priority", values.sooner),
    _Row(("vllm_xargs", "agentic_context", "deadline_seconds"), "deadline_s", values.deadline),
    _Row(
        ("vllm_xargs", "agentic_context", "kv_retention_ttl_seconds"), "retain_s", values.retention
    ),
    # The tier comes before the priority, as in Dynamo's queue.
    _Row(("nvext", "agent_hints", "strict_priority"), "priority", values.sooner),
    _Row(("nvext", "agent_hints", "priority"), "priority", values.sooner),
    _Row(("nvext", "agent_hints", "speculative_prefill"), "prefill_next", values.flag),
    _Row(("cache_control",), "retain_s", values.marked_retention),
    _Row(("prompt_cache_retention",), "retain_s", values.named_retention),
    _Row(("service_tier",), "batch", values.service_tier),
    _Row(b"x-llm-d-inference-objective", "slo", values.slo_class),
    _Row(b"x-gateway-inference-objective", "slo", values.slo_class),
    # vLLM gives the header precedence over the field.
    _Row(b"x-vllm-priority", "priority", values.later),
    _Row(("priority",), "priority", values.later),
)  # fmt: skip

_IN_BODY: Final = frozenset(row.place[0] for row in _ROWS if isinstance(row.place, tuple))
_IN_HEADERS: Final = frozenset(row.place for row in _ROWS if isinstance(row.place, bytes))
# `tool_dispatch` requests an event and is not a hint; another module reads it.
_OWN: Final = {*_WEFT, "tags", "tool_dispatch"}
_OBJECTS: Final = (("weft",), ("nvext",), ("nvext", "agent_hints"))
_ABSENT: Final = object()
_APPLIED: Final = "applied"
# Fates of a mark inside messages. If the mark's token is unknown, the mark applies to the whole
# prompt.
UP_TO_MARK: Final = "applied up to the end of its message"
WHOLE: Final = "applied to the whole prompt"
# Fates of hints that need more than `applied`.
BY_DEADLINE: Final = "applied: the orders for deadlines use it"
AS_CLASS: Final = "applied as the class of the program"
AS_TARGET: Final = "applied as the target of the program"
IF_ABLE: Final = "applied if the replica takes the call"
THERE: Final = "applied: the call runs there"
CAN_WAIT: Final = "applied: the call waits while other clients need the replicas"
_FATES: Final = {
    "replica": IF_ABLE,
    "batch": CAN_WAIT,
    "deadline_s": BY_DEADLINE,
    "slo": AS_CLASS,
    "program_deadline_s": AS_TARGET,
    "prefill_next": "applied after a chat answer that calls tools",
}


def read_hints(
    body: Mapping[str, Any],
    headers: Mapping[bytes, bytes],
    raw: bytes = b"",
    known: Known | None = None,
) -> Hints:
    """Read all hints of a call, within their limits. Never raises.

    body: parsed from `raw`. known: messages of it that are not in `raw`. Without `raw`, marks of
    `cache_control` inside messages are not read. headers: names in lower case. Durations start now.
    """
    marked = _MARK in raw or (known is not None and bool(known.of.marks))
    if not marked and _IN_BODY.isdisjoint(body) and _IN_HEADERS.isdisjoint(headers):
        return NO_HINTS
    found: dict[str, Any] = {}
    fates: list[str] = []
    tags = _own_tags(body, fates)
    winners: dict[str, str] = {}
    for row in _ROWS:
        value = _at(body, headers, row.place)
        if value is _ABSENT or value is None:
            continue
        name = row.place.decode() if isinstance(row.place, bytes) else ".".join(row.place)
        try:
            read, clamped = row.read(value)
        except ValueError as error:
            fates.append(f"{name}=ignored: {error}")
            continue
        if row.sets in winners:
            fates.append(f"{name}=ignored: {winners[row.sets]} comes first")
            continue
        winners[row.sets] = name
        found[row.sets] = read
        fates.append(f"{name}={_FATES.get(row.sets, _APPLIED)}{', clamped' if clamped else ''}")
    if marked:
        _read_marks(body, found, winners, fates)
    return Hints(**found, tags=tags, fates=tuple(fates[:_MAX_FATES]))


def with_replica_fate(fates: tuple[str, ...], there: bool, refusal: str) -> tuple[str, ...]:
    """Return the fates of a call whose replica is chosen. there: whether it is the one that the
    client has named; refusal: why not.
    """
    return tuple(
        [text.replace(IF_ABLE, THERE if there else f"ignored: {refusal}") for text in fates]
    )


def _at(
    body: Mapping[str, Any], headers: Mapping[bytes, bytes], place: tuple[str, ...] | bytes
) -> Any:
    if isinstance(place, bytes):
        return headers.get(place, _ABSENT)
    value: Any = body
    for key in place:
        if not isinstance(value, Mapping):
            return _ABSENT
        value = value.get(key, _ABSENT)
    return value


def _own_tags(body: Mapping[str, Any], fates: list[str]) -> tuple[OwnTag, ...]:
    """Return the client's tags, whose fates are known after their placement. Also reports the fates
    of malformed objects and unknown names.
    """
    for place in _OBJECTS:
        value = _at(body, {}, place)
        if value is not _ABSENT and value is not None and not isinstance(value, Mapping):
            fates.append(f"{'.'.join(place)}=ignored: must be an object")
    own = body.get("weft")
    if not isinstance(own, Mapping):
        return ()
    fates.extend(
        f"weft.{_shown(key)}=ignored: unknown" for key in list(own)[:_MAX_FATES] if key not in _OWN
    )
    given = own.get("tags")
    if given is None:
        return ()
    if not isinstance(given, list):
        fates.append("weft.tags=ignored: must be a list")
        return ()
    if len(given) > values.MAX_TAGS:
        fates.append(f"weft.tags=ignored from the {values.MAX_TAGS + 1}th on: too many")
    tags = []
    for number, value in enumerate(given[: values.MAX_TAGS]):
        name = f"weft.tags[{number}]"
        try:
            tags.append(values.own_tag(name, value))
        except ValueError as error:
            fates.append(f"{name}=ignored: {error}")
    return tuple(tags)


def _read_marks(
    body: Mapping[str, Any],
    found: dict[str, Any],
    winners: Mapping[str, str],
    fates: list[str],
) -> None:
    """Read Anthropic's marks, which retain the prompt up to the mark. The longest retention wins,
    and of several equal ones the last in the prompt.
    """
    longest, reach, shortened = -1.0, PREAMBLE, False
    wrong = ""
    for message, mark in _marks(body):
        try:
            seconds, clamped = values.marked_retention(mark)
        except ValueError as error:
            wrong = str(error)
            continue
        if seconds >= longest:
            longest, reach, shortened = seconds, message, clamped
    if wrong:
        fates.append(f"cache_control=ignored: {wrong}")
    if longest < 0:
        return
    if "retain_s" in winners:
        fates.append(f"cache_control=ignored: {winners['retain_s']} comes first")
        return
    found["retain_s"], found["retain_to"] = longest, reach
    fates.append(f"cache_control={UP_TO_MARK}{', clamped' if shortened else ''}")


def _marks(body: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """Yield every mark inside tools, system prompt and messages, in the order of the prompt."""
    for name in ("tools", "system"):
        yield from ((PREAMBLE, mark) for mark in _marked(body.get(name)))
    messages = body.get("messages")
    if isinstance(messages, list):
        for index, message in numbered(messages):
            if isinstance(message, Known):
                yield from message.marks()
            elif isinstance(message, Mapping):
                yield from ((index, mark) for mark in _marked([message]))
                yield from ((index, mark) for mark in _marked(message.get("content")))


def _marked(parts: Any) -> Iterator[Any]:
    if isinstance(parts, list):
        for part in parts:
            if isinstance(part, Mapping) and part.get("cache_control") is not None:
                yield part["cache_control"]


def _shown(key: str) -> str:
    """Shorten and escape a client's name for headers and log lines."""
    return ascii(key)[1:-1][:_SHOWN]
