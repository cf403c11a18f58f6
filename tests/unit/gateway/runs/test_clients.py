"""HTTP clients of runs."""

from __future__ import annotations

import ssl

import pytest
from weft_gateway.runs import clients


def test_the_certificates_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    create = ssl.create_default_context

    def counted(*args: object, **options: object) -> ssl.SSLContext:
        read.append(options)
        return create()

    monkeypatch.setattr(ssl, "create_default_context", counted)
    clients._tls.cache_clear()
    made = [clients.new_client(None) for _ in range(3)]
    assert len(made) == 3
    assert len(read) == 1
