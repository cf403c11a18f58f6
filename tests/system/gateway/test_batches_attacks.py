"""Clients that try to break files and batches, or to reach those of others."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from typing import Any

import httpx
import openai
import pytest
from support.batches import CHAT, chat, client_of, content, ended, line, lines, run, upload

KEYS = ("sk-a", "sk-b")

pytestmark = [pytest.mark.system, pytest.mark.anyio]

WINDOW: Any = {"endpoint": CHAT, "completion_window": "24h"}


async def test_a_tenant_reaches_nothing_of_another(engine: Any, weft: Any) -> None:
    async with (
        engine(script=chat) as stub,
        weft(stub) as gateway,
        client_of(gateway, "sk-a") as mine,
        client_of(gateway, "sk-b") as other,
    ):
        batch = await run(mine, lines(line(0)))
        ids = (batch.input_file_id, batch.output_file_id)
        for file_id in ids:
            for attempt in (other.files.retrieve, other.files.content, other.files.delete):
                with pytest.raises(openai.NotFoundError):
                    await attempt(file_id)
            with pytest.raises(openai.BadRequestError, match="No file"):
                await other.batches.create(input_file_id=file_id, **WINDOW)
            with pytest.raises(openai.NotFoundError):
                await other.files.list(after=file_id)
        for attempt in (other.batches.retrieve, other.batches.cancel):
            with pytest.raises(openai.NotFoundError):
                await attempt(batch.id)
        with pytest.raises(openai.NotFoundError):
            await other.batches.list(after=batch.id)
        assert (await other.files.list()).data == (await other.batches.list()).data == []
        # The ids of one API are unknown to the other.
        for action in ("", "/results", "/cancel"):
            method = "POST" if action == "/cancel" else "GET"
            path = f"/v1/messages/batches/{batch.id}{action}"
            answer = await gateway.client.request(method, path, headers={"x-api-key": "sk-a"})
            assert answer.status_code == 404


async def test_ids_and_names_are_no_paths(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        secret = gateway.parts.batches.store.folder.parent / "secret"
        secret.write_text("secret")
        names = ("..%2F..%2Fsecret", "..%2Fbatches.sqlite3", "%2e%2e", "file-%00", "lock", "%ff")
        for name, part in product(names, ("", "/content")):
            answer = await gateway.client.get(f"/v1/files/{name}{part}")
            assert answer.status_code == 404, name
            assert b"secret" not in answer.content.replace(name.encode(), b"").replace(
                b"../../secret", b""
            )
        for name in names:
            path = f"/v1/messages/batches/{name}/results"
            assert (await gateway.client.get(path)).status_code == 404
        for name in ("../../secret", "/etc/passwd", 'a"\r\nx: y', "a" * 1000, ""):
            file = await client.files.create(file=(name, b"x"), purpose="batch")
            shown = (await client.files.retrieve(file.id)).filename
            assert 0 < len(shown) <= 255
            assert shown.isprintable()
            assert (await client.files.content(file.id)).content == b"x"
        assert secret.read_text() == "secret"


async def test_unusual_inputs(engine: Any, weft: Any) -> None:
    one = json.dumps(line(0)).encode()
    inputs: list[tuple[bytes, list[tuple[str, int | None]]]] = [
        (b"\n" * 1_000_000 + one, []),
        (b" \r\n" * 1000 + one + b"\r\n\r\n", []),
        (b"\xef\xbb\xbf" + one, []),
        (b"\n" * 2_100_000, [("too_many_lines", None)]),
        (one.replace(b"question", b"\xff\xfe"), [("invalid_json_line", 1)]),
        (one.replace(b"question", b"\\ud800"), [("invalid_json_line", 1)]),
        (one.replace(b"row-0", b"row\xff"), [("invalid_json_line", 1)]),
        (b"\0" * 1000, [("invalid_json_line", 1)]),
        (b"[" * 60_000, [("invalid_json_line", 1)]),
        (lines(line(1), line(0, "x" * 200_000), line(2)), [("line_too_long", 2)]),
        (lines(line(1)) + b"x" * 400_000, [("line_too_long", 2)]),
        (lines(*[line(0) | {"custom_id": "x" * 600}]), [("invalid_custom_id", 1)]),
        (lines(line(0)) * 300, [("duplicate_custom_id", n + 2) for n in range(100)]),
        (b'{"custom_id":"a"}\n' * 60_000,
         [("missing_required_parameter", n + 1) for n in range(100)]),
    ]  # fmt: skip
    async with (
        engine(script=chat) as stub,
        weft(stub, read_body_bytes=65_536) as gateway,
        client_of(gateway) as client,
    ):
        for file, errors in inputs:
            batch = await run(client, file)
            if errors:
                assert batch.status == "failed"
                assert [(e.code, e.line) for e in batch.errors.data] == errors
            else:
                assert batch.request_counts.completed == 1
        assert (await gateway.call(body=line(0)["body"])).status_code == 200


async def test_too_many_requests_fail_the_batch(engine: Any, weft: Any) -> None:
    file = b"".join(
        b'{"custom_id":"%d","method":"POST","url":"%b","body":{}}\n' % (number, CHAT.encode())
        for number in range(50_001)
    )
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, file)
        assert [error.code for error in batch.errors.data] == ["too_many_tasks"]
        assert stub.requests == []


async def test_a_request_cannot_be_read_in_two_ways(engine: Any, weft: Any) -> None:
    text = json.dumps(line(0)).replace('"model"', '"cache_salt": "a", "cache_salt": "b", "model"')
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        batch = await run(client, text.encode())
        (failed,) = (await content(client, batch.error_file_id)).values()
        assert failed["response"]["body"]["error"]["code"] == "duplicate_member"
        assert stub.requests == []
        # The tenant's salt keeps its prompts apart from those of others.
        await run(client, lines(line(0, cache_salt="a", weft={"priority": 8}, priority=-5)))
        salt = stub.requests[0].json["cache_salt"]
        assert len(salt) == 64
        assert stub.requests[0].json["vllm_xargs"]["weft_service"] >= 1.0


async def test_wrong_forms_are_refused(engine: Any, weft: Any) -> None:
    async with engine() as stub, weft(stub, file_bytes=2048) as gateway:
        post = gateway.client.post

        async def code(**options: Any) -> tuple[int, str]:
            answer = await post("/v1/files", **options)
            return answer.status_code, answer.json()["error"]["code"]

        form = {"content-type": "multipart/form-data; boundary=b"}
        part = b'--b\r\ncontent-disposition: form-data; name="%b"\r\n\r\n%b\r\n'
        assert await code(json={}) == (415, "form_required")
        assert await code(content=b"", headers={"content-type": "multipart/form-data"}) == (
            415, "form_required",
        )  # fmt: skip
        for body in (b"", b"x", b"--b", part % (b"file", b"x"), b"--b\r\n" + b"x" * 9000):
            assert (await code(content=body, headers=form))[0] == 400
        many = b"".join(part % (b"f%d" % number, b"x") for number in range(50))
        same, nameless = part % (b"purpose", b"batch"), b"--b\r\nx: y\r\n\r\n\r\n"
        headers = b"--b\r\n" + b"x: y\r\n" * 50 + b"\r\n\r\n"
        long = b"--b\r\ncontent-disposition: form-data" + b";" * 3000 + b"\r\n\r\n\r\n"
        # Without its first parts, each of these forms would be accepted.
        rest = part % (b"file", b"x") + part % (b"purpose", b"batch") + b"--b--\r\n"
        for parts in (
            many, same * 50, nameless * 50, headers, long, part % (b"purpose", b"x" * 2000)
        ):  # fmt: skip
            assert await code(content=parts + rest, headers=form) == (400, "invalid_form")
        assert (await code(content=part % (b"file", b"x") + rest, headers=form))[0] == 400
        large = {"file": ("a", b"x" * 5000), "purpose": (None, "batch")}
        assert await code(files=large) == (413, "file_too_large")
        assert list((gateway.parts.batches.store.folder / "files").iterdir()) == []


async def test_storage_is_limited_per_tenant(engine: Any, weft: Any) -> None:
    async with (
        engine(script=chat) as stub,
        weft(stub, file_bytes_per_tenant=5000, files_per_tenant=3) as gateway,
        client_of(gateway, "sk-a") as mine,
        client_of(gateway, "sk-b") as other,
    ):
        first = await upload(mine, b"x" * 4000)
        with pytest.raises(openai.PermissionDeniedError, match="5000 bytes"):
            await upload(mine, b"x" * 4000)
        await upload(other, b"x" * 4000)
        await mine.files.delete(first)
        for _ in range(3):
            await upload(mine, b"x")
        with pytest.raises(openai.PermissionDeniedError, match="3 files"):
            await upload(mine, b"x")


async def test_an_interrupted_upload_leaves_nothing(engine: Any, weft: Any, until: Any) -> None:
    async with engine() as stub, weft(stub) as gateway:

        async def endless() -> Any:
            yield b'--b\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\n'
            for _ in range(20):
                yield b"x" * 65_536
            raise httpx.WriteError("gone")

        headers = {"content-type": "multipart/form-data; boundary=b"}
        with pytest.raises(httpx.WriteError):
            await gateway.client.post("/v1/files", content=endless(), headers=headers)
        folder = gateway.parts.batches.store.folder / "files"
        await until(lambda: folder.is_dir() and not list(folder.iterdir()))
        assert (await gateway.client.get("/v1/files")).json()["data"] == []


async def test_cancelling_at_any_moment_loses_no_request(engine: Any, weft: Any) -> None:
    async with engine(script=chat) as stub, weft(stub) as gateway, client_of(gateway) as client:
        file_id = await upload(client, lines(*map(line, range(30))))

        async def cancel_after(delay_s: float) -> None:
            batch = await client.batches.create(input_file_id=file_id, **WINDOW)
            await asyncio.sleep(delay_s)
            await asyncio.gather(*(client.batches.cancel(batch.id) for _ in range(3)))
            batch = await ended(client, batch.id)
            assert batch.status in ("cancelled", "completed")
            good = await content(client, batch.output_file_id)
            rest = await content(client, batch.error_file_id)
            assert good.keys() | rest.keys() == {f"row-{number}" for number in range(30)}
            assert len(good) + len(rest) == 30
            counts = batch.request_counts
            assert (counts.completed, counts.failed) == (len(good), len(rest))

        for step in range(12):
            await cancel_after(step * 0.004)


async def test_tenant_limits_hold_for_batches(engine: Any, weft: Any) -> None:
    most = running = 0

    async def count(wire: Any, request: Any) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.005)
        running -= 1
        await chat(wire, request)

    async with (
        engine(script=count) as stub,
        weft(stub, calls_in_flight=4) as gateway,
        client_of(gateway) as client,
    ):
        batch = await run(client, lines(*map(line, range(20))))
        assert batch.request_counts.completed == 20
        assert most == 2
