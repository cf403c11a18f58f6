"""The end of a batch, and the model of its requests."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from weft_gateway.runs.batch_input import _Checking
from weft_gateway.runs.batch_runner import BatchRunner
from weft_gateway.runs.batch_store import Api


@pytest.mark.parametrize(("over", "stop"), [(True, ""), (False, "batch_expired")])
def test_a_batch_whose_files_are_written_does_not_expire(over: bool, stop: str) -> None:
    batch = SimpleNamespace(id="b", expires_s=0)
    active: Any = SimpleNamespace(batch=batch, stop="", over=over, ending=over)
    source = SimpleNamespace(in_flight={})
    runner: Any = SimpleNamespace(
        active={"b": active}, sender=SimpleNamespace(sources={"b": source})
    )
    BatchRunner._end_some(runner)
    assert active.stop == stop


@pytest.mark.parametrize(
    ("models", "one"), [(["big", "big"], "big"), (["big", "small", "big"], "")]
)
def test_a_batch_of_messages_with_one_model_goes_to_its_replicas(
    models: list[str], one: str
) -> None:
    registry: Any = SimpleNamespace(resolved=lambda model: model)
    checking = _Checking(Api.ANTHROPIC, registry, None)
    for number, model in enumerate(models, 1):
        params = {"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}
        line = orjson.dumps({"custom_id": str(number), "params": params})
        checking.take(number, 0, line, "/v1/messages")
    assert checking.result().model == one
