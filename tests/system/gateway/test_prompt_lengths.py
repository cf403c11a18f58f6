"""The length of a prompt decides whether a call prefers its home. Images do not count as text."""

from __future__ import annotations

import asyncio
import base64
import json
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


SCAN = base64.b64encode(random.Random(2).randbytes(1_100_000)).decode()
LONG = text(6000)


def large(kind: str) -> tuple[str, dict[str, Any]]:
    """Return a call with 6,000 words and four images, recordings or documents: more than is
    read."""
    name, _, part = kind.partition(" ")
    parts: dict[str, Any] = {
        "image": {
            "chat": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{SCAN}"}},
            "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{SCAN}"},
            "messages": {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": SCAN},
            },
        },
        "audio": {"chat": {"type": "input_audio", "input_audio": {"data": SCAN, "format": "wav"}}},
        "file": {
            "chat": {"type": "file", "file": {"filename": "a.pdf", "file_data": SCAN}},
            "responses": {"type": "input_file", "filename": "a.pdf", "file_data": SCAN},
            "messages": {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": SCAN},
            },
        },
    }
    words = {"type": "input_text" if name == "responses" else "text", "text": LONG}
    message = {"role": "user", "content": [words, *[parts[part][name]] * 4]}
    path = IMAGES[name][0]
    return path, {"model": "tiny", "input" if name == "responses" else "messages": [message]}


LARGE = (
    "chat image", "chat audio", "chat file", "responses image", "responses file",
    "messages image", "messages file",
)  # fmt: skip


@pytest.mark.parametrize(
    ("session", "balancer", "escaped"), [(True, "locality", False), (False, "least_used", True)]
)
@pytest.mark.parametrize("kind", LARGE)
async def test_media_count_as_media_in_a_body_that_is_not_read(
    kind: str, session: bool, balancer: str, escaped: bool, engine: Any, weft: Any
) -> None:
    path, body = large(kind)
    raw = json.dumps(body)
    if escaped:  # As PHP's encoder writes it.
        raw = raw.replace("/", "\\/")
    headers = {"content-type": "application/json", "x-request-id": "q"}
    if session:
        headers["x-session-id"] = "screens"
    settings = {"balancer": balancer, "tokens_per_minute": 500_000}
    async with engine() as stub, weft(stub, **settings) as gateway:
        got = await gateway.client.post(path, content=raw.encode(), headers=headers)
        assert got.status_code == 200
        receipt = (await gateway.client.get("/v1/receipts/q")).json()
        assert stub.requests[-1].raw.endswith(raw.encode()[1:])
    # Four media of about 600 tokens, and the words.
    assert 6000 < receipt["predicted"]["prompt_tokens"] < 12_000


async def test_sessions_with_images_share_the_text_before_them(
    engine: Any, weft: Any, until: Any
) -> None:
    counting = CountingEngine()
    async with (
        engine(script=counting) as one,
        engine(script=counting) as two,
        weft(one, two, balancer="locality") as gateway,
    ):
        system = {"role": "system", "content": LONG}
        counting.tokens = 8000

        async def call(session: str, data: str = BYTES, **more: Any) -> str:
            image = {"url": f"data:image/png;base64,{data}"}
            asked = {"role": "user", "content": [{"type": "image_url", "image_url": image}]}
            body = {"messages": [system, asked], **more}
            got = await gateway.call(body=body, headers={"x-session-id": session})
            assert got.status_code == 200
            return str(got.headers["x-weft-replica"])

        home = await call("first")
        held = asyncio.create_task(call("first", user="hold"))
        await until(lambda: counting.holding)
        # The text is worth more than a call in flight.
        assert await call("second", SCAN) == home
        counting.go.set()
        await held


async def test_parts_without_media_do_not_count_as_media(engine: Any, weft: Any) -> None:
    names = [{"type": "tool_reference", "tool_name": f"tool{number}"} for number in range(20)]
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": names}
    content = [result, {"type": "text", "text": LONG}]
    async with engine() as stub, weft(stub, balancer="locality") as gateway:
        got = await gateway.call(
            "/v1/messages",
            body={"messages": [{"role": "user", "content": content}], "max_tokens": 9},
            headers={"x-request-id": "q"},
        )
        assert got.status_code == 200
        receipt = (await gateway.client.get("/v1/receipts/q")).json()
    # Found tools are names; twenty media would be 12,000 tokens.
    assert receipt["predicted"]["prompt_tokens"] < 12_000
