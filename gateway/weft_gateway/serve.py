"""`weft serve`: the gateway in one process, on uvicorn with uvloop and httptools."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import logging
import math
import resource
import signal
import socket
from functools import partial
from types import FrameType
from typing import Final, cast

import uvicorn

from weft_gateway import errors
from weft_gateway.api.connections import Edge
from weft_gateway.api.edge import EdgeProtocol
from weft_gateway.api.websocket_server import DrainingSocket
from weft_gateway.app import Gateway
from weft_gateway.config import Settings
from weft_gateway.engine.errors import ShuttingDown

log = logging.getLogger(__name__)

# Container objects made and not yet freed before the collector looks: Python's 700 is less than
# what 64 calls in flight hold. Calls free theirs by reference counts.
_COLLECT_AFTER: Final = 20_000


# Files that are no connections of clients: logs, Redis, replicas.
_OTHER_FILES: Final = 256
# After the drain, answers may take so long to tell their clients that they are cut.
_FAREWELL_S: Final = 2.0
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Server(uvicorn.Server):
    """uvicorn's server, which says why it stops, and ends late calls with an error."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain_s = gateway.settings.drain_s
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
        self._gateway.listeners.close()
        overrun = asyncio.create_task(self._end_late_calls())
        await super().shutdown(sockets)
        overrun.cancel()
        log.info("stopped")

    async def _end_late_calls(self) -> None:
        """After the drain, tell each client that still waits why it gets no answer."""
        await asyncio.sleep(self._drain_s)
        settings = self._gateway.settings
        error = errors.shutting_down(settings.retry_after_s)
        late = self._gateway.disconnects.end_all(ShuttingDown(error.message))
        if late:
            log.warning("%d calls took longer than %g s and are cut", late, self._drain_s)
        # What works for them ends in the next turns of the loop; what else is open is refused.
        await asyncio.sleep(_FAREWELL_S / 4)
        for connection in list(self.server_state.connections):
            if isinstance(connection, EdgeProtocol) and connection.busy:
                connection.refuse(error)


def server_config(gateway: Gateway, edge: Edge | None = None) -> uvicorn.Config:
    """How uvicorn serves the gateway. edge: what connections share; by default as the settings
    say."""
    settings = gateway.settings
    edge = edge or Edge(settings, gateway.metrics)
    return uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=cast(type[asyncio.Protocol], partial(EdgeProtocol, edge=edge)),
        ws=DrainingSocket,
        ws_max_size=min(settings.websocket_message_bytes, settings.max_body_bytes),
        # Many clients answer a ping only when they next read, which is after their tools have run.
        ws_ping_timeout=settings.websocket_idle_s,
        # Agents are near; packing their prompts would cost more than sending them.
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(settings.drain_s + _FAREWELL_S),
        backlog=4096,
    )


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
    gateway = Gateway(settings)
    edge = Edge(settings, gateway.metrics, _files_for(settings.max_connections))
    server = Server(server_config(gateway, edge), gateway)
    # uvicorn takes these signals while it runs and raises them again when it is done. It has done
    # then what they ask for.
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As under nohup.
        signal.signal(signal.SIGHUP, server.handle_exit)
    _spare_the_collector()
    try:
        server.run()
    except SystemExit:  # The address could not be bound; uvicorn has said so.
        return 1
    return 0 if server.started else 1


def _files_for(connections: int) -> int:
    """Connections of clients for which there are open files, as many as wanted if possible. A call
    needs two: the client's and the replica's."""
    wanted = 2 * connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    possible = max(1, (soft - _OTHER_FILES) // 2)
    log.warning(
        "WEFT_MAX_CONNECTIONS is %d, but open files (ulimit -n %d) suffice for %d",
        connections,
        soft,
        possible,
    )
    return possible


def _spare_the_collector() -> None:
    """Keep what the imports made out of every later collection, and collect less often.

    A full collection walks every object that lives: with some hundred thousand of modules and
    programs it stops all calls for tens of milliseconds, which is the tail of the latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 50, 100)
