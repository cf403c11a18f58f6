"""Free ports and ports in use."""

from __future__ import annotations

import socket

import pytest
from weft_deploy.local.ports import PortTaken, check_free, free_ports, reserve


def test_a_port_in_use_is_in_the_error():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"127\.0\.0\.1:{port}.*--port"):
            check_free("127.0.0.1", port)
    check_free("127.0.0.1", port)


def test_free_ports_are_different_and_free():
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        check_free("127.0.0.1", port)


def test_a_reserved_port_is_left_to_a_server_that_reuses_addresses():
    (port,) = free_ports(1)
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port))
    with socket.create_server(("127.0.0.1", port)), pytest.raises(OSError, match="in use"):
        reserve(port)
