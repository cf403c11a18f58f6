"""The Triton kernels: compared with the reference in the interpreter, and compiled for an H100."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given, settings
from support.kv_layers import DTYPES, ORDERS, Cache, make, random_bytes, swaps
from weft_kernels import reference
from weft_kernels.layers import prepare

# Triton has wheels for Linux on x86-64 only.
triton = pytest.importorskip("triton")
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


def load(monkeypatch: pytest.MonkeyPatch, interpret: bool) -> ModuleType:
    """Import the module with or without the interpreter."""
    monkeypatch.setenv("TRITON_INTERPRET", str(int(interpret)))
    found = importlib.util.find_spec("weft_kernels.triton_swap")
    assert found
    assert found.origin
    # Another name, so that earlier imports keep their module.
    spec = importlib.util.spec_from_file_location(f"swap_{interpret}", Path(found.origin))
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def interpreted() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        return load(patch, interpret=True)


def both(interpreted: ModuleType, cache: Cache, blocks: list[int], shift: int = 0) -> None:
    """Gather and scatter with both, into random memory that must not change elsewhere."""
    layers = prepare(cache.layers)
    numbers = torch.tensor(blocks, dtype=torch.int64)
    size = len(blocks) * layers.block_bytes
    staged = []
    for copies in (reference, interpreted):
        buffer = random_bytes(size + 64, seed=7)
        copies.gather(layers, numbers, buffer[shift : shift + size])
        staged.append(buffer)
    assert torch.equal(*staged)
    assert torch.equal(staged[1][shift : shift + size], cache.expected(blocks))

    before = cache.bytes()
    for layer in cache.layers:
        layer.view(torch.uint8).bitwise_xor_(255)
    interpreted.scatter(layers, numbers, staged[1][shift : shift + size])
    for number, (was, now) in enumerate(zip(before, cache.bytes(), strict=True)):
        assert torch.equal(now, was if number in blocks else was ^ 255), number


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(swap=swaps())
def test_it_equals_the_reference_and_writes_nothing_else(interpreted, swap):
    cache, blocks = swap
    if blocks:
        both(interpreted, cache, blocks)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ORDERS)
def test_every_layout_and_type_works(interpreted, layout, dtype):
    both(interpreted, make(layout, dtype=dtype), [4, 0, 3])


def test_runs_longer_than_a_chunk_work(interpreted):
    cache = make("LBHNC", layers=2, blocks=3, heads=4, tokens=16, content=136)
    assert prepare(cache.layers).spans[0].length > 2 * interpreted._CHUNK
    both(interpreted, cache, [2, 0])


def test_layers_of_different_shapes_work(interpreted):
    layers = [random_bytes(5 * h * 64, h).view(5, h, 64) for h in (3, 1, 150)]
    both(interpreted, Cache(layers), [3, 1])


@pytest.mark.parametrize("shift", [8, 4, 2, 1])
def test_a_staging_buffer_may_begin_anywhere(interpreted, shift):
    both(interpreted, make(), [5, 1], shift)


@pytest.mark.parametrize("to_staging", [True, False], ids=["gather", "scatter"])
@pytest.mark.parametrize(
    ("word", "aligned", "widest"),
    [(8, 16, "v2.b64"), (8, 8, "b64"), (4, 4, "b32"), (2, 2, "b16"), (1, 1, "b8")],
)
def test_code_for_an_h100_moves_words_as_wide_as_alignment_allows(
    monkeypatch, tmp_path, word, aligned, widest, to_staging
):
    """The compiler needs no GPU, and is stricter than the interpreter."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    kernel = load(monkeypatch, interpret=False).copy_runs
    pointers = {"blocks": "*i64", "table": "*i64", "staging": "*u8"}
    numbers = dict.fromkeys(("spans", "chunks", "block_bytes"), "i32")
    constants = {"WORD": word, "ALIGNED": aligned, "WORDS": 8192 // word, "TO_STAGING": to_staging}
    source = ASTSource(
        kernel,
        {**pointers, **numbers, **dict.fromkeys(constants, "constexpr")},
        {(kernel.arg_names.index(name),): value for name, value in constants.items()},
    )
    code = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
    stores = set(re.findall(r"st\.global\.([\w.]+)", code))
    assert stores == {widest}
    assert f"ld.global.{widest}" in code
