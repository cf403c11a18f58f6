"""The length of a prompt decides whether a call prefers its home. Images do not count as text."""

from __future__ import annotations

import asyncio
import base64
import random
from typing import Any

import pytest
from weft_engine.wire import CallReport

pytestmark = [pytest.mark.system, pytest.mark.anyio]

WORDS = ("call", "the", "replica", "again", "queue", "token", "of", "and", "block", "seven")
# An image of one megabyte, which is some hundred tokens in an engine.
BYTES = base64.b64encode(random.Random(1).randbytes(1_000_000)).decode()
PICTURE = f"data:image/png;base64,{BYTES}"
IMAGES = {
    "chat": (
        "/v1/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is this?"},
                        {"type": "image_url", "image_url": {"url": PICTURE}},
                    ],
                }
            ]
        },
    ),
    "responses": (
        "/v1/responses",
        {
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is this?"},
                        {"type": "input_image", "image_url": PICTURE},
                    ],
                }
            ]
        },
    ),
    "messages": (
        "/v1/messages",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "image",
                            "source": {
                                "type": "base64",
                                "media_type": "image/png",
                                "data": BYTES,
                            },
                        }
                    ],
                }
            ]
        },
    ),
}


def text(tokens: int) -> str:
    rng = random.Random(tokens)
    return " ".join(rng.choice(WORDS) for _ in range(tokens))


class CountingEngine:
    """An engine that reports `tokens` as the prompt length and delays calls of the user "hold"."""

    def __init__(self) -> None:
        self.tokens = 1
        self.go = asyncio.Event()
        self.holding = 0

    async def __call__(self, wire: Any, request: Any) -> None:
        if request.json.get("user") == "hold":
            self.holding += 1
            await self.go.wait()
        call = request.headers.get("x-weft-call")
        report = CallReport(call, 0.1, prompt_tokens=self.tokens).to_json() if call else ""
        await wire.plain({"ok": True}, headers={"x-weft-report": report} if report else None)


@pytest.mark.parametrize("images", IMAGES)
@pytest.mark.parametrize("tagged", [True, False])
async def test_image_calls_do_not_shorten_the_estimate_of_long_prompts(
    images: str, tagged: bool, engine: Any, weft: Any, until: Any
) -> None:
    counting = CountingEngine()
    path, body = IMAGES[images]
    settings = {"balancer": "locality", "tag_prompts": tagged}
    async with (
        engine(script=counting) as one,
        engine(script=counting) as two,
        weft(one, two, **settings) as gateway,
    ):
        long = {"messages": [{"role": "user", "content": text(10_000)}]}
        counting.tokens = 10_000
        run = {"x-weft-program": "run"}
        home = (await gateway.call(body=long, headers=run)).headers["x-weft-replica"]
        delayed = asyncio.create_task(gateway.call(body=long | {"user": "hold"}, headers=run))
        await until(lambda: counting.holding)
        # The home is now the busier replica.
        assert gateway.parts.table.in_flight() == {home: 1}
        counting.tokens = 400
        for _ in range(3):
            got = await gateway.call(path, body=body, headers={"x-weft-program": "pictures"})
            assert got.status_code == 200
        new = {"messages": [{"role": "user", "content": text(12_000)}]}
        for body, counting.tokens in ((long, 10_000), (new, 12_000)):
            got = await gateway.call(body=body, headers=run)
            assert got.headers["x-weft-replica"] == home
        counting.go.set()
        assert (await delayed).headers["x-weft-replica"] == home


async def test_an_image_does_not_count_as_long_text(engine: Any, weft: Any) -> None:
    counting = CountingEngine()
    async with (
        engine(script=counting) as one,
        engine(script=counting) as two,
        weft(one, two, balancer="locality") as gateway,
    ):
        path, body = IMAGES["chat"]
        got = await gateway.call(path, body=body, headers={"x-request-id": "q"})
        assert got.status_code == 200
        receipt = (await gateway.client.get("/v1/receipts/q")).json()
        assert receipt["place"]["reason"] == "least_used"  # A short prompt sets no home.
