"""Salts of a tenant: they keep its data in engines' caches apart from other tenants'. Pure."""

from __future__ import annotations

import hashlib


def tenant_salt(tenant: str, own: str = "") -> str:
    """Return a tenant's prefix cache salt: 64 hexadecimal characters. `own`: the client's salt. It
    can divide a tenant's cache but cannot share another tenant's.
    """
    return hashlib.sha256(f"weft-cache\0{tenant}\0{own}".encode("utf-8", "replace")).hexdigest()
