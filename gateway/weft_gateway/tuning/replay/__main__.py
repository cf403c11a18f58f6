"""The process of a replay: reads a trace from its input, writes the result, and ends with its
parent.

Arguments: limits of its memory (bytes) and processor time (seconds). The input is one line of JSON
and stays open: if it closes, the parent has gone, and the process ends. The output is one line, a
`Found` or `{"error": ...}`.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from contextlib import suppress


def main(memory_bytes: int, cpu_s: int) -> int:
    """Run one replay. Returns the exit status."""
    # Before the imports: they take half a second of processor time.
    _confine(memory_bytes, cpu_s)
    try:
        return _answer(_replayed(sys.stdin.buffer.readline()))
    except MemoryError:
        return _answer(b'{"error": "MemoryError"}')


def _replayed(line: bytes) -> bytes:
    import msgspec

    from weft_gateway.tuning.replay.search import search
    from weft_gateway.tuning.replay.trace import Trace

    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        found = search(msgspec.json.decode(line, type=Trace))
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        return msgspec.json.encode({"error": f"{type(error).__name__}: {error}"[:500]})
    return msgspec.json.encode(msgspec.structs.replace(found, cpu_s=time.process_time()))


def _confine(memory_bytes: int, cpu_s: int) -> None:
    """Set the lowest priority and the limits, where the system has them."""
    with suppress(OSError):
        os.nice(19)
    try:
        import resource
    except ImportError:
        return
    for limit, value in ((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CPU, cpu_s)):
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(1)


def _answer(line: bytes) -> int:
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    status = 1
    try:
        status = main(*map(int, sys.argv[1:3]))
    except Exception:
        traceback.print_exc()
    # The thread that reads the input holds its lock, which an ordinary exit would wait for.
    os._exit(status)
