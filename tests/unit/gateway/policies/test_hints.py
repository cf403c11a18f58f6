"""Hints of every dialect, parsed into one type."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft_gateway.model.hint import NO_HINTS, Hints
from weft_gateway.model.tag import Tag
from weft_gateway.policies import hints_values as values
from weft_gateway.policies.hints import read_hints

Headers = dict[bytes, bytes]


def marked(body: dict[str, Any]) -> Hints:
    return read_hints(body, {}, raw=json.dumps(body).encode())


def said(hints: Hints) -> dict[str, Any]:
    """Return the hints without their fates."""
    found = {f.name: getattr(hints, f.name) for f in fields(Hints)}
    return {k: v for k, v in found.items() if k != "fates" and v not in (None, ())}


def test_call_without_hints_is_not_parsed() -> None:
    body = {"model": "m", "messages": [], "temperature": 0.5}
    assert read_hints(body, {b"content-type": b"application/json"}) is NO_HINTS
    assert marked({"messages": [{"role": "user", "content": "u"}]}) is NO_HINTS


@pytest.mark.parametrize(
    ("body", "headers", "wanted"),
    [
        ({"weft": {"priority": 3, "reuse_priority": -2}}, {},
         {"priority": 3, "reuse_priority": -2}),
        ({"weft": {"retain_s": 9.5, "deadline_s": 4}}, {}, {"retain_s": 9.5, "deadline_s": 4.0}),
        ({"weft": {"prefill_next": True}}, {}, {"prefill_next": True}),
        ({}, {b"x-weft-priority": b"2", b"x-weft-retain-s": b" 1.5 "},
         {"priority": 2, "retain_s": 1.5}),
        ({}, {b"x-weft-prefill-next": b"True"}, {"prefill_next": True}),
        ({}, {b"x-weft-replica": b"gpu1:8001"}, {"replica": "gpu1:8001"}),
        ({"weft": {"replica": "a"}}, {b"x-weft-replica": b"b"}, {"replica": "a"}),
        ({"weft": {"batch": False}, "service_tier": "flex"}, {}, {"batch": False}),
        ({"service_tier": "flex"}, {}, {"batch": True}),
        ({"nvext": {"agent_hints": {"priority": 5, "speculative_prefill": True}}}, {},
         {"priority": 5, "prefill_next": True}),
        ({"nvext": {"agent_hints": {"priority": 5, "strict_priority": 1}}}, {}, {"priority": 1}),
        ({"vllm_xargs": {"agentic_context": {
            "priority": 4, "deadline_seconds": 30, "kv_retention_ttl_seconds": 5}}}, {},
         {"priority": 4, "deadline_s": 30.0, "retain_s": 5.0}),
        # In vLLM, a lower value is sooner.
        ({"priority": -3}, {}, {"priority": 3}),
        ({"priority": 5}, {b"x-vllm-priority": b"2"}, {"priority": -2}),
        ({"prompt_cache_retention": "24h"}, {}, {"retain_s": 3600.0}),
        ({"prompt_cache_retention": "in_memory"}, {}, {}),
        ({"cache_control": {"type": "ephemeral", "ttl": "1h"}}, {}, {"retain_s": 3600.0}),
    ],
)  # fmt: skip
def test_every_dialect_is_parsed(
    body: dict[str, Any], headers: Headers, wanted: dict[str, Any]
) -> None:
    hints = read_hints(body, headers)
    assert said(hints) == wanted
    assert hints.fates
    ignored = [fate for fate in hints.fates if "ignored" in fate]
    assert all("comes first" in fate for fate in ignored)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"service_tier": "priority"}, {}),
        ({}, {b"x-weft-batch": b"maybe"}),
        ({"weft": {"deadline_s": -1, "program_deadline_s": 0}}, {}),
        ({}, {b"x-weft-deadline-s": b"0"}),
        ({"vllm_xargs": {"agentic_context": {"deadline_seconds": 0}}}, {}),
    ],
)
def test_values_out_of_range_are_ignored(body: dict[str, Any], headers: Headers) -> None:
    hints = read_hints(body, headers)
    assert said(hints) == {}
    assert all("=ignored: must be" in fate for fate in hints.fates)


EPHEMERAL = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}
TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("body", "seconds", "reach"),
    [
        ({"system": [{**TEXT, "cache_control": EPHEMERAL}]}, 300.0, -1),
        ({"tools": [{"name": "t", "cache_control": HOUR}]}, 3600.0, -1),
        ({"messages": [{"role": "user", "content": [TEXT, {**TEXT, "cache_control": EPHEMERAL}]}]},
         300.0, 0),
        ({"messages": [{"role": "system", "content": "s", "cache_control": EPHEMERAL},
                       {"role": "user", "content": "u", "cache_control": EPHEMERAL}]}, 300.0, 1),
        ({"system": [{**TEXT, "cache_control": HOUR}],
          "messages": [{"role": "user", "content": [{**TEXT, "cache_control": EPHEMERAL}]}]},
         3600.0, -1),
    ],
)  # fmt: skip
def test_cache_control_retains_the_prefix_before_it(
    body: dict[str, Any], seconds: float, reach: int
) -> None:
    hints = marked(body)
    assert said(hints) == {"retain_s": seconds, "retain_to": reach}
    assert hints.fates == ("cache_control=applied up to the end of its message",)


def test_first_value_wins_and_the_others_are_ignored() -> None:
    body = {
        "weft": {"priority": 2},
        "nvext": {"agent_hints": {"priority": 5}},
        "priority": -7,
        "cache_control": EPHEMERAL,
        "system": [{**TEXT, "cache_control": HOUR}],
    }
    hints = marked(body)
    assert said(hints) == {"priority": 2, "retain_s": 300.0}
    assert set(hints.fates) == {
        "weft.priority=applied",
        "nvext.agent_hints.priority=ignored: weft.priority comes first",
        "priority=ignored: weft.priority comes first",
        "cache_control=applied",
        "cache_control=ignored: cache_control comes first",
    }


def test_malformed_hint_falls_back_to_the_next() -> None:
    hints = read_hints({"weft": {"priority": "high"}, "priority": -1}, {b"x-weft-priority": b"x"})
    assert hints.priority == 1
    assert hints.fates == (
        "weft.priority=ignored: must be a number",
        "x-weft-priority=ignored: must be a number",
        "priority=applied",
    )


def test_values_beyond_their_limits_are_clamped() -> None:
    body = {"weft": {"priority": -9, "retain_s": 1e9, "deadline_s": 1e9}}
    hints = read_hints(body, {})
    assert said(hints) == {"priority": -8, "retain_s": 3600.0, "deadline_s": 86_400.0}
    assert all(fate.endswith(", clamped") for fate in hints.fates)


def test_client_tags_are_given_by_message_or_tokens() -> None:
    given_tags = [
        {"message": 0, "tag": "system_prompt"},
        {"start": 10, "end": 20, "tag": 2},
        {"end": 20, "tag": "PARTIAL_PREFILL"},
        {"message": 1.5, "tag": "RESPONSE"},
        {"message": 1, "tag": "BEST"},
        {"start": 9, "end": 9, "tag": "RESPONSE"},
        "SYSTEM_PROMPT",
    ]
    hints = read_hints({"weft": {"tags": given_tags}}, {})
    first, second, third = hints.tags
    assert (first.message, first.tag, first.clamped) == (0, Tag.SYSTEM_PROMPT, False)
    assert (second.message, second.start, second.end, second.tag) == (None, 10, 20, 2)
    assert (third.end, third.tag, third.clamped) == (20, Tag.SYSTEM_PROMPT, True)
    assert [fate.partition("=")[0] for fate in hints.fates] == [
        f"weft.tags[{number}]" for number in (3, 4, 5, 6)
    ]


@pytest.mark.parametrize(
    ("body", "fate"),
    [
        ({"weft": {"tags": "all"}}, "weft.tags=ignored: must be a list"),
        ({"weft": 3}, "weft=ignored: must be an object"),
        ({"nvext": {"agent_hints": []}}, "nvext.agent_hints=ignored: must be an object"),
        ({"weft": {"retian_s": 3}}, "weft.retian_s=ignored: unknown"),
        ({"weft": {"a\r\nb": 3}}, "weft.a\\r\\nb=ignored: unknown"),
        ({"weft": {"tags": [{"message": 0, "tag": 1}] * 65}},
         "weft.tags=ignored from the 65th on: too many"),
        ({"cache_control": {"type": "forever"}},
         "cache_control=ignored: must be of type ephemeral"),
        ({"cache_control": {"type": "ephemeral", "ttl": "2h"}},
         "cache_control=ignored: ttl must be 5m or 1h"),
    ],
)  # fmt: skip
def test_ignored_hints_have_a_reason(body: dict[str, Any], fate: str) -> None:
    assert read_hints(body, {}).fates == (fate,)


def test_absent_is_not_malformed() -> None:
    assert read_hints({"weft": {"tool_dispatch": True}}, {}) == NO_HINTS
    body = {"weft": None, "nvext": {"agent_hints": None}, "priority": None, "vllm_xargs": {"a": 1}}
    assert read_hints(body, {}) == NO_HINTS


NUMBER = st.integers() | st.floats() | st.booleans()
ANYTHING = st.recursive(
    st.none() | NUMBER | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)


def some(*names: str) -> st.SearchStrategy[Any]:
    """Return objects with any of these names, and other values."""
    return ANYTHING | st.fixed_dictionaries({}, optional=dict.fromkeys(names, ANYTHING | NUMBER))


MARK = some("type", "ttl") | st.fixed_dictionaries(
    {"type": st.just("ephemeral")}, optional={"ttl": st.sampled_from(["5m", "1h"]) | ANYTHING}
)
MARKED = ANYTHING | st.lists(
    ANYTHING | st.fixed_dictionaries({"cache_control": MARK}, optional={"content": ANYTHING}),
    max_size=3,
)
TAG = st.fixed_dictionaries(
    {"tag": st.sampled_from(Tag).map(int) | ANYTHING},
    optional={"message": NUMBER, "start": NUMBER, "end": NUMBER},
)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "weft": some("priority", "reuse_priority", "retain_s", "deadline_s", "ttft_ms",
                     "prefill_next", "tags")
        | st.fixed_dictionaries({"tags": st.lists(TAG | ANYTHING, max_size=4)}),
        "nvext": some("agent_hints") | st.fixed_dictionaries(
            {"agent_hints": some("priority", "strict_priority", "speculative_prefill")}),
        "vllm_xargs": ANYTHING | st.fixed_dictionaries({"agentic_context": some(
            "priority", "deadline_seconds", "kv_retention_ttl_seconds")}),
        "prompt_cache_retention": st.sampled_from(["24h", "in_memory"]) | ANYTHING,
        "priority": ANYTHING | NUMBER,
        "cache_control": MARK,
        "tools": MARKED, "system": MARKED, "messages": MARKED,
    },
)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from([b"x-weft-priority", b"x-weft-retain-s", b"x-weft-prefill-next",
                     b"x-vllm-priority"]),
    st.binary(max_size=8) | NUMBER.map(lambda n: str(n).encode()),
)  # fmt: skip


@settings(deadline=None)
@given(BODIES, HEADERS, st.booleans())
def test_no_input_raises_or_exceeds_the_limits(
    body: dict[str, Any], headers: Headers, look_inside: bool
) -> None:
    hints = read_hints(body, headers, b'"cache_control"' if look_inside else b"")
    assert abs(hints.priority or 0) <= values.MAX_PRIORITY
    assert abs(hints.reuse_priority or 0) <= values.MAX_REUSE_PRIORITY
    assert 0 <= (hints.retain_s or 0.0) <= values.MAX_RETAIN_S
    assert 0 <= (hints.deadline_s or 0.0) <= values.MAX_DEADLINE_S
    assert len(hints.tags) <= values.MAX_TAGS
    for tag in hints.tags:
        assert tag.tag <= values.MAX_TAG
        assert tag.message is not None or 0 <= tag.start < tag.end
    assert type(hints.prefill_next) in (bool, type(None))
    for fate in hints.fates:
        assert fate.isascii()
        assert fate.isprintable()
        assert "=" in fate
