"""Folds the sessions of sub-agents into the program of their root session. All sessions below one
root are one program, so their usage counts once, in one row.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.programs.aliases import BODY, HEADERS
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.response_store import ResponseStore
from weft_gateway.programs.table import TableUnavailable

# Sessions share the response store with answers, so a prefix keeps their names apart. A client that
# requests an answer by such a name gets none: it is no answer's id.
_SESSION: Final = "\x01session:"
_OF_PROGRAM: Final = frozenset(row.text for row in (*HEADERS, *BODY) if row.above)


def has_parent(identity: Identity) -> bool:
    """Whether the client declares that another program started the call's program."""
    return (
        bool(identity.parent)
        and identity.source in _OF_PROGRAM
        and identity.parent != identity.key.program
    )


async def fold(chains: ResponseStore, identity: Identity) -> Identity:
    """Return the call as a thread of the root's program, if `has_parent`.

    The parent is the root unless the parent has a recorded parent itself. An agent calls before it
    starts another one, so its parent is recorded by then and visible to all gateways on the same
    store. The last call of a sub-agent is not the last call of the program.
    """
    tenant, own = identity.key
    parent = identity.parent
    root, above = parent, MAIN_THREAD
    try:
        found = await chains.find(tenant, _SESSION + parent)
    except TableUnavailable:
        found = None
    if found is None:
        # Record the parent as a root, so that later calls need no lookup.
        chains.record(ProgramKey(tenant, parent), _SESSION + parent)
    elif found.program != parent:
        root, above = found.program, parent
    if chains.root(tenant, _SESSION + own) != root:
        await chains.remember(ProgramKey(tenant, root), {_SESSION + own: None})
    thread = own if identity.thread == MAIN_THREAD else f"{own}/{identity.thread}"
    return replace(identity, key=ProgramKey(tenant, root), thread=thread, parent=above, final=False)
