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
from weft_gateway.runs.batch_store import Api

SERVED = {"one": {"a"}, "two": {"b", "c"}, "three": {"a", "b", "c"}}


def take(active: Active, replica: str, now_s: float = 0.0) -> int | None:
    def able(model: str) -> list[str]:
        if model not in SERVED[replica]:
            return []
        return [name for name, models in SERVED.items() if model in models]

    return active.take(replica, able, now_s)


def batch(counts: dict[str, int]) -> tuple[Active, dict[int, str]]:
    """Return a batch, and the model of each of its requests."""
    total = sum(counts.values())
    order = Random(3).sample(range(total), total)
    models = [model for model, count in counts.items() for _ in range(count)]
    index = Index(order=array("I", order), counts=counts)
    stored = SimpleNamespace(id="b", api=Api.OPENAI, completed=0, failed=0)
    parts: Any = stored, SimpleNamespace(write=lambda *_, **__: None)
    active = Active(parts[0], index, 0, parts[1], bytearray(total))
    return active, dict(zip(order, models, strict=True))


def failed(code: str, status: int = 503) -> Answered:
    answer = Answer(status, b"{}", "id")
    return Answered(answer, ApiError(status, code, "failed"))


def test_replicas_take_requests_of_their_models_and_each_request_once() -> None:
    active, models = batch({"a": 20, "b": 9, "c": 1})
    taken: list[int] = []
    source = Random(1)
    while not active.over:
        replica = source.choice(list(SERVED))
        request = take(active, replica, 0.0)
        if request is not None:
            assert models[request] in SERVED[replica]
            taken.append(request)
    assert sorted(taken) == sorted(models)
    assert [take(active, name, 0.0) for name in SERVED] == [None] * 3


def test_a_replica_begins_with_the_model_that_fewest_serve() -> None:
    active, models = batch({"a": 3, "b": 3})
    served = {"both": ["a", "b"], "one": ["a"]}

    def next_of(replica: str) -> str:
        def able(model: str) -> list[str]:
            if model not in served[replica]:
                return []
            return [name for name in served if model in served[name]]

        request = active.take(replica, able, 0.0)
        return "" if request is None else models[request]

    assert [next_of("both") for _ in range(3)] == ["b", "b", "b"]
    assert [next_of("one"), next_of("both"), next_of("one"), next_of("both")] == ["a", "a", "a", ""]


def test_a_repetition_goes_to_a_replica_of_its_model() -> None:
    active, models = batch({"a": 1, "b": 1})
    request = take(active, "one", 0.0)
    assert request is not None
    assert models[request] == "a"
    active.again(request, 5.0)
    other = take(active, "two", 9.0)
    assert other is not None
    assert models[other] == "b"
    assert take(active, "two", 9.0) is None
    assert take(active, "three", 4.0) is None
    assert take(active, "three", 6.0) == request


def test_a_model_without_replicas_does_not_pause_the_others() -> None:
    active, models = batch({"a": 2, "b": 2})
    request = take(active, "one", 0.0)
    assert request is not None
    assert active.answered(request, "x", failed("no_replica"), 0.0) == 0
    assert take(active, "one", 0.5) is None
    other = take(active, "three", 0.5)
    assert other is not None
    assert models[other] == "b"
    assert take(active, "one", 2.0) == request


MISSING = b'{"error":{"message":"The model `a` does not exist.","code":404}}'


@pytest.mark.parametrize(
    "found",
    [
        Answered(Answer(404, MISSING), None),
        Answered(Answer(404, MISSING), ApiError(404, "model_not_found", "The model")),
    ],
)
def test_requests_of_a_model_that_goes_away_wait(found: Answered) -> None:
    active, _ = batch({"a": 1})
    request = take(active, "one", 0.0)
    assert request is not None
    for now_s in range(0, 90, 3):
        # More often than a request may fail.
        assert active.answered(request, "x", found, float(now_s)) == 0
        assert take(active, "one", now_s + 0.5) is None
        assert take(active, "one", now_s + 1.5) == request


@pytest.mark.parametrize("body", [b'{"id":"c","choices":[{', b"<html>"])
def test_answers_that_are_no_json_are_repeated(body: bytes) -> None:
    active, _ = batch({"a": 1})
    request = take(active, "one", 0.0)
    assert request is not None
    broken = Answered(Answer(200, body), None)
    assert [active.answered(request, "x", broken, 0.0) for _ in range(4)] == [0, 0, 0, 1]
    assert active.batch.failed == 1


def test_models_of_a_batch_are_limited(tmp_path: Path) -> None:
    source, target = tmp_path / "body", tmp_path / "lines"

    def body(models: int) -> None:
        asked = [
            {"custom_id": str(n), "params": {"model": f"m{n % models}"}} for n in range(2 * models)
        ]
        asked.append({"custom_id": "without", "params": {}})
        source.write_text(json.dumps({"requests": asked}))

    async def written() -> int:
        return await write_lines(source, target, 1000, Turns(), "t", lambda _: "")

    body(MAX_MODELS)
    assert asyncio.run(written()) == 2 * MAX_MODELS + 1
    body(MAX_MODELS + 1)
    with pytest.raises(ApiError, match=f"requests.{MAX_MODELS}.params.model: a batch names at"):
        asyncio.run(written())
