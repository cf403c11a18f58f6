"""A client's body made into the engine's: Weft's context in, Weft's hints out. Pure.

A body without anything of ours keeps its bytes: what we add is spliced in after the opening brace.
Only a body with keys that must go, or be merged, is encoded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import orjson
from weft_engine.wire import XARG_REMAINING, CallContext

from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.model import ProgramKey

CONTEXT_HEADER: Final = "x-weft-context"

# Hints and identities that end at the gateway. vLLM stores an answer under the body's `request_id`:
# a client that chose it could take the place of another tenant's answer.
_STRIPPED: Final = frozenset(
    {
        "weft",
        "nvext",
        "session_id",
        "session_params",
        "request_id",
        # Read as a hint. Engines with vLLM's priority policy would order all tenants by it.
        "priority",
        # It names KV blocks and hosts, which may hold another tenant's prompts.
        "kv_transfer_params",
    }
)
_CONFLICTS: Final = _STRIPPED | {"vllm_xargs", "cache_salt"}
_OURS: Final = "weft_"
_NOT_PASSED: Final = frozenset({"agentic_context", "session_id", "kv_transfer_params"})


class TooDeep(ValueError):
    """A body that must be encoded again is nested deeper than that is done."""


class ReplicaKind(StrEnum):
    """What runs on a replica: vLLM with our plugin, vLLM without it, a server that says that it is
    something else, or what has not been learned. The last may be vLLM, and is treated so."""

    WEFT = "weft"
    VLLM = "vllm"
    STOCK = "stock"
    UNKNOWN = "unknown"


def tenant_salt(tenant: str, own: str = "") -> str:
    """The prefix cache's salt for a tenant: hexadecimal, 64 characters. `own`: the client's salt,
    which may divide a tenant's cache further, never join it with another's."""
    return hashlib.sha256(f"weft-cache\0{tenant}\0{own}".encode("utf-8", "replace")).hexdigest()


@lru_cache(maxsize=4096)
def tenant_digest(tenant: str) -> str:
    """A tenant's name to engines: opaque, so that an engine's logs do not name API keys."""
    return hashlib.blake2b(f"weft-tenant\0{tenant}".encode(), digest_size=12).hexdigest()


def program_digest(key: ProgramKey) -> str:
    """A program's name to engines: opaque, unique over tenants, fit for a header."""
    text = f"{key.tenant}\0{key.program}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def build_engine_request(
    raw: bytes,
    body: dict[str, Any],
    endpoint: Endpoint,
    kind: ReplicaKind,
    context: CallContext | None,
    salt: str,
) -> tuple[bytes, bytes]:
    """The engine's body, and the value of the context header, b"" where none is needed.

    `body` is `raw`, parsed; it is not changed. `salt`: the tenant's, "" for anonymous clients.
    A client's own `cache_salt` never goes on as it is: together with the tenant's it makes another
    one, so that it may divide the tenant's cache and cannot name another tenant's. Raises TooDeep.
    """
    told = context.to_xargs() if context is not None and kind is ReplicaKind.WEFT else None
    added: dict[str, Any] = {}
    if told is not None and endpoint.xargs:
        added["vllm_xargs"] = told
    if salt and kind is not ReplicaKind.STOCK and endpoint.cache_salt:
        added["cache_salt"] = salt
    header = orjson.dumps(told) if told is not None and not endpoint.xargs else b""
    if must_be_written(body):
        try:
            return orjson.dumps(_rebuilt(body, added, kind, salt)), header
        except TypeError:  # The rest of what JSON can say has been read, and can be written.
            raise TooDeep from None
    if not added:
        return raw, header
    brace = raw.index(b"{")
    # One copy of what may be many megabytes.
    return b"".join((orjson.dumps(added)[:-1], b",", memoryview(raw)[brace + 1 :])), header


def must_be_written(body: Mapping[str, Any]) -> bool:
    """Whether a body cannot go on as the bytes that it came in."""
    return not body or not _CONFLICTS.isdisjoint(body)


def _passes(name: str) -> bool:
    """Whether an entry of a client's `vllm_xargs` goes to the engine. What the gateway tells of a
    call (`weft_...`) nobody else may; but engines take what remains of a program for experiments
    only, from whoever knows."""
    return name not in _NOT_PASSED and (not name.startswith(_OURS) or name == XARG_REMAINING)


def _rebuilt(
    body: dict[str, Any], added: dict[str, Any], kind: ReplicaKind, salt: str
) -> dict[str, Any]:
    rebuilt = {key: value for key, value in body.items() if key not in _STRIPPED}
    own = rebuilt.get("cache_salt")
    if isinstance(own, str) and own:
        # Other servers than vLLM read it too. An anonymous client has a salt of its own as well.
        added = {**added, "cache_salt": tenant_salt(salt, own)}
    xargs = rebuilt.pop("vllm_xargs", None)
    if xargs is not None and not isinstance(xargs, dict):
        # Malformed: the engine says so better than we could.
        return {**rebuilt, **added, "vllm_xargs": xargs}
    if xargs:
        xargs = {key: value for key, value in xargs.items() if _passes(key)}
        if xargs and kind is not ReplicaKind.STOCK:
            rebuilt["vllm_xargs"] = xargs
    if "vllm_xargs" in added:
        added = {**added, "vllm_xargs": {**rebuilt.get("vllm_xargs", {}), **added["vllm_xargs"]}}
    return {**rebuilt, **added}
