"""Bodies of `POST /weft/kv`: accepted values and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft_engine.kv_command import KV_ACTIONS, KvCommand


@pytest.mark.parametrize("action", KV_ACTIONS)
def test_every_action_is_read(action: str):
    body = {"action": action, "program": "p", "ttl_s": 60, "priority": -1, "tokens": 64, "x": 1}
    assert KvCommand.from_body(body) == KvCommand(action, "p", 60, -1, 64)


def test_missing_fields_have_defaults():
    assert KvCommand.from_body({"action": "forget", "program": "p"}) == KvCommand("forget", "p")
    with_none = {"action": "retain", "program": "p", "ttl_s": 1, "tokens": None}
    assert KvCommand.from_body(with_none).tokens is None


RIGHT = {"action": "retain", "program": "p", "ttl_s": 60}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"action": "burn"}, "action must be retain, release, give_up, forget or priority"),
        ({"action": None}, "action must be"),
        ({"action": ["retain"]}, "action must be"),
        ({"program": 7}, "program must be a non-empty string"),
        ({"program": ""}, "program must be a non-empty string"),
        ({"ttl_s": 0}, "retain needs a ttl_s above 0"),
        ({"ttl_s": "60"}, "ttl_s must be a number of seconds"),
        ({"ttl_s": True}, "ttl_s must be a number of seconds"),
        ({"ttl_s": None}, "ttl_s must be a number of seconds"),
        ({"ttl_s": float("nan")}, "ttl_s must be a number of seconds"),
        ({"ttl_s": 1e13}, "ttl_s must be a number of seconds"),
        ({"ttl_s": -1}, "ttl_s must be a number of seconds"),
        ({"priority": 1.5}, "priority must be a whole number"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": None}, "priority must be a whole number"),
        ({"tokens": "all"}, "tokens must be a whole number"),
        ({"tokens": False}, "tokens must be a whole number"),
        ({"tokens": ""}, "tokens must be a whole number"),
    ],
)
def test_invalid_commands_are_refused_with_a_message(change: dict[str, Any], said: str):
    KvCommand.from_body(RIGHT)
    with pytest.raises(ValueError, match=said):
        KvCommand.from_body({**RIGHT, **change})


@pytest.mark.parametrize("body", [None, [], "retain", 7, {}, {"action": "release"}])
def test_a_body_without_required_fields_is_refused(body: Any):
    with pytest.raises(ValueError, match="must be"):
        KvCommand.from_body(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "action": st.sampled_from(KV_ACTIONS) | JSON,
            "program": st.just("p") | JSON,
            "ttl_s": st.just(1.5) | JSON,
            "priority": st.integers(-9, 9) | JSON,
            "tokens": st.integers(0, 9) | JSON,
        },
    )
)
def test_any_body_is_refused_or_parses_to_the_same_command_again(body: Any):
    try:
        advice = KvCommand.from_body(json.loads(json.dumps(body)))
    except ValueError:
        return
    told = {name: getattr(advice, name) for name in KvCommand.__slots__}
    assert KvCommand.from_body(told) == advice
