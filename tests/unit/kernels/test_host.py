"""Host buffers have exactly the requested size."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
import torch
from weft_kernels.host import host_buffer


@pytest.mark.parametrize("size", [1, 4096, 5 * 2**20 + 3])
def test_a_buffer_has_exactly_the_bytes_that_were_asked_for(size):
    buffer = host_buffer(size, pinned=False)
    assert (buffer.dtype, buffer.shape) == (torch.uint8, (size,))
    assert buffer.untyped_storage().nbytes() == size
    buffer.fill_(7)
    assert int(buffer.sum()) == 7 * size


def test_a_buffer_may_be_empty():
    assert host_buffer(0, pinned=True).numel() == 0


class Runtime:
    """A fake CUDA runtime that registers memory."""

    def __init__(self, error: int = 0) -> None:
        self.error = error
        self.registered: list[tuple[int, int]] = []

    def cudaHostRegister(self, start: int, size: int, flags: int) -> int:
        self.registered.append((start, size))
        return self.error

    def cudaHostUnregister(self, start: int) -> int:
        self.registered = [each for each in self.registered if each[0] != start]
        return 0


def test_a_pinned_buffer_is_registered_as_a_whole_until_it_is_freed(monkeypatch):
    runtime = Runtime()
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(cudart=lambda: runtime))
    buffer = host_buffer(12_345, pinned=True)
    part = buffer[100:200]
    assert runtime.registered == [(buffer.data_ptr(), 12_345)]
    del buffer
    gc.collect()
    assert runtime.registered, "a part of it is still in use"
    del part
    gc.collect()
    assert runtime.registered == []


def test_an_error_of_cuda_is_raised(monkeypatch):
    monkeypatch.setattr(torch, "cuda", SimpleNamespace(cudart=lambda: Runtime(error=2)))
    with pytest.raises(RuntimeError, match="ulimit -l"):
        host_buffer(4096, pinned=True)
