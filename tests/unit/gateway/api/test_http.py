"""Reading of request bodies from scripted ASGI messages."""

from typing import Any

import pytest
from weft_gateway.api.http import read_body
from weft_gateway.engine.errors import ClientGone
from weft_gateway.errors import ApiError

pytestmark = pytest.mark.anyio

GONE = {"type": "http.disconnect"}


def script(*messages: dict[str, Any]) -> Any:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


def part(body: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


async def test_body_chunks_are_joined() -> None:
    receive = script(part(b"a", True), part(b"", True), part(b"b"))
    assert await read_body({}, receive, 10) == b"ab"


async def test_declared_size_over_the_limit_is_refused_before_reading() -> None:
    with pytest.raises(ApiError) as caught:
        await read_body({b"content-length": b"11"}, script(), 10)
    assert caught.value.status == 413


@pytest.mark.parametrize(
    "messages",
    [
        [part(b"x" * 11)],
        [part(b"x" * 6, True), part(b"x" * 5)],
        [part(b"x" * 11, True)],
    ],
)
async def test_undeclared_size_over_the_limit_is_refused(messages: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await read_body({b"content-length": b"nonsense"}, script(*messages), 10)
    assert caught.value.status == 413


async def test_body_of_exactly_the_limit_is_accepted() -> None:
    assert await read_body({}, script(part(b"x" * 5, True), part(b"x" * 5)), 10) == b"x" * 10


@pytest.mark.parametrize("messages", [[GONE], [part(b"x", True), GONE]])
async def test_disconnect_during_the_body_raises(messages: Any) -> None:
    with pytest.raises(ClientGone):
        await read_body({}, script(*messages), 10)
