"""Bodies read and departures noticed, from scripted ASGI messages."""

import asyncio
from typing import Any

import pytest
from weft_gateway.api.http import DepartureWatch, read_body
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


async def test_a_body_in_pieces_is_joined() -> None:
    receive = script(part(b"a", True), part(b"", True), part(b"b"))
    assert await read_body({}, receive, 10) == b"ab"


async def test_a_declared_size_over_the_limit_is_refused_before_reading() -> None:
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
async def test_an_undeclared_size_over_the_limit_is_refused(messages: Any) -> None:
    with pytest.raises(ApiError) as caught:
        await read_body({b"content-length": b"nonsense"}, script(*messages), 10)
    assert caught.value.status == 413


async def test_exactly_the_limit_is_taken() -> None:
    assert await read_body({}, script(part(b"x" * 5, True), part(b"x" * 5)), 10) == b"x" * 10


@pytest.mark.parametrize("messages", [[GONE], [part(b"x", True), GONE]])
async def test_a_client_that_leaves_while_sending_is_gone(messages: Any) -> None:
    with pytest.raises(ClientGone):
        await read_body({}, script(*messages), 10)


class Work:
    """Something that can be cancelled."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def cancel(self, error: Exception) -> None:
        assert isinstance(error, ClientGone)
        self.cancelled.set()


async def test_a_departure_cancels_the_work() -> None:
    watch = DepartureWatch(tick_s=0.001)
    ticking = asyncio.create_task(watch.run())
    work = Work()
    departure = watch.expect(script(part(b""), GONE))
    departure.stop_on_departure(work)
    async with asyncio.timeout(10):
        await work.cancelled.wait()
    assert departure.gone
    with pytest.raises(ClientGone):
        departure.stop_on_departure(Work())
    ticking.cancel()


async def test_a_call_that_is_over_is_not_watched() -> None:
    watch = DepartureWatch(tick_s=0.001)
    asked: list[str] = []

    def receive_of(name: str) -> Any:
        async def receive() -> dict[str, Any]:
            asked.append(name)
            return GONE

        return receive

    over = watch.expect(receive_of("over"))
    open_ = watch.expect(receive_of("open"))
    watch.done(over)
    ticking = asyncio.create_task(watch.run())
    async with asyncio.timeout(10):
        while not open_.gone:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert asked == ["open"]
    ticking.cancel()


async def test_everything_that_works_for_clients_can_be_ended() -> None:
    watch = DepartureWatch()
    ended: list[Exception] = []

    class Work:
        def cancel(self, error: Exception) -> None:
            ended.append(error)

    one, two, done = (watch.expect(script()) for _ in range(3))
    for departure in (one, done):
        departure.stop_on_departure(Work())
    watch.done(done)
    error = TimeoutError()
    # The second one works for nobody yet.
    assert watch.end_all(error) == 1
    assert ended == [error]
    watch.done(two)
