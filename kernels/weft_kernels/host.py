"""Pinned host memory of an exact size, for direct copies to and from a GPU.

torch rounds its own pinned memory up to a power of two: 40 GiB would take 64.
"""

from __future__ import annotations

import mmap
import weakref

import torch


def host_buffer(size: int, *, pinned: bool) -> torch.Tensor:
    """Return a zeroed buffer, `[size]` uint8.

    pinned: register the buffer with CUDA until it is freed; it does not share pages with other
    memory. Raises RuntimeError if CUDA refuses, for example for lack of lockable memory.
    """
    if size <= 0:
        return torch.empty(0, dtype=torch.uint8)
    buffer = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
    if pinned:
        _register(buffer, size)
    return buffer


def _register(buffer: torch.Tensor, size: int) -> None:
    cudart = torch.cuda.cudart()
    start = buffer.data_ptr()
    error = int(cudart.cudaHostRegister(start, size, 0))
    if error:
        raise RuntimeError(
            f"CUDA cannot pin {size / 2**30:.1f} GiB of host memory (error {error}): give the "
            "process more lockable memory (ulimit -l), or ask for less"
        )
    weakref.finalize(buffer.untyped_storage(), cudart.cudaHostUnregister, start)
