"""`weft serve`: the gateway in one process, on uvicorn with uvloop and httptools."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import importlib.util
import logging
import math
import os
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
from weft_gateway.constants import CONSTANTS, Constants
from weft_gateway.engine.errors import ShuttingDown

log = logging.getLogger(__name__)

# Net allocations of container objects before a collection: Python's default of 700 is less than 64
# calls in flight hold. Reference counts free the objects of calls.
_COLLECT_AFTER: Final = 20_000


# Open files that are not client connections: logs, Redis, replicas.
_OTHER_FILES: Final = 256
# Time after the drain to send errors to the clients of interrupted calls, in seconds.
_LAST_ANSWERS_S: Final = 2.0
# Numbers of glibc's malloc.h. A block may have at most 32 MiB there.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BLOCK: Final = 32 << 20
_KEPT_FREE: Final = 64 << 20
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Server(uvicorn.Server):
    """uvicorn's server, which logs the reason for a stop and ends late calls with an error."""

    def __init__(self, config: uvicorn.Config, gateway: Gateway) -> None:
        super().__init__(config)
        self._gateway = gateway
        self._drain_s = gateway.settings.drain_s
        # Under nohup, the gateway outlives its terminal.
        ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._terminal = _has_terminal() and not ignored
        self._signal = ""
        self._loop: asyncio.AbstractEventLoop | None = None

    def hang_up(self, *_: object) -> None:
        """Handle SIGHUP: stop if the terminal was closed, else read the keys file again."""
        if self._terminal and not _has_terminal():
            self.handle_exit(signal.SIGHUP, None)
        elif self._loop is not None:
            self._loop.call_soon_threadsafe(self._gateway.reload_keys)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal. It is logged later: a handler may interrupt a log line."""
        self._signal = signal.Signals(sig).name
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and log where the gateway listens and what it serves."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)
        if self.started:
            settings = self._gateway.settings
            log.info(
                "serving %s/v1 (listening on %s, port %d); replicas: %d; API keys: %s",
                settings.base_url,
                settings.host,
                settings.port,
                len(self._gateway.registry),
                "required" if settings.needs_keys else "not required",
            )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish calls in flight, then stop the background tasks."""
        if self._signal:
            log.info(
                "%s: accepting no new connections; calls in flight have %g s to finish",
                self._signal,
                self._drain_s,
            )
        # Event streams have no end, and the shutdown would wait for them.
        self._gateway.listeners.close()
        self._gateway.board.close()
        # Their calls would be late ones.
        await self._gateway.runs.aclose()
        overrun = asyncio.create_task(self._end_late_calls())
        await super().shutdown(sockets)
        overrun.cancel()
        log.info("stopped")

    async def _end_late_calls(self) -> None:
        """After the drain, send an error to each client that still waits."""
        await asyncio.sleep(self._drain_s)
        error = errors.of("shutting_down")
        late = self._gateway.disconnects.end_all(ShuttingDown(error.message))
        if late:
            log.warning("%d calls took longer than %g s and are aborted", late, self._drain_s)
        # Tasks of these calls end in the next turns of the loop. Other open requests are refused.
        await asyncio.sleep(_LAST_ANSWERS_S / 4)
        for connection in list(self.server_state.connections):
            if isinstance(connection, EdgeProtocol) and connection.busy:
                connection.refuse(error)


def server_config(gateway: Gateway, edge: Edge | None = None) -> uvicorn.Config:
    """Return uvicorn's configuration. edge: state shared by connections; default: from the
    settings.
    """
    settings, constants = gateway.settings, gateway.constants
    edge = edge or Edge(constants, gateway.metrics)
    gateway.capacity.connections = edge.used
    return uvicorn.Config(
        gateway.app,
        host=settings.host,
        port=settings.port,
        loop="uvloop" if importlib.util.find_spec("uvloop") else "asyncio",
        http=cast(type[asyncio.Protocol], partial(EdgeProtocol, edge=edge)),
        ws=DrainingSocket,
        ws_max_size=min(constants.websocket_message_bytes, settings.max_body_bytes),
        ws_ping_interval=settings.heartbeat_s or None,
        # Many clients answer a ping only at their next read, which is after their tools have run.
        ws_ping_timeout=constants.websocket_idle_s,
        # Agents are close by: compressing their prompts would cost more than sending them.
        ws_per_message_deflate=False,
        lifespan="on",
        access_log=False,
        # uvicorn's own handlers write lines without a time.
        log_config=None,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(settings.drain_s + _LAST_ANSWERS_S),
        backlog=4096,
    )


def run(settings: Settings, constants: Constants = CONSTANTS) -> int:
    """Serve until SIGTERM or SIGINT. Calls in flight finish first, within `drain_s`.

    Return the exit status: 0, or 1 if the gateway could not start.
    """
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    # httpx logs every health check at this level.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    if not settings.replicas:
        log.warning(
            "no replica is configured (--replica or WEFT_REPLICAS): calls get a 503 until one is "
            "added through POST /weft/replicas"
        )
    gateway = Gateway(settings, constants=constants)
    edge = Edge(constants, gateway.metrics, _files_for(constants.max_connections))
    server = Server(server_config(gateway, edge), gateway)
    # uvicorn handles these signals while it runs and raises them again when it has stopped. By then
    # they have been handled.
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, server.hang_up)
    _spare_the_collector()
    _keep_free_memory()
    try:
        server.run()
    except SystemExit:  # The address could not be bound. uvicorn has logged it.
        return 1
    return 0 if server.started else 1


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal. The kernel takes it away when it closes."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _files_for(connections: int) -> int:
    """Return the number of client connections that the open-file limit allows, at most
    `connections`. Raises the soft limit if needed. A call uses two files: the client's and the
    replica's.
    """
    wanted = 2 * connections + _OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    possible = max(1, (soft - _OTHER_FILES) // 2)
    log.warning(
        "the open-file limit (ulimit -n %d) allows only %d client connections instead of %d",
        soft,
        possible,
        connections,
    )
    return possible


def _spare_the_collector() -> None:
    """Exclude objects created by imports from later collections, and collect less often.

    A full collection visits every live object: with several hundred thousand objects of modules and
    programs it stops all calls for tens of milliseconds, which determines the tail latency.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, 50, 100)


def _keep_free_memory() -> None:
    """Let the C library keep the memory of bodies that are gone for the next ones.

    By default it returns large blocks to the system at once. The system then clears each page
    again at its first use: most of the cost of receiving a long body. `BodyBytes.trim` returns the
    memory after a peak of load.
    """
    with contextlib.suppress(OSError, AttributeError):  # Not glibc.
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BLOCK)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_FREE)
