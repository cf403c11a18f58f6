"""Small KV layers in vLLM's layouts with random bits, and a reference for reading their blocks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import strategies as st

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
# Memory orders of the logical axes [layers, blocks, heads, tokens, content] of vLLM 0.32.
ORDERS = {
    "LBHNC": (0, 1, 2, 3, 4),
    "LBNHC": (0, 1, 3, 2, 4),
    "LHBNC": (0, 2, 1, 3, 4),
    "BLHNC": (1, 0, 2, 3, 4),
    "BLNHC": (1, 0, 3, 2, 4),
    "BHLNC": (1, 2, 0, 3, 4),
}


@dataclass(frozen=True)
class Cache:
    """The layers of one KV cache."""

    layers: list[torch.Tensor]

    @property
    def blocks(self) -> int:
        return self.layers[0].shape[0]

    def block(self, layer: int, number: int) -> torch.Tensor:
        """Return a block's bytes in address order, by torch's indexing."""
        one = self.layers[layer][number]
        order = sorted(range(one.ndim), key=lambda axis: (-one.stride(axis), axis))
        return one.permute(order).contiguous().view(-1).view(torch.uint8)

    def expected(self, blocks: list[int]) -> torch.Tensor:
        """Return the staging buffer's contents after these blocks were gathered."""
        pieces = [self.block(i, b) for b in blocks for i in range(len(self.layers))]
        return torch.cat(pieces) if pieces else torch.empty(0, dtype=torch.uint8)

    def bytes(self) -> list[torch.Tensor]:
        """Return a copy of all blocks."""
        return [self.expected([number]) for number in range(self.blocks)]


def random_bytes(size: int, seed: int = 0) -> torch.Tensor:
    """Return random bytes, which include the bit patterns of NaN."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)


def make(
    layout: str = "LBHNC",
    layers: int = 3,
    blocks: int = 6,
    heads: int = 2,
    tokens: int = 4,
    content: int = 16,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> Cache:
    """Return a cache in one of vLLM's memory orders."""
    elements = layers * blocks * heads * tokens * content
    raw = random_bytes(elements * dtype.itemsize, seed).view(dtype)
    logical = (layers, blocks, heads, tokens, content)
    order = ORDERS[layout]
    memory = raw.view([logical[axis] for axis in order])
    back = [order.index(axis) for axis in range(5)]
    return Cache(list(memory.permute(back).unbind(0)))


@st.composite
def caches(draw: st.DrawFn) -> Cache:
    """Draw a cache of any layout and type, with a small odd shape."""
    return make(
        layout=draw(st.sampled_from(sorted(ORDERS))),
        layers=draw(st.integers(1, 4)),
        blocks=draw(st.integers(1, 9)),
        heads=draw(st.integers(1, 3)),
        tokens=draw(st.integers(1, 5)),
        content=2 * draw(st.integers(1, 12)),
        dtype=draw(st.sampled_from(DTYPES)),
        seed=draw(st.integers(0, 99)),
    )


@st.composite
def swaps(draw: st.DrawFn) -> tuple[Cache, list[int]]:
    """Draw a cache and a list of its blocks in any order: with gaps, empty, or full."""
    cache = draw(caches())
    order = draw(st.permutations(range(cache.blocks)))
    return cache, list(order[: draw(st.integers(0, cache.blocks))])
