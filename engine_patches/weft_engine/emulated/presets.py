"""Cost models of models on GPUs, derived from published specifications; none is measured here.

Sources of the numbers:
- GPUs: NVIDIA's data sheets, dense BF16 (FP16 for the A6000) tensor throughput without sparsity,
  memory size and bandwidth, host link one way. A100: "A100 Tensor Core GPU" data sheet, 80 GB SXM
  (312 TFLOPS, 2,039 GB/s, NVLink 600 GB/s, PCIe 4). H100: "H100 Tensor Core GPU" data sheet, SXM
  (989 TFLOPS, 3.35 TB/s, NVLink 900 GB/s, PCIe 5). H200: "H200 Tensor Core GPU" data sheet, SXM
  (1,979 TFLOPS with sparsity, half of that without; 141 GB, 4.8 TB/s, NVLink 900 GB/s, PCIe 5).
  L40: "L40" data sheet (181.05 TFLOPS, 864 GB/s, 48 GB, PCIe 4, no NVLink). A6000: "RTX A6000" data
  sheet (309.7 TFLOPS with sparsity, half of that without; 768 GB/s, 48 GB, PCIe 4, NVLink for pairs
  only and so not counted among four).
- Models: the `config.json` of Llama 3.1 8B and 70B and of Qwen3 14B and 32B (layers, heads, KV
  heads, head size, hidden size) and their parameter counts on the model cards (8.03, 70.6, 14.8 and
  32.8 billion), two bytes a parameter. GPUs a replica: 1 and 4, as in Agentix 6.1; 1 for 14B, as in
  Sutradhara 5.1; 2 for 32B, because its weights do not fit on one GPU of 48 GB.
- vLLM 0.32: `max_num_seqs` and `max_num_batched_tokens` of its API server on such a GPU
  (`engine/arg_utils.py`: 1024 and 8192 from 70 GiB on but not on an A100, else 256 and 2048),
  blocks of 16 tokens, `gpu_memory_utilization` 0.92 (`config/cache.py`).

The formulas, for G GPUs of bandwidth B, arithmetic F, peer link L and host link H:
- weights_s = bytes of weights / (G B m), context_token_s = KV bytes of a token / (G B m).
- prefill_token_s = decode_sequence_s = 2 x parameters / (G F a) + transfer of the token's
  all-reduces: 2 a layer, each 2 (G-1)/G x hidden x 2 bytes over L.
- prefill_pair_s = 4 x layers x heads x head size / (G F a): a query's product with a key, and the
  weighted sum of the values. For an 8B model after 100,000 tokens, this is 3.3 times the rest of a
  prompt token's arithmetic.
- swapped_block_s = bytes of a block / (G H): each GPU moves its heads over its own link.
- step_s = 1 ms, and 2 x layers x 10 us with more than one GPU: launches, latency of all-reduces.
- KV blocks = (0.92 x memory - weights / G - 2 GB of activations) x G / bytes of a block.

Data sheets do not give the achieved share of the peaks and the fixed times. Assumed are m = 0.75
and a = 0.5, typical of well-made kernels, and the fixed times above. To represent a machine, use
`weft bench fit`.

The presets `hexgen-a100`, `hexgen-a6000` and `hexgen-l40` are the instances of HexGen-Flow (section
5.1): Llama 3.1 70B, four GPUs each. Their seconds per prompt token and per answer token, and their
room for KV, fit the tables of step times that its authors released, within 11%; attention is in
these seconds and not counted apart. The rest is as in `70b`. The derived `70b-a6000` and `70b-l40`
decode at half of that speed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final

from msgspec import Meta

from weft_engine.emulated.cost_model import CostModel

BLOCK_TOKENS: Final = 16
# The limits apply to engines that are read from a file.
Count = Annotated[int, Meta(ge=1)]
_MEMORY_SHARE: Final = 0.92
_ACTIVATIONS: Final = 2e9
_BANDWIDTH_REACHED: Final = 0.75
_ARITHMETIC_REACHED: Final = 0.5
_STEP_S: Final = 1e-3
_ALL_REDUCE_S: Final = 10e-6
_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    memory: bytes. bandwidth, peer_link, host_link: bytes a second, one way. arithmetic:
    floating-point operations a second. slots, step_tokens: vLLM's defaults on it.
    """

    memory: float
    bandwidth: float
    arithmetic: float
    peer_link: float
    host_link: float
    slots: int
    step_tokens: int


