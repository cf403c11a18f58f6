"""TCP ports on this machine."""

from __future__ import annotations

import socket


class PortTaken(Exception):
    """The port is in use. The message contains it."""


def check_free(host: str, port: int) -> None:
    """Raise PortTaken if a new process cannot listen on the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise PortTaken(
                f"cannot listen on {host}:{port} ({error.strerror}); "
                f"stop the process on this port or choose another port with --port"
            ) from None


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return different ports that are free. They stay reserved for some seconds."""
    return [reserve(0, host) for _ in range(count)]


def reserve(port: int, host: str = "127.0.0.1") -> int:
    """Reserve a port for the first process that listens on it, and return it. 0: any free port.

    An engine starts for many seconds before it listens. A closed connection on the port stays in
    the state TIME_WAIT, typically for a minute. The kernel then gives the port to no process that
    asks for any port, but a server with SO_REUSEADDR can listen on it. Raises OSError if the port
    is in use.
    """
    with socket.socket() as listener, socket.socket() as client:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(1)
        client.connect(listener.getsockname())
        # The side that closes first keeps the state.
        listener.accept()[0].close()
        return int(listener.getsockname()[1])
