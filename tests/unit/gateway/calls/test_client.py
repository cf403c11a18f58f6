"""Detection of disconnects from scripted ASGI messages."""

import asyncio
from typing import Any

import pytest
from weft_gateway.calls.client import DisconnectMonitor
from weft_gateway.engine.errors import ClientGone, ShuttingDown

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


async def test_a_wait_ends_with_its_work() -> None:
    client = DisconnectMonitor().expect(script())
    await client.wait(asyncio.sleep(0))
    # Nothing is left that a disconnect could cancel.
    assert not client.end(ClientGone())


@pytest.mark.parametrize("error", [ClientGone(), ShuttingDown("late")])
async def test_a_wait_ends_with_the_error_that_cancels_it(error: Exception) -> None:
    client = DisconnectMonitor().expect(script())
    never = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(client.wait(never))
    await asyncio.sleep(0)
    assert client.end(error)
    with pytest.raises(type(error)):
        await waiting
    assert never.cancelled()


async def test_a_wait_for_a_client_that_has_disconnected_does_not_begin() -> None:
    client = DisconnectMonitor().expect(script(GONE))
    client.watch()
    await asyncio.sleep(0.01)
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(ClientGone):
        await client.wait(never)
    assert never.cancelled()


async def test_a_cancelled_wait_cancels_its_work() -> None:
    client = DisconnectMonitor().expect(script())
    never = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(client.wait(never))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert never.cancelled()
