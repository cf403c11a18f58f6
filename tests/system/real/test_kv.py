"""Tags, pins and priorities on a real engine, over HTTP."""

from __future__ import annotations

from uuid import uuid4

import httpx
import pytest
from support.stack import SECRET, until
from support.waiting import RUN_S

pytestmark = [pytest.mark.system, pytest.mark.engine]

HEADERS = {"x-weft-secret": SECRET}


def ask(engine: str, program: str, **hints: object) -> httpx.Response:
    """Make a call with hints directly to the engine."""
    call = f"call-{uuid4()}"
    return httpx.post(
        f"{engine}/v1/chat/completions",
        headers={"x-weft-call": call},
        json={
            "model": "weft-demo",
            "messages": [{"role": "user", "content": "Tell me a long story. " * 40}],
            "max_tokens": 3,
            "vllm_xargs": {"weft_call": call, "weft_program": program, **hints},
        },
        timeout=RUN_S,
    )  # fmt: skip


def state(engine: str) -> dict[str, object]:
    found: dict[str, object] = httpx.get(f"{engine}/weft/state", headers=HEADERS).json()["engines"][
        0
    ]["kv"]
    return found


def command(engine: str, **body: object) -> httpx.Response:
    return httpx.post(f"{engine}/weft/kv", json=body, headers=HEADERS)


def without_pins(engine: str) -> str:
    """Remove the pins of other tests and return the engine."""
    httpx.post(f"{engine}/weft/policy", json={"reset_cache": True}, headers=HEADERS)
    # Commands take effect before the next step.
    ask(engine, "other")
    until(lambda: state(engine)["pins"] == 0, "pins of other tests still exist")
    return engine


def test_hints_are_applied_and_reported_with_the_answer(stack):
    engine = without_pins(stack.replicas[0])
    answer = ask(engine, "hinted", weft_tags=[100, 3], weft_retain=60.0, weft_priority=1)
    assert answer.status_code == 200
    report = answer.headers["x-weft-report"]
    assert '"weft_tags=applied"' in report
    assert '"weft_retain=applied"' in report
    until(lambda: state(engine)["pins"] == 1, "the prompt is not pinned")
    assert state(engine)["blocks_by_tag"]["USER_QUERY"] > 0
    assert command(engine, action="release", program="hinted").status_code == 200
    # Commands take effect before the next step.
    ask(engine, "other")
    until(lambda: state(engine)["pins"] == 0, "the pin still exists")


def test_tags_beyond_the_prompt_are_cut_and_reported(stack):
    answer = ask(stack.replicas[0], "long", weft_tags=[100_000, 4])
    tokens = answer.json()["usage"]["prompt_tokens"]
    assert (
        f"weft_tags=applied, cut at the prompt's {tokens} tokens"
        in (answer.headers["x-weft-report"])
    )


def test_a_program_can_be_retained_over_http(stack):
    engine = without_pins(stack.replicas[0])
    ask(engine, "kept")
    assert command(engine, action="retain", program="kept", ttl_s=60).json() == {
        "engines": [{"accepted": True}]
    }
    ask(engine, "other")
    until(lambda: state(engine)["pins"] == 1, "the prompt is not pinned")
    command(engine, action="release", program="kept")
    ask(engine, "other")
    until(lambda: state(engine)["pins"] == 0, "the pin still exists")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"action": "burn", "program": "p"},
        {"action": "retain", "program": "p"},
        {"action": "retain", "program": "p", "ttl_s": "60"},
        {"action": "release"},
        {"action": "priority", "program": "p", "priority": 1.5},
        {"action": "priority", "program": 5},
    ],
)
def test_an_invalid_command_is_refused(stack, body):
    refused = command(stack.replicas[0], **body)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "bad_command"


def test_commands_need_the_secret(stack):
    body = {"action": "release", "program": "p"}
    assert httpx.post(f"{stack.replicas[0]}/weft/kv", json=body).status_code == 403
