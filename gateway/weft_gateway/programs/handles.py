"""Handles that clients hold for prefills. A handle is an attribute of its program in the process
table, so all gateways on one table know it, and it ends with its program.

The id of a handle contains its program, which tells any gateway the row to look in.
"""

from __future__ import annotations

import asyncio
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from time import time
from typing import Any, Final

import orjson

from weft_gateway.model import Program, ProgramAttribute, ProgramKey
from weft_gateway.programs.table import ProcessTable, TableUnavailable

# An id consists of this prefix and random digits, which name the attribute, and of the program.
PREFIX: Final = "pf_"
_RANDOM_BYTES: Final = 12
_NAME_LENGTH: Final = len(PREFIX) + 2 * _RANDOM_BYTES

Fields = Mapping[str, Any]


def new_id(program: str) -> str:
    """Return an unused id for a handle of this program."""
    owner = urlsafe_b64encode(program.encode()).decode().rstrip("=")
    return f"{PREFIX}{secrets.token_hex(_RANDOM_BYTES)}{owner}"


def has_handles(program: Program, now_s: float) -> bool:
    """Whether a program has an unexpired handle."""
    return bool(_live(program, now_s))


class HandleStore:
    """The prefill handles of all tenants, each with the members of a JSON object. Times are Unix
    times in seconds.
    """

    def __init__(self, table: ProcessTable) -> None:
        self._table = table
        # Changes read before they write. Without this lock, an update could restore a handle that a
        # concurrent drop removes.
        self._change = asyncio.Lock()

    async def begin(
        self, key: ProgramKey, handle: str, fields: Fields, now_s: float, expires_s: float
    ) -> None:
        """Add a handle to a program."""
        await self._table.set_attribute(key, _attribute(handle, fields, expires_s), now_s)

    async def update(self, key: ProgramKey, handle: str, fields: Fields) -> bool:
        """Replace these members. Returns False if the handle does not exist."""
        async with self._change:
            known = await self._known(key, handle)
            if known is None:
                return False
            changed = _attribute(handle, {**_fields(known), **fields}, known.until_s)
            await self._table.set_attribute(key, changed, time())
            return True

    async def find(self, tenant: str, handle: str, now_s: float) -> Fields | None:
        """Return a tenant's handle, None if no unexpired one exists. Raises TableUnavailable if the
        table is in local mode and does not have the handle.
        """
        try:
            # Surplus padding is ignored.
            program = urlsafe_b64decode(f"{handle[_NAME_LENGTH:]}==").decode()
        except ValueError:
            return None
        known = await self._known(ProgramKey(tenant, program), handle)
        if known is None and self._table.local:
            raise TableUnavailable("another gateway may know the handle")
        return _fields(known) if known is not None and known.until_s > now_s else None

    async def of_program(self, key: ProgramKey, now_s: float) -> Sequence[Fields]:
        """Return a program's unexpired handles, first to expire first."""
        program = await self._table.get(key)
        live = [] if program is None else _live(program, now_s)
        return [_fields(each) for each in sorted(live, key=lambda each: each.until_s)]

    async def drop(self, key: ProgramKey, handle: str) -> bool:
        """Remove a handle. Returns whether it existed."""
        async with self._change:
            known = await self._known(key, handle)
            if known is not None:
                await self._table.set_attribute(key, ProgramAttribute(known.name, "", 0.0), time())
            return known is not None

    async def _known(self, key: ProgramKey, handle: str) -> ProgramAttribute | None:
        """Return a handle's attribute, even if it has expired. An ended program has no handles:
        a change to one of its attributes would begin it again.
        """
        program = await self._table.get(key)
        if program is None or program.ended:
            return None
        name = handle[:_NAME_LENGTH]
        return next((each for each in program.attributes if each.name == name), None)


def _attribute(handle: str, fields: Fields, until_s: float) -> ProgramAttribute:
    return ProgramAttribute(handle[:_NAME_LENGTH], orjson.dumps(fields).decode(), until_s)


def _live(program: Program, now_s: float) -> list[ProgramAttribute]:
    return [
        each for each in program.attributes if each.name.startswith(PREFIX) and each.until_s > now_s
    ]


def _fields(attribute: ProgramAttribute) -> dict[str, Any]:
    fields: dict[str, Any] = orjson.loads(attribute.text)
    return fields
