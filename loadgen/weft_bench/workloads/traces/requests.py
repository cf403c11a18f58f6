"""Requests of production services without text: Mooncake's with block hashes, Azure's with lengths.

Each request is a program of one call: neither trace shows which requests belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from weft_bench.workloads.schema import Part, TraceCall, TraceProgram

BLOCK_TOKENS: Final = 512
AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def mooncake(records: Iterable[Mapping[str, Any]], name: str) -> Iterator[TraceProgram]:
    """Yield requests with one hash per block of 512 tokens.

    Equal hashes are equal prefixes across all requests. Times are milliseconds. name: of the trace,
    since hashes of different traces are unrelated. Raises ValueError if hashes and length disagree.
    """
    for number, record in enumerate(records):
        hashes, tokens = record["hash_ids"], int(record["input_length"])
        if len(hashes) != -(-tokens // BLOCK_TOKENS):
            raise ValueError(f"{len(hashes)} blocks of {BLOCK_TOKENS} do not make {tokens} tokens")
        # Only the last block may be partial.
        rest = tokens - BLOCK_TOKENS * (len(hashes) - 1)
        sizes = [BLOCK_TOKENS] * (len(hashes) - 1) + [rest]
        parts = tuple(
            Part(f"{name}/{block}", max(1, size)) for block, size in zip(hashes, sizes, strict=True)
        )
        arrival_s = record["timestamp"] / 1000
        yield _request(f"{name}-{number}", parts, record["output_length"], arrival_s)


def azure(records: Iterable[Mapping[str, Any]], name: str) -> Iterator[TraceProgram]:
    """Yield requests with times and lengths.

    Their common prefixes are unknown, so they share nothing.
    """
    begun = None
    for number, record in enumerate(records):
        time, context, generated = (record[column] for column in AZURE)
        # A datetime has six decimal digits, the trace seven.
        at = datetime.fromisoformat(time[:26])
        begun = begun or at
        parts = (Part(f"{name}/{number}", max(1, int(context))),)
        arrival_s = (at - begun).total_seconds()
        yield _request(f"{name}-{number}", parts, generated, arrival_s)


def _request(name: str, parts: tuple[Part, ...], output: Any, arrival_s: float) -> TraceProgram:
    call = TraceCall(parts=parts, output_tokens=max(1, int(output)))
    return TraceProgram(name, (call,), arrival_s)
