"""Authentication: the tenant of an API key, and the permission to administer."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from fastapi import Request

from weft_gateway.calls.call import Caller
from weft_gateway.engine.salts import tenant_salt
from weft_gateway.errors import ApiError
from weft_gateway.programs.identity import ANONYMOUS, tenant_of
from weft_gateway.runs.run_tokens import RunTokens
from weft_gateway.tenants import Tenants

# The caller of every request while no key is required: clients that have no key send different
# placeholders, and one that sends none must find the sessions of the others.
_EVERYONE = Caller(ANONYMOUS, "")
_PROGRAM: Final = b"x-weft-program"


class Sight(NamedTuple):
    """What someone may see in the live view: the programs of a tenant, or of all (None). admin:
    also the engines.
    """

    tenant: str | None
    admin: bool


class Authenticator:
    """Maps credentials to callers. If keys are required, other keys than the accepted ones are
    refused. Otherwise all clients are one tenant, with any key or none.
    """

    def __init__(self, tenants: Tenants, admin_key: str, runs: RunTokens | None = None) -> None:
        """runs: the tokens of runs, which only make calls."""
        self._tenants = tenants
        self._runs = runs or RunTokens()
        self._admin_key = admin_key
        # Keys repeat, and computing two digests per call has a cost.
        self._caller = lru_cache(maxsize=4096)(self._make_caller)

    def caller(self, headers: Mapping[bytes, bytes], program: str | None = None) -> Caller:
        """Return the caller of a request. program: from its path. Raises ApiError 401 if its key is
        not accepted.
        """
        if not self._tenants.required:
            return _EVERYONE
        caller = self._caller(headers.get(b"authorization", b""), headers.get(b"x-api-key", b""))
        if self._tenants.accepts(caller.tenant):
            return caller
        token = presented(headers.get(b"authorization", b""), b"")
        named = headers.get(_PROGRAM, b"") if program is None else program.encode()
        return self.caller_of(self._runs.tenant(token, named))

    def caller_of(self, tenant: str | None) -> Caller:
        """Return the caller of a tenant that was authenticated before, None for no tenant. Raises
        ApiError 401 if its key is not accepted any more.
        """
        if not self._tenants.required:
            return _EVERYONE
        if tenant is None or not self._tenants.accepts(tenant):
            raise ApiError(401, "invalid_api_key", "Incorrect API key provided.")
        return Caller(tenant, tenant_salt(tenant))

    def tenant(self, request: Request) -> str:
        """Return the tenant of a request. A dependency of FastAPI's routes. A run may only list
        models and end its programs.
        """
        headers = dict(request.headers.raw)
        path = f"/v1/sessions/{headers.get(_PROGRAM, b'').decode('latin-1')}"
        if (request.method, request.url.path) not in (("GET", "/v1/models"), ("DELETE", path)):
            headers.pop(_PROGRAM, None)
        return self.caller(headers).tenant

    def sight(self, headers: Mapping[bytes, bytes], peer: str) -> Sight:
        """Return what the key of a request shows: the admin key all programs, the key of a tenant
        its own. Raises ApiError 401 if keys are required and this one is not accepted.
        """
        fields = (b"authorization", b"x-api-key")
        keys = {name: headers[name] for name in fields if name in headers}
        given = presented(keys.get(b"authorization", b""), keys.get(b"x-api-key", b""))
        if self._admin_key and hmac.compare_digest(given, self._admin_key.encode()):
            return Sight(None, True)
        tenant = self.caller(keys).tenant
        everyone = not (self._tenants.required or self._admin_key)
        return Sight(None, True) if everyone and _is_loopback(peer) else Sight(tenant, False)

    def name(self, tenant: str) -> str:
        """Return the name of a tenant for people."""
        return self._tenants.name(tenant)

    def is_admin(self, headers: Mapping[bytes, bytes], peer: str) -> bool:
        """Whether the request may administer; see `require_admin`."""
        try:
            self.require_admin(headers, peer)
        except ApiError:
            return False
        return True

    def require_admin(self, headers: Mapping[bytes, bytes], peer: str) -> None:
        """Raise ApiError unless the request may administer: it carries the admin key or, if no
        admin key is set, comes from this machine (`peer`: its IP address).
        """
        if self._admin_key:
            given = presented(headers.get(b"authorization", b""), headers.get(b"x-api-key", b""))
            if not hmac.compare_digest(given, self._admin_key.encode()):
                raise ApiError(401, "invalid_admin_key", "Incorrect admin key provided.")
        elif not _is_loopback(peer):
            raise ApiError(
                403,
                "admin_forbidden",
                "Without an admin key, only clients on this machine may do that.",
            )

    @staticmethod
    def _make_caller(authorization: bytes, api_key: bytes) -> Caller:
        key = presented(authorization, api_key)
        tenant = tenant_of(key.decode("latin-1"))
        return Caller(tenant, tenant_salt(tenant))


def presented(authorization: bytes, api_key: bytes) -> bytes:
    """Return the client's key: the bearer token of `authorization`, or else `x-api-key`."""
    scheme, _, token = authorization.partition(b" ")
    if scheme.lower() == b"bearer" and token.strip():
        return token.strip()
    return api_key.strip()


def _is_loopback(peer: str) -> bool:
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
