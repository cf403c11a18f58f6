"""HTTP clients of runs."""

from __future__ import annotations

import ssl

import pytest
from weft_run.io import clients
from weft_run.io.caller import HttpCaller


def test_the_certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    create = ssl.create_default_context

    def counted(*args: object, **options: object) -> ssl.SSLContext:
        read.append(options)
        return create()

    monkeypatch.setattr(ssl, "create_default_context", counted)
    clients._tls.cache_clear()
    made = [clients.new_client(None, tls=tls) for tls in (False, True, True)]
    assert len(made) == 3
    assert len(read) == 1


@pytest.mark.parametrize(
    ("gateway", "tls"),
    [("http://127.0.0.1:8080", False), ("HTTP://h/v1", False), ("https://h", True), ("h:80", True)],
)
def test_certificates_are_only_read_for_a_gateway_with_tls(
    monkeypatch: pytest.MonkeyPatch, gateway: str, tls: bool
) -> None:
    read = []
    monkeypatch.setattr(clients, "_tls", lambda: read.append(1) or ssl.create_default_context())
    HttpCaller(gateway, "p")
    assert bool(read) is tls
