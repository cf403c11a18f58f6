"""The requests of a batch that names several models."""

from __future__ import annotations

import asyncio
import json
from array import array
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from weft_gateway.calls.turns import Turns
from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_active import Active
from weft_gateway.runs.batch_calls import Answered
from weft_gateway.runs.batch_input import Index
from weft_gateway.runs.batch_requests import MAX_MODELS, write_lines
from weft_gateway.runs.batch_results import Answer

SERVED = {"one": {"a"}, "two": {"b", "c"}, "three": {"a", "b", "c"}}


def able(model: str) -> list[str]:
    return [name for name, models in SERVED.items() if model in models]


def batch(counts: dict[str, int]) -> tuple[Active, dict[int, str]]:
    """Return a batch, and the model of each of its requests."""
    total = sum(counts.values())
    order = Random(3).sample(range(total), total)
    models = [model for model, count in counts.items() for _ in range(count)]
    index = Index(order=array("I", order), counts=counts)
    parts: Any = SimpleNamespace(id="b"), SimpleNamespace(write=lambda *_, **__: None)
    active = Active(parts[0], index, 0, parts[1], bytearray(total))
    return active, dict(zip(order, models, strict=True))


def failed(code: str, status: int = 503) -> Answered:
    answer = Answer(status, "id", b"{}")
    return Answered(answer, ApiError(status, code, "failed"))


def test_replicas_take_requests_of_their_models_and_each_request_once() -> None:
    active, models = batch({"a": 20, "b": 9, "c": 1})
    taken: list[int] = []
    source = Random(1)
    while not active.over:
        replica = source.choice(list(SERVED))
        request = active.take(replica, able, 0.0)
        if request is not None:
            assert models[request] in SERVED[replica]
            taken.append(request)
    assert sorted(taken) == sorted(models)
    assert [active.take(name, able, 0.0) for name in SERVED] == [None] * 3


def test_a_repetition_goes_to_a_replica_of_its_model() -> None:
    active, models = batch({"a": 1, "b": 1})
    request = active.take("one", able, 0.0)
    assert request is not None
    assert models[request] == "a"
    active.again(request, 5.0)
    other = active.take("two", able, 9.0)
    assert other is not None
    assert models[other] == "b"
    assert active.take("two", able, 9.0) is None
    assert active.take("three", able, 4.0) is None
    assert active.take("three", able, 6.0) == request


def test_a_model_without_replicas_does_not_pause_the_others() -> None:
    active, models = batch({"a": 2, "b": 2})
    request = active.take("one", able, 0.0)
    assert request is not None
    assert active.answered(request, "x", failed("no_replica"), 0.0) == 0
    assert active.take("one", able, 0.5) is None
    other = active.take("three", able, 0.5)
    assert other is not None
    assert models[other] == "b"
    assert active.take("one", able, 2.0) == request


def test_models_of_a_batch_are_limited(tmp_path: Path) -> None:
    source, target = tmp_path / "body", tmp_path / "lines"

    def body(models: int) -> None:
        asked = [
            {"custom_id": str(n), "params": {"model": f"m{n % models}"}} for n in range(2 * models)
        ]
        source.write_text(json.dumps({"requests": asked}))

    async def written() -> int:
        return await write_lines(source, target, 1000, Turns(), "t", lambda _: "")

    body(MAX_MODELS)
    assert asyncio.run(written()) == 2 * MAX_MODELS
    body(MAX_MODELS + 1)
    with pytest.raises(ApiError, match=f"requests.{MAX_MODELS}.params.model: a batch names at"):
        asyncio.run(written())
