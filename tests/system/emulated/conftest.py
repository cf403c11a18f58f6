"""Emulated engines for all tests of this folder, because engines start slowly.

- `stack`: a gateway and an engine with Weft's plugin, asynchronous, at dilation 2.
- `swapping`: an engine with the plugin and swap, synchronous, at dilation 4. It serves a second
  model.
- `stock`: vLLM without the plugin, with its OffloadingConnector, asynchronous, at dilation 2.

All have KV blocks for about five calls of 300 tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from support.emulated import FEW_BLOCKS, MODEL, EmulatedEngine
from support.stack import Stack, end_programs, in_flight, until

LARGE = "emulated-14b"
ENGINE = (*FEW_BLOCKS, "--enable-prompt-tokens-details")
OFFLOADING = {
    "kv_connector": "OffloadingConnector",
    "kv_role": "kv_both",
    "kv_connector_extra_config": {"cpu_bytes_to_use": 4_000_000_000},
}


@pytest.fixture(scope="session")
def engines() -> Iterator[tuple[Stack, EmulatedEngine, EmulatedEngine]]:
    preset = ("--preset", "8b-h200", "--dilate")
    swapping = EmulatedEngine(
        (
            *preset, "4", "--policy", "mlfq", *ENGINE, "--no-async-scheduling",
            "--served-model-name", MODEL, LARGE,
        ),
        {"WEFT_ENGINE_SETTINGS": '{"swap_gib": 4}'},
    )  # fmt: skip
    offloading = ("--kv-transfer-config", json.dumps(OFFLOADING))
    stock = EmulatedEngine((*preset, "2", "--scheduler", "stock", *ENGINE, *offloading))
    # They start at the same time.
    others = [swapping, stock]
    for engine in others:
        engine.start()
    try:
        stack = Stack("--replicas", "1", "--emulated", *preset, "2", "--", *ENGINE)
        try:
            for engine in others:
                engine.wait()
            yield stack, swapping, stock
        finally:
            assert stack.stop() == 0
    finally:
        for engine in others:
            engine.stop()


@pytest.fixture
def stack(engines: tuple[Stack, EmulatedEngine, EmulatedEngine]) -> Iterator[Stack]:
    """Check after every test that no call is open and the table's invariants hold."""
    stack = engines[0]
    yield stack
    until(lambda: not in_flight(stack), "calls are still in flight")
    assert stack.violations() == []
    assert end_programs(stack.url) == 0


@pytest.fixture
def swapping(engines: tuple[Stack, EmulatedEngine, EmulatedEngine]) -> EmulatedEngine:
    return engines[1]


@pytest.fixture
def stock(engines: tuple[Stack, EmulatedEngine, EmulatedEngine]) -> EmulatedEngine:
    return engines[2]
