"""`weft serve`: the gateway in one process, on uvicorn with uvloop and httptools."""

from __future__ import annotations

import gc
import importlib.util
import logging
import signal
import socket
from types import FrameType
from typing import Final

import uvicorn

from gateway.api.cork import CorkedProtocol
from gateway.api.dispatch import Dispatcher
from gateway.api.websocket_server import DrainingSocket
from gateway.app import create_app
from gateway.config import Settings

log = logging.getLogger(__name__)

# Container objects made and not yet freed before the collector looks: Python's 700 is less than
# what 64 calls in flight hold. Calls free theirs by reference counts.
_COLLECT_AFTER: Final = 20_000


class _Server(uvicorn.Server):
    """uvicorn's server, which says why it stops."""

    def __init__(self, config: uvicorn.Config, app: Dispatcher, drain_s: float) -> None:
        super().__init__(config)
        self._listeners = app.services.listeners
        self._drain_s = drain_s
        self._signal = ""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal. Logged later: a handler may interrupt a line that is being written."""
        self._signal = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish calls in flight, then end the background work."""
        if self._signal:
            log.info(
                "%s: no new connections; calls in flight may take %g s", self._signal, self._drain_s
            )
        # Their streams have no end of their own, and would be waited for.
        self._listeners.close()
        await super().shutdown(sockets)
        log.info("stopped")


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; calls in flight are finished first, within `drain_s`.

    Returns the exit status: 0, or 1 where the gateway could not start.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # httpx tells of every health check at this level.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if not settings.replicas:
        log.warning("no replica is named (--replica or WEFT_REPLICAS): every call will get a 503")
    app = create_app(settings)
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=CorkedProtocol,
        ws=DrainingSocket,
        ws_max_size=settings.max_body_bytes,
        # Many clients answer a ping only when they next read, which is after their tools have run.
        ws_ping_timeout=settings.websocket_idle_s,
        # Agents are near; packing their prompts would cost more than sending them.
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        # Agents think and call tools between calls: a connection that is closed under them costs
        # a failed request or a new handshake.
        timeout_keep_alive=75,
        timeout_graceful_shutdown=round(settings.drain_s),
        backlog=4096,
    )
    server = _Server(config, app, settings.drain_s)
    # uvicorn takes these signals while it runs and raises them again when it is done. It has done
    # then what they ask for.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _spare_the_collector()
    try:
        server.run()
    except SystemExit:  # The address could not be bound; uvicorn has said so.
        return 1
    return 0 if server.started else 1


def _spare_the_collector() -> None:
    """Keep what the imports made out of every later collection, and collect less often.

    A full collection walks every object that lives: with some hundred thousand of modules and
    programs it stops all calls for tens of milliseconds, which is the tail of the latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 50, 100)
