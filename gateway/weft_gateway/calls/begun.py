"""Which calls are held where others are refused: those of programs that have begun.

A refused call can end an agent that has worked for an hour, and with it all that it has cost. A
program without an answer loses nothing, and its client repeats the call.
"""

from __future__ import annotations

from weft_gateway.calls.call import Call
from weft_gateway.model import Program
from weft_gateway.programs.table import ProcessTable, TableUnavailable


async def has_begun(table: ProcessTable, call: Call) -> bool:
    """Whether an earlier call of the call's program was answered, through any gateway."""
    if call.identity.ephemeral:
        return False
    if _answered(table.peek(call.key)):
        return True
    try:
        return _answered(await table.get(call.key))
    except TableUnavailable:
        return False


def _answered(program: Program | None) -> bool:
    return program is not None and program.calls_closed > program.errors
