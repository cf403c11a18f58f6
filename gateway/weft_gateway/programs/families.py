"""Sub-agents that have a session of their own: their calls are a thread of the program that began
them. Everything below one root is one program; what it has used counts once, in one row."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from weft_gateway.model import ProgramKey
from weft_gateway.programs.aliases import PARENT_IS_A_PROGRAM
from weft_gateway.programs.identity import MAIN_THREAD, Identity
from weft_gateway.programs.response_store import ResponseStore
from weft_gateway.programs.table import TableUnavailable

# Sessions and stored answers are remembered in one place and must not meet. An answer that a client
# asks for by such a name has no replica, and so does not exist.
_SESSION: Final = "\x01session:"


def has_parent(identity: Identity) -> bool:
    """Whether the call's program was begun by another program, by its own word."""
    return (
        bool(identity.parent)
        and identity.source in PARENT_IS_A_PROGRAM
        and identity.parent != identity.key.program
    )


async def fold(chains: ResponseStore, identity: Identity) -> Identity:
    """The same call as a thread of the root's program, where `has_parent`.

    The parent is the root, unless it was seen to have a parent itself: an agent calls before it
    begins another one, so whoever has a parent is known by then, to every gateway on one store. The
    last call of a sub-agent is not its program's last.
    """
    tenant, own = identity.key
    parent = identity.parent
    root, above = parent, MAIN_THREAD
    try:
        found = await chains.find(tenant, _SESSION + parent)
    except TableUnavailable:
        found = None
    if found is None:
        # Known to have none from here on; nobody needs to ask again.
        chains.record(ProgramKey(tenant, parent), _SESSION + parent)
    elif found.program != parent:
        root, above = found.program, parent
    if chains.root(tenant, _SESSION + own) != root:
        await chains.remember(ProgramKey(tenant, root), _SESSION + own, "")
    thread = own if identity.thread == MAIN_THREAD else f"{own}/{identity.thread}"
    return replace(identity, key=ProgramKey(tenant, root), thread=thread, parent=above, final=False)
