"""Scheduling policies on real engines, switched during calls."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from support.waiting import RUN_S
from weft_engine.wire import ORDER_NAMES

pytestmark = [pytest.mark.system, pytest.mark.engine]


def body(number: int) -> dict[str, object]:
    return {
        "model": "weft-demo",
        "messages": [{"role": "user", "content": f"Tell me about number {number}."}],
        "max_tokens": 4 + number % 9,
        "ignore_eos": True,
        "temperature": 0,
    }


async def answers(url: str, policies: list[str]) -> list[str]:
    """Make 24 greedy calls of six programs while the policy changes repeatedly, and return the
    answers.
    """
    async with httpx.AsyncClient(base_url=url, timeout=RUN_S, trust_env=False) as client:

        async def call(number: int) -> str:
            got = await client.post(
                "/v1/chat/completions",
                json=body(number),
                headers={
                    "x-weft-program": f"o{number % 6}",
                    # Some have no deadline, some miss it.
                    **({"x-weft-deadline-s": f"{0.1 * 4**number}"} if number % 2 else {}),
                },
            )
            assert got.status_code == 200, got.text
            return str(got.json()["choices"][0]["message"]["content"])

        calls = [asyncio.create_task(call(number)) for number in range(24)]
        for policy in policies:
            done = await client.post("/weft/policy", json={"policy": policy})
            assert done.json()["applied"], done.text
            await asyncio.sleep(0)
        return list(await asyncio.gather(*calls))


def test_answers_do_not_depend_on_policy_switches(stack):
    try:
        assert asyncio.run(answers(stack.url, list(ORDER_NAMES))) == asyncio.run(
            answers(stack.url, ["fcfs"])
        )
    finally:
        httpx.post(f"{stack.url}/weft/policy", json={"policy": "resident"})


@pytest.mark.parametrize("value", ["5", "x", -1, 1e300, True, [1, 2]])
def test_a_hint_of_a_wrong_type_does_not_fail_a_call(stack, value):
    xargs = {"weft_budget": value, "weft_cost": value}
    got = httpx.post(
        f"{stack.url}/v1/chat/completions", json={**body(2), "vllm_xargs": xargs}, timeout=RUN_S
    )
    assert got.status_code == 200


def test_caches_are_emptied_without_a_change_of_the_order(stack):
    url = f"{stack.url}/weft/policy"
    order = {
        one["answer"]["engines"][0]["policy"]
        for one in httpx.get(f"{stack.url}/weft/state").json()["replicas"].values()
    }
    asked = {**body(0), "messages": [{"role": "user", "content": "word " * 200}], "max_tokens": 1}

    def cached() -> int:
        answer = httpx.post(
            f"{stack.url}/v1/chat/completions", json=asked, headers={"x-weft-program": "reset"},
            timeout=RUN_S,
        ).json()  # fmt: skip
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    cached()
    assert cached() > 0
    done = httpx.post(url, json={"reset_cache": True}).json()
    assert done["applied"]
    assert {one["answer"]["engines"][0]["policy"] for one in done["replicas"].values()} == order
    assert cached() == 0
    assert httpx.post(url, json={}).status_code == 400
