"""Builds the engine's request body from the client's: removes Weft's hints, adds Weft's context.
Pure.

A body without Weft fields keeps its bytes: additions are spliced in after the opening brace. Only a
body with keys to remove or merge is encoded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

import msgspec
import orjson
from weft_engine.wire import CallContext

from weft_gateway.engine import media
from weft_gateway.engine.endpoints import Endpoint
from weft_gateway.engine.salts import tenant_salt
from weft_gateway.model import ProgramKey
from weft_gateway.transcripts.reading import Reading
from weft_gateway.transcripts.transcript import expanded

CONTEXT_HEADER: Final = "x-weft-context"

# Hints and identities that are not forwarded. vLLM stores an answer under the body's `request_id`:
# a client that chooses it could replace another tenant's answer.
_STRIPPED: Final = frozenset(
    {
        "weft",
        "nvext",
        "session_id",
        "session_params",
        "request_id",
        # Used as a hint. Engines with vLLM's priority policy would order all tenants by it.
        "priority",
        # Names KV blocks and hosts that may hold another tenant's prompts.
        "kv_transfer_params",
    }
)
_CONFLICTS: Final = _STRIPPED | {"vllm_xargs", "cache_salt"}
_OURS: Final = "weft_"
_NOT_PASSED: Final = frozenset({"agentic_context", "session_id", "kv_transfer_params"})


class TooDeep(ValueError):
    """The body must be encoded again, and its nesting is too deep for that."""


class ReplicaKind(StrEnum):
    """The software of a replica: vLLM with Weft's plugin, vLLM without it, another server, a Weft
    gateway, which gets no calls, or unknown. An unknown replica may be vLLM and is handled as vLLM
    without the plugin.
    """

    WEFT = "weft"
    VLLM = "vllm"
    STOCK = "stock"
    GATEWAY = "gateway"
    UNKNOWN = "unknown"


@lru_cache(maxsize=4096)
def tenant_digest(tenant: str) -> str:
    """Return a tenant's opaque name for engines, so that engine logs contain no API keys."""
    return hashlib.blake2b(f"weft-tenant\0{tenant}".encode(), digest_size=12).hexdigest()


def program_digest(key: ProgramKey) -> str:
    """Return a program's opaque name for engines: unique across tenants, valid in a header."""
    text = f"{key.tenant}\0{key.program}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=12).hexdigest()


def build_engine_request(
    raw: bytes,
    body: dict[str, Any],
    endpoint: Endpoint,
    kind: ReplicaKind,
    context: CallContext | None,
    salt: str,
    reading: Reading | None = None,
) -> tuple[Sequence[bytes | memoryview], bytes]:
    """Return the pieces of the engine's body and the context header's value, b"" if no header is
    needed. The pieces refer to `raw`: a copy of a body may have many megabytes.

    `body` is the parsed `raw` and is not changed. `salt`: the tenant's salt, "" for anonymous
    clients. A client's `cache_salt` is hashed with the tenant's salt: it can divide the tenant's
    cache but cannot name another tenant's. reading: where the messages are in `raw`, which may be
    unparsed in `body`. Raises TooDeep.
    """
    given = body
    text = raw if reading is None else reading.fresh
    if media.may_name(text) and media.has_prompt(body):
        body = media.own_names(body, salt)
        if body is not given and reading is not None:
            name, reading = reading.name, None
            body = media.own_names({**given, name: [*expanded(given[name])]}, salt)
    xargs = context.to_xargs() if context is not None and kind is ReplicaKind.WEFT else None
    added: dict[str, Any] = {}
    if xargs is not None and endpoint.xargs:
        added["vllm_xargs"] = xargs
    if salt and kind is not ReplicaKind.STOCK and endpoint.cache_salt:
        added["cache_salt"] = salt
    if endpoint.chained and kind is not ReplicaKind.STOCK and not _stores(body):
        added["store"] = False
    header = orjson.dumps(xargs) if xargs is not None and not endpoint.xargs else b""
    edited = reading is not None and reading.edited
    if body is not given or edited or must_be_written(body):
        try:
            return _written(_rebuilt(body, added, kind, salt), raw, reading), header
        except TypeError:  # The parsed JSON has no other value that cannot be encoded.
            raise TooDeep from None
    if not added:
        return (raw,), header
    brace = raw.index(b"{")
    return (orjson.dumps(added)[:-1], b",", memoryview(raw)[brace + 1 :]), header


def _written(
    body: dict[str, Any], raw: bytes, reading: Reading | None
) -> Sequence[bytes | memoryview]:
    """Return the pieces of a body. Messages whose place is known, and members that are not parsed,
    come from `raw`.
    """
    unread: dict[str, Any] = {}
    if reading is not None:
        unread[reading.name] = reading.messages
    elif any(type(value) is orjson.Fragment for value in body.values()):
        members = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        unread = {
            name: memoryview(members[name])
            for name, value in body.items()
            if type(value) is orjson.Fragment
        }
    else:
        return (orjson.dumps(body),)
    pieces: list[bytes | memoryview] = []
    for name, value in body.items():
        pieces += (b"," if pieces else b"{", orjson.dumps(name), b":")
        pieces.append(unread[name] if name in unread else orjson.dumps(value))
    return (*pieces, b"}")


def with_model(raw: bytes, model: str) -> bytes:
    """Return a valid body with another model."""
    members = msgspec.json.decode(memoryview(raw)[raw.index(b"{") :], type=dict[str, msgspec.Raw])
    members["model"] = msgspec.Raw(orjson.dumps(model))
    return msgspec.json.encode(members)


def _stores(body: Mapping[str, Any]) -> bool:
    """Whether the engine has to store the answer, or the client decides: otherwise vLLM would keep
    a second copy of it until it stops.
    """
    return "store" in body or body.get("background") is True


def must_be_written(body: Mapping[str, Any]) -> bool:
    """Whether the body cannot be forwarded unchanged."""
    return not body or not _CONFLICTS.isdisjoint(body)


def _passes(name: str) -> bool:
    """Whether an entry of a client's `vllm_xargs` is forwarded. Only the gateway may set the
    `weft_...` entries.
    """
    return name not in _NOT_PASSED and not name.startswith(_OURS)


def _rebuilt(
    body: dict[str, Any], added: dict[str, Any], kind: ReplicaKind, salt: str
) -> dict[str, Any]:
    rebuilt = {key: value for key, value in body.items() if key not in _STRIPPED}
    own = rebuilt.get("cache_salt")
    if isinstance(own, str) and own:
        # Other servers than vLLM read it too. An anonymous client can have a salt as well.
        added = {**added, "cache_salt": tenant_salt(salt, own)}
    xargs = rebuilt.pop("vllm_xargs", None)
    if xargs is not None and not isinstance(xargs, dict):
        # Malformed: the engine returns the more precise error.
        return {**rebuilt, **added, "vllm_xargs": xargs}
    if xargs:
        xargs = {key: value for key, value in xargs.items() if _passes(key)}
        if xargs and kind is not ReplicaKind.STOCK:
            rebuilt["vllm_xargs"] = xargs
    if "vllm_xargs" in added:
        added = {**added, "vllm_xargs": {**rebuilt.get("vllm_xargs", {}), **added["vllm_xargs"]}}
    return {**rebuilt, **added}
