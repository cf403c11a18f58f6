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
    """Return different ports that are free at the time of the call."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