@dataclass(frozen=True, slots=True)
class Model:
    """A model's shape, and the number of GPUs of one replica."""

    parameters: float
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    gpus: int

    @property
    def token_bytes(self) -> int:
        """KV bytes of one token, keys and values of all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * _BYTES


@dataclass(frozen=True, slots=True)
class EngineShape:
    """One replica's engine: step costs and capacity.

    slots: `max_num_seqs`. step_tokens: `max_num_batched_tokens`. kv_blocks: blocks of
    `block_tokens` tokens and `block_bytes` bytes. context: longest call, tokens. call_s: seconds of
    a call outside of the engine's steps (HTTP, detokenization); 0 in presets.
    """

    cost: CostModel
    slots: Count
    step_tokens: Count
    kv_blocks: Count
    block_tokens: Count = BLOCK_TOKENS
    block_bytes: Count = 2_097_152
    context: Count = 131_072
    call_s: Annotated[float, Meta(ge=0)] = 0.0


GPUS: Final[Mapping[str, Gpu]] = {
    "a100": Gpu(80e9, 2.039e12, 312e12, 300e9, 32e9, 256, 2048),
    "h100": Gpu(80e9, 3.35e12, 989e12, 450e9, 64e9, 1024, 8192),
    "h200": Gpu(141e9, 4.8e12, 989.5e12, 450e9, 64e9, 1024, 8192),
    "l40": Gpu(48e9, 864e9, 181.05e12, 32e9, 32e9, 256, 2048),
    "a6000": Gpu(48e9, 768e9, 309.7e12 / 2, 32e9, 32e9, 256, 2048),
}
MODELS: Final[Mapping[str, Model]] = {
    "8b": Model(8.03e9, 32, 4096, 32, 8, 128, 1),
    "14b": Model(14.8e9, 40, 5120, 40, 8, 128, 1),
    "32b": Model(32.8e9, 64, 5120, 64, 8, 128, 2),
    "70b": Model(70.6e9, 80, 8192, 64, 8, 128, 4),
}
# By preset: GPU, seconds per prompt token, seconds per answer token of one call, tokens of KV.
_HEXGEN: Final[Mapping[str, tuple[str, float, float, int]]] = {
    "hexgen-a100": ("a100", 330e-6, 21.2e-3, 443_000),
    "hexgen-a6000": ("a6000", 966e-6, 33.8e-3, 84_000),
    "hexgen-l40": ("l40", 576e-6, 38.2e-3, 84_000),
}
# Mean context of an answer token in these tables.
_HEXGEN_CONTEXT: Final = 8_000
PRESETS: Final = (*(f"{model}-{gpu}" for model in MODELS for gpu in GPUS), *_HEXGEN)


def preset(name: str) -> EngineShape:
    """Return the engine with this name, for example "8b-a100". ValueError lists the valid names."""
    if name not in PRESETS:
        raise ValueError(f"unknown preset {name!r}; known: {', '.join(PRESETS)}")
    if name in _HEXGEN:
        return _fitted(*_HEXGEN[name])
    model_name, _, gpu_name = name.partition("-")
    return derive(MODELS[model_name], GPUS[gpu_name])


def _fitted(gpu: str, prompt_s: float, answer_s: float, room: int) -> EngineShape:
    shape = derive(MODELS["70b"], GPUS[gpu])
    read_s = _HEXGEN_CONTEXT * shape.cost.context_token_s
    cost = replace(
        shape.cost,
        weights_s=answer_s - shape.cost.step_s - read_s,
        prefill_token_s=prompt_s,
        decode_sequence_s=prompt_s,
        prefill_pair_s=0.0,
    )
    return replace(shape, cost=cost, kv_blocks=room // BLOCK_TOKENS)


def derive(model: Model, gpu: Gpu) -> EngineShape:
    """Apply the formulas of the module. Raises ValueError if the weights leave no room for KV."""
    count = model.gpus
    weights = model.parameters * _BYTES
    bandwidth = count * gpu.bandwidth * _BANDWIDTH_REACHED
    arithmetic = count * gpu.arithmetic * _ARITHMETIC_REACHED
    moved = 2 * model.layers * 2 * (count - 1) / count * model.hidden * _BYTES
    token_s = 2 * model.parameters / arithmetic + moved / gpu.peer_link
    block_bytes = model.token_bytes * BLOCK_TOKENS
    room = (_MEMORY_SHARE * gpu.memory - weights / count - _ACTIVATIONS) * count
    if room < block_bytes:
        raise ValueError("the weights leave no room for KV")
    return EngineShape(
        cost=CostModel(
            step_s=_STEP_S + (2 * model.layers * _ALL_REDUCE_S if count > 1 else 0.0),
            weights_s=weights / bandwidth,
            prefill_token_s=token_s,
            decode_sequence_s=token_s,
            context_token_s=model.token_bytes / bandwidth,
            swapped_block_s=block_bytes / (count * gpu.host_link),
            prefill_pair_s=4 * model.layers * model.heads * model.head_size / arithmetic,
        ),
        slots=gpu.slots,
        step_tokens=gpu.step_tokens,
        kv_blocks=int(room / block_bytes),
        block_bytes=block_bytes,
    )
