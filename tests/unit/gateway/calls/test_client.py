"""Detection of disconnects from scripted ASGI messages."""

import asyncio
from typing import Any

import pytest
from weft_gateway.calls.client import DisconnectMonitor
from weft_gateway.engine.errors import ClientGone

pytestmark = pytest.mark.anyio

GONE = {"type": "http.disconnect"}


def script(*messages: dict[str, Any]) -> Any:
    left = iter(messages)

    async def receive() -> dict[str, Any]:
        return next(left)

    return receive


class Work:
    """Cancellable work."""

    def __init__(self) -> None:
        self.cancelled = asyncio.Event()

    def cancel(self, error: Exception) -> None:
        assert isinstance(error, ClientGone)
        self.cancelled.set()


async def test_disconnect_cancels_the_work() -> None:
    monitor = DisconnectMonitor(tick_s=0.001)
    ticking = asyncio.create_task(monitor.run())
    work = Work()
    client = monitor.expect(script({"type": "http.request", "body": b""}, GONE))
    client.stops(work)
    async with asyncio.timeout(10):
        await work.cancelled.wait()
    assert client.gone
    with pytest.raises(ClientGone):
        client.stops(Work())
    ticking.cancel()


async def test_finished_call_is_not_monitored() -> None:
    monitor = DisconnectMonitor(tick_s=0.001)
    asked: list[str] = []

    def receive_of(name: str) -> Any:
        async def receive() -> dict[str, Any]:
            asked.append(name)
            return GONE

        return receive

    over = monitor.expect(receive_of("over"))
    open_ = monitor.expect(receive_of("open"))
    monitor.done(over)
    ticking = asyncio.create_task(monitor.run())
    async with asyncio.timeout(10):
        while not open_.gone:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert asked == ["open"]
    ticking.cancel()


async def test_end_all_cancels_the_work_of_open_calls() -> None:
    monitor = DisconnectMonitor()
    ended: list[Exception] = []

    class Work:
        def cancel(self, error: Exception) -> None:
            ended.append(error)

    one, two, done = (monitor.expect(script()) for _ in range(3))
    for client in (one, done):
        client.stops(Work())
    monitor.done(done)
    error = TimeoutError()
    # The second client has no work yet.
    assert monitor.end_all(error) == 1
    assert ended == [error]
    monitor.done(two)
