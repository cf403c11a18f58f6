"""Host memory that a GPU copies to and from directly: exactly as large as asked for.

torch's own pinned memory comes in powers of two: 40 GiB would take 64.
"""

from __future__ import annotations

import mmap
import weakref

import torch


def host_buffer(size: int, *, pinned: bool) -> torch.Tensor:
    """A buffer of so many bytes, `[size]` uint8, all zero. pinned: registered with CUDA until the
    buffer is freed; it lies on pages of its own. RuntimeError if CUDA refuses, such as for want of
    lockable memory."""
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
            f"CUDA does not pin {size / 2**30:.1f} GiB of host memory (error {error}): give the "
            "process more lockable memory (ulimit -l), or ask for less"
        )
    weakref.finalize(buffer.untyped_storage(), cudart.cudaHostUnregister, start)
