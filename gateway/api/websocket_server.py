"""uvicorn's WebSocket protocol, which lets a running call finish when the server stops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from gateway.api.websocket import DRAIN


class DrainingSocket(WebSocketsSansIOProtocol):
    """uvicorn closes WebSockets at once when it is told to stop, calls in flight or not. Here the
    connection is told, and closes when its call is answered; uvicorn bounds the waiting.

    lost: called once when the connection has ended, so that it no longer counts as open.
    """

    def __init__(self, *args: Any, lost: Callable[[], None] = lambda: None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._lost = lost

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        super().connection_lost(exc)
        self._lost()

    def shutdown(self) -> None:
        """Stop, as soon as nothing is being answered."""
        if self.handshake_complete and not self.close_sent and not self.disconnected:
            # No event of ASGI says this.
            self.queue.put_nowait(cast(Any, {"type": DRAIN}))
        else:
            super().shutdown()
