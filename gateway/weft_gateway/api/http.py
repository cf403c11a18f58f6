"""ASGI in small: read a body, send an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol

from weft_gateway.api.errors import ApiError
from weft_gateway.engine.endpoints import ErrorShape
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.response import Headers

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


async def read_body(headers: dict[bytes, bytes], receive: Receive, limit: int) -> bytes:
    """The whole request body. ApiError 413 past `limit` bytes, as early as it is known;
    ClientGone if the client leaves before it has sent everything."""
    try:
        declared = int(headers.get(b"content-length", b"0"))
    except ValueError:
        declared = 0
    if declared > limit:
        raise _too_large(limit)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > limit:
            raise _too_large(limit)
        return body
    parts, size = [body], len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        if size > limit:
            raise _too_large(limit)
        message = await receive()
        part: bytes = message.get("body", b"")
        parts.append(part)
        size += len(part)
    if message["type"] != "http.request":
        raise ClientGone
    if size > limit:
        raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, "body_too_large", f"The request body is larger than {limit} bytes.")


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Send a whole answer: one start, one body."""
    headers.append((b"content-length", str(len(body)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def respond_error(
    send: Send,
    error: ApiError,
    shape: ErrorShape = "openai",
    extra: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send one of our errors."""
    headers = [(b"content-type", b"application/json"), *error.headers, *extra]
    await respond(send, error.status, headers, error.body(shape))


class Cancellable(Protocol):
    """Something that can be stopped from outside, with a reason."""

    def cancel(self, error: Exception) -> None:
        """Stop; whoever waits gets `error`."""
        ...


class Departure:
    """Notices that the client has gone, and stops at once what works for it.

    Used after the request body has been read: all that ASGI can still bring is the disconnect.
    """

    __slots__ = ("_receive", "_task", "_work", "gone")

    def __init__(self, receive: Receive) -> None:
        self.gone = False
        self._receive = receive
        self._work: Cancellable | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self) -> None:
        """Watch from now on. The watching ends by itself: once the answer is sent, `receive` brings
        the disconnect too."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def stop_on_departure(self, work: Cancellable) -> None:
        """Cancel `work` when the client goes. Raises ClientGone if it has already."""
        if self.gone:
            raise ClientGone
        self._work = work

    def end(self, error: Exception) -> bool:
        """Stop what works for the client with `error`. Whether anything did."""
        if self._work is None:
            return False
        self._work.cancel(error)
        return True

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        if self._work is not None:
            self._work.cancel(ClientGone())


class DepartureWatch:
    """Starts the watching of clients in batches, `tick_s` seconds apart.

    ASGI tells of a departure to a task that waits for it, and a task for each call costs more than
    parsing its body. Most short calls are over before the next tick and never get one; for the
    others the departure is noticed late by one tick at most.
    """

    def __init__(self, tick_s: float = 0.1) -> None:
        self._tick_s = tick_s
        self._all: set[Departure] = set()

    def expect(self, receive: Receive) -> Departure:
        """A departure that will be watched for from the next tick on."""
        departure = Departure(receive)
        self._all.add(departure)
        return departure

    def done(self, departure: Departure) -> None:
        """The call is over."""
        self._all.discard(departure)

    def end_all(self, error: Exception) -> int:
        """Stop everything that works for a client with `error`. How many clients that were."""
        return sum([departure.end(error) for departure in tuple(self._all)])

    async def run(self) -> None:
        """Tick until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            for departure in tuple(self._all):
                departure.watch()
