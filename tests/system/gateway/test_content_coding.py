"""Request bodies with a content coding, on all routes that take a body."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

pytestmark = [pytest.mark.system, pytest.mark.anyio]

CHAT = "/v1/chat/completions"


def streamed_zstd(data: bytes) -> bytes:
    """Compress without the size of the content, in two frames."""
    half = len(data) // 2
    one, other = zstandard.ZstdCompressor().compressobj(), zstandard.ZstdCompressor().compressobj()
    return (one.compress(data[:half]) + one.flush()) + (other.compress(data[half:]) + other.flush())


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "two members": ("x-gzip", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "deflate": ("deflate", zlib.compress),
    "zstd": ("ZSTD", zstandard.compress),
    "streamed zstd": ("zstd", streamed_zstd),
}


async def echo(wire: Any, request: Any) -> None:
    assert "content-encoding" not in request.headers
    body = request.json
    if request.target.endswith("count_tokens"):
        await wire.plain({"input_tokens": len(body["messages"])})
        return
    text = body["messages"][0]["content"]
    message = {"role": "assistant", "content": text[-8:]}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    await wire.plain({"id": "1", "object": "chat.completion", "choices": [choice]})


@pytest.mark.parametrize("name", CODINGS)
async def test_each_route_takes_a_coded_body(name: str, engine: Any, weft: Any) -> None:
    coding, encode = CODINGS[name]
    form = "\r\n".join((
        "--b", 'content-disposition: form-data; name="purpose"', "", "batch",
        "--b", 'content-disposition: form-data; name="file"; filename="f"', "", "{}" * 400_000,
        "--b--", "",
    )).encode()  # fmt: skip
    # Text that compresses badly, so that the coded body arrives in several pieces.
    long = os.urandom(600_000).hex() + "the end."

    async with engine(script=echo) as stub, weft(stub) as gateway:

        async def post(path: str, body: Any, kind: str = "application/json") -> Any:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers = {"content-encoding": coding, "content-type": kind}
            answer = await gateway.client.post(path, content=encode(data), headers=headers)
            assert answer.status_code < 300, answer.text
            return answer.json()

        for text in ("Hello you", long):
            messages = [{"role": "user", "content": text}]
            said = await post(CHAT, {"model": "tiny", "messages": messages})
            assert said["choices"][0]["message"]["content"] == text[-8:]
        assert (await post("/p/a/v1/chat/completions", {"model": "tiny", "messages": messages}))[
            "id"
        ]
        counted = await post("/v1/messages/count_tokens", {"model": "tiny", "messages": messages})
        assert counted == {"input_tokens": 1}
        assert (await post("/v1/sessions", {"id": "mine"}))["id"] == "mine"
        stored = await post("/v1/files", form, "multipart/form-data; boundary=b")
        assert stored["bytes"] == 800_000
        params = {"model": "tiny", "max_tokens": 1, "messages": messages}
        batch = await post(
            "/v1/messages/batches", {"requests": [{"custom_id": "a", "params": params}]}
        )
        assert batch["request_counts"]["processing"] == 1


@pytest.mark.parametrize("name", ["gzip", "deflate", "zstd", "streamed zstd"])
async def test_a_body_that_decodes_to_more_than_its_limit_is_413(
    name: str, engine: Any, weft: Any
) -> None:
    coding, encode = CODINGS[name]
    bomb = encode(b" " * (64 << 20))
    assert len(bomb) < 200_000
    most = 1 << 20
    async with (
        engine(script=echo) as stub,
        weft(stub, max_body_bytes=most, file_bytes=most) as gateway,
    ):
        headers = {"content-encoding": coding}
        for path in (CHAT, "/v1/sessions", "/v1/messages/batches"):
            answer = await gateway.client.post(path, content=bomb, headers=headers)
            assert (answer.status_code, "code" in answer.text) == (
                413,
                path != "/v1/messages/batches",
            )
        assert not stub.requests


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"") * 50_000),
        ("zstd", zstandard.compress(b"") * 116_508),
        # A frame of zstd without content.
        ("zstd", b"\x50\x2a\x4d\x18" + (4 << 20).to_bytes(4, "little") + bytes(4 << 20)),
    ],
    ids=["gzip", "zstd", "frame to skip"],
)
async def test_a_body_that_is_much_larger_than_its_content_is_refused(
    coding: str, body: bytes, engine: Any, weft: Any
) -> None:
    async with engine(script=echo) as stub, weft(stub, max_body_bytes=1 << 20) as gateway:
        headers = {"content-encoding": coding}
        answer = await gateway.client.post(CHAT, content=body, headers=headers)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "invalid_content_coding"


async def test_a_body_of_many_members_is_read(engine: Any, weft: Any) -> None:
    text = os.urandom(2_000_000).hex()
    data = json.dumps({"model": "tiny", "messages": [{"role": "user", "content": text}]}).encode()
    body = b"".join(gzip.compress(data[at : at + 2048]) for at in range(0, len(data), 2048))
    async with engine(script=echo) as stub, weft(stub) as gateway:
        headers = {"content-encoding": "gzip"}
        answer = await gateway.client.post(CHAT, content=body, headers=headers)
        assert answer.json()["choices"][0]["message"]["content"] == text[-8:]


async def test_bodies_that_cannot_be_decoded_are_refused(engine: Any, weft: Any) -> None:
    data = json.dumps({"model": "tiny", "messages": []}).encode()
    cases = [
        (400, "gzip", data),
        (400, "gzip", gzip.compress(data)[:-9]),
        (400, "gzip", gzip.compress(data) + b"more"),
        (400, "deflate", data),
        (400, "zstd", data),
        (400, "zstd", zstandard.compress(data)[:-2]),
        (415, "br", data),
        (415, "gzip, gzip", gzip.compress(gzip.compress(data))),
    ]
    async with engine(script=echo) as stub, weft(stub) as gateway:
        for path in (CHAT, "/v1/messages", "/v1/sessions"):
            for status, coding, body in cases:
                headers = {"content-encoding": coding}
                answer = await gateway.client.post(path, content=body, headers=headers)
                assert answer.status_code == status, (path, coding, answer.text)
                error = answer.json()
                assert ("type" in error) == (path == "/v1/messages")
                if status == 415:
                    assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"
        assert not stub.requests
        plain = {"content-encoding": "identity"}
        body = json.dumps({"id": "mine"}).encode()
        answer = await gateway.client.post("/v1/sessions", content=body, headers=plain)
        assert answer.status_code == 201
