"""Methods of moving KV blocks between a device and host memory, Weft's and others, for a bench.

Each method moves the same blocks of the same layers to and from the same host buffer, in the same
order: block by block, with all layers of a block together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Final

import torch
from weft_kernels.layers import KVLayers, prepare
from weft_kernels.swap import swap_in, swap_out

from weft_bench.micro.swap.command import LIMIT, OURS

PER_BLOCK: Final = "copy_per_block"
VLLM_BATCH: Final = "vllm_batch"
VLLM_TRITON: Final = "vllm_triton"
# Bytes of a bfloat16.
_ITEM: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """A model's KV cache. The default is Llama 3 8B in bfloat16, 2 MiB per block."""

    layers: int = 32
    heads: int = 8
    head_dim: int = 128
    block_tokens: int = 16

    @property
    def layer_bytes(self) -> int:
        """Bytes of one block in one layer."""
        return self.heads * self.block_tokens * 2 * self.head_dim * _ITEM

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers."""
        return self.layers * self.layer_bytes


@dataclass(frozen=True, slots=True)
class Scene:
    """The memory that all methods share."""

    layers: list[torch.Tensor]
    prepared: KVLayers
    host: torch.Tensor
    # As large as the largest swap, for the single copy that is the upper limit.
    flat: torch.Tensor


@dataclass(frozen=True, slots=True)
class Way:
    """One method for given blocks. Both functions return when the work is on the stream."""

    name: str
    out: Callable[[], None]
    back: Callable[[], None]


def pool_blocks(most: int) -> int:
    """Return the number of blocks in the cache for swaps of up to `most` blocks.

    A quarter more than `most`, so that gaps remain.
    """
    return most + most // 4 + 1


def scene(shape: Shape, most: int, device: torch.device) -> Scene:
    """Return layers in the layout of vLLM 0.32. Each block of a layer has different bytes."""
    size = (pool_blocks(most), shape.heads, shape.block_tokens, 2 * shape.head_dim)
    layers = []
    for layer in range(shape.layers):
        words = torch.arange(prod(size) // 2, dtype=torch.int32, device=device)
        layers.append(words.add_(layer << 24).view(torch.bfloat16).view(size))
    prepared = prepare(layers)
    total = prepared.block_bytes * most
    host = torch.zeros(total, dtype=torch.uint8, pin_memory=device.type == "cuda")
    return Scene(layers, prepared, host, torch.zeros(total, dtype=torch.uint8, device=device))


def ways(scene: Scene, blocks: torch.Tensor, absent: dict[str, str]) -> list[Way]:
    """Return all methods for these blocks (int64 `[n]` in host memory).

    Unavailable methods are omitted, and `absent` gets the reason.
    """
    found = [_per_block(scene, blocks)]
    if scene.prepared.device.type == "cuda":
        for name, bind in ((VLLM_BATCH, _vllm_batch), (VLLM_TRITON, _vllm_triton)):
            try:
                found.append(bind(scene, blocks))
            except (ImportError, AttributeError, RuntimeError) as error:
                absent[name] = str(error).strip().splitlines()[0] if str(error) else repr(error)
    else:
        absent[VLLM_BATCH] = absent[VLLM_TRITON] = "needs a GPU"
    return [*found, _ours(scene, blocks), _limit(scene, blocks)]


def _ours(scene: Scene, blocks: torch.Tensor) -> Way:
    return Way(
        OURS,
        lambda: swap_out(scene.prepared, blocks, scene.host),
        lambda: swap_in(scene.host, scene.prepared, blocks),
    )


def _limit(scene: Scene, blocks: torch.Tensor) -> Way:
    size = len(blocks) * scene.prepared.block_bytes
    far, near = scene.host[:size], scene.flat[:size]
    return _torch_copies(LIMIT, [(far, near)])


def _per_block(scene: Scene, blocks: torch.Tensor) -> Way:
    """Use one `cudaMemcpyAsync` per block and layer."""
    count, layers = len(blocks), len(scene.layers)
    size = count * scene.prepared.block_bytes
    far = scene.host[:size].view(count, layers, -1)
    near = [layer.view(layer.shape[0], -1).view(torch.uint8) for layer in scene.layers]
    pairs = [
        (far[place, layer], near[layer][block])
        for place, block in enumerate(blocks.tolist())
        for layer in range(layers)
    ]
    return _torch_copies(PER_BLOCK, pairs)


def _torch_copies(name: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> Way:
    """Use one asynchronous copy per pair of host and device memory."""

    def out() -> None:
        for far, near in pairs:
            far.copy_(near, non_blocking=True)

    def back() -> None:
        for far, near in pairs:
            near.copy_(far, non_blocking=True)

    return Way(name, out, back)


def _addresses(
    scene: Scene, blocks: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return each piece's device address, host address and bytes, int64 in host memory.

    vLLM builds them for each transfer. Here they are built before the clock starts, in vLLM's
    favour.
    """
    count, layers = len(blocks), len(scene.layers)
    piece = scene.prepared.block_bytes // layers
    starts = torch.tensor([layer.data_ptr() for layer in scene.layers], dtype=torch.int64)
    near = (starts[None, :] + blocks[:, None] * piece).view(-1).contiguous()
    far = scene.host.data_ptr() + torch.arange(count * layers, dtype=torch.int64) * piece
    return near, far, torch.full((count * layers,), piece, dtype=torch.int64)


def _vllm_batch(scene: Scene, blocks: torch.Tensor) -> Way:
    """Use `cuMemcpyBatchAsync` as vLLM's offloading worker does."""
    from vllm import _custom_ops as ops

    # Only the CUDA build has it. With this lookup, another build fails before the clock starts.
    _ = torch.ops._C_cache_ops.swap_blocks_batch
    near, far, sizes = _addresses(scene, blocks)
    return Way(
        VLLM_BATCH,
        lambda: ops.swap_blocks_batch(near, far, sizes, is_src_access_order_any=False),
        lambda: ops.swap_blocks_batch(far, near, sizes, is_src_access_order_any=True),
    )


def _vllm_triton(scene: Scene, blocks: torch.Tensor) -> Way:
    """Use vLLM's Triton kernel, which reads and writes pinned host memory from the GPU.

    vLLM uses it only for copies to the GPU, and for small pieces.
    """
    from vllm.triton_utils import HAS_TRITON
    from vllm.v1.kv_offload.cpu.swap_blocks_triton import swap_blocks_batch

    if not HAS_TRITON:
        raise ImportError("vLLM finds no Triton")
    near, far, sizes = _addresses(scene, blocks)
    chunk = min(1 << (int(sizes[0]) - 1).bit_length(), 8192)
    return Way(
        VLLM_TRITON,
        lambda: swap_blocks_batch(
            near, far, sizes, is_src_access_order_any=False, bytes_per_chunk=chunk
        ),
        lambda: swap_blocks_batch(
            far, near, sizes, is_src_access_order_any=True, bytes_per_chunk=chunk
        ),
    )
