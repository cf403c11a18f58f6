"""The calls of a run, as the sender sees them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
import pytest
from weft_gateway.calls.client import Disconnect
from weft_gateway.engine.errors import ClientGone
from weft_gateway.engine.pool import Timeouts
from weft_gateway.engine.registry import Registry, Replica
from weft_gateway.errors import ApiError
from weft_gateway.runs.batch_calls import Answered, Request
from weft_gateway.runs.batch_results import Answer
from weft_gateway.runs.flow_calls import RunCalls
from weft_gateway.runs.flow_wire import Ask, CallEnded

GOOD = Answered(Answer(200, b'{"a":1}'), None)


def replicas() -> list[Replica]:
    urls = {"r0": "http://127.0.0.1:1", "r1": "http://127.0.0.1:2"}
    found = list(Registry(urls, Timeouts(1, 1, 1, 1)))
    found[0].learn([{"id": "small"}])
    found[1].learn([{"id": "small"}, {"id": "large"}])
    return found


class Calls(RunCalls):
    """Calls with fixed answers."""

    def __init__(self, *answers: Answered) -> None:
        self.replies: list[CallEnded] = []
        self.requests: list[Request] = []
        self.left = list(answers)

        async def submit(request: Request, client: Disconnect) -> Answered:
            self.requests.append(request)
            if client.gone:
                raise ClientGone
            return self.left.pop(0)

        super().__init__("t", "run_1", submit, self.replies.append)

    def add(
        self, number: int, row: int = 0, model: str = "small", attempts: int = 3, group: int = 0
    ) -> None:
        self.ask(Ask(number, row, model, attempts, b"{}", group))

    def sent(self, number: int) -> None:
        serve = cast(Callable[..., Awaitable[int]], self.serve)
        anyio.run(serve, number, "r0", Disconnect(cast(Any, None)))


def test_a_row_stays_on_its_replica() -> None:
    first, second = both = replicas()
    calls = Calls()
    for number, row in enumerate((0, 1, 0, 1, 2)):
        calls.add(number, row)
    order = [calls.take(one, both, (), 0.0) for one in (first, second, second, first, second)]
    assert order == [0, 1, 3, 2, 4]
    # A replica without such a row takes over.
    calls.add(5, row=0)
    assert calls.take(second, both, (), 0.0) == 5
    assert calls.take(second, both, (), 0.0) is None


def test_rows_that_begin_alike_go_to_one_replica() -> None:
    first, second = both = replicas()
    calls = Calls()
    for number, group in enumerate((7, 7, 8, 8, 7, 0)):
        calls.add(number, number, group=group)
    turns = (first, second, second, first, second, second, first)
    # A new row without a group comes before the rows of another replica.
    assert [calls.take(one, both, (), 0.0) for one in turns] == [0, 2, 3, 1, 5, 4, None]
    # A row that has begun stays where it is, also if its group has moved.
    calls.add(6, row=0, group=7)
    calls.add(7, row=9, group=7)
    assert calls.take(second, both, (), 0.0) == 7
    assert calls.take(first, both, (), 0.0) == 6


def test_a_call_waits_for_its_replica_if_that_has_room() -> None:
    first, second = both = replicas()
    calls = Calls()
    calls.add(0, row=0, group=7)
    assert calls.take(first, both, both, 0.0) == 0
    calls.add(1, row=0)
    calls.add(2, row=1, group=7)
    assert calls.take(second, both, both, 0.0) is None
    assert [calls.take(first, both, both, 0.0) for _ in "ab"] == [1, 2]
    # The replica of the row does not serve the other model.
    calls.add(3, row=0, model="large")
    assert calls.take(first, both, both, 0.0) is None
    assert calls.take(second, both, both, 0.0) == 3


def test_a_model_runs_where_it_is_served() -> None:
    first, second = both = replicas()
    calls = Calls()
    calls.add(0, model="large")
    calls.add(1, model="")
    assert calls.take(first, both, (), 0.0) == 1
    assert calls.take(first, both, (), 0.0) is None
    assert calls.take(second, both, (), 0.0) == 0


def test_failures_that_may_pass_are_repeated() -> None:
    first, *_ = both = replicas()
    refused = ApiError(503, "no_replica", "none", retry_after_s=2)
    failed = Answered(Answer(500, b'{"error":{"message":"broken"}}'), None)
    calls = Calls(Answered(Answer(503, b""), refused), failed, failed)
    calls.add(0, attempts=2)
    assert calls.take(first, both, (), 0.0) == 0
    for _ in range(3):
        calls.sent(0)
        if not calls.replies:
            assert calls.take(first, both, (), 0.0) is None
            assert calls.take(first, both, (), float("inf")) == 0
    assert calls.replies == [CallEnded(0, b"", "http_500", "broken", 2)]
    assert {(one.program, one.thread, one.plan.replica) for one in calls.requests} == {
        ("run_1", "row-0", "r0")
    }


def test_calls_wait_for_a_model_that_goes_away() -> None:
    first, *_ = both = replicas()
    missing = Answered(Answer(404, b'{"error":{"message":"The model `m` does not exist."}}'), None)
    calls = Calls(missing, missing, missing, GOOD)
    calls.add(0, attempts=1)
    assert calls.take(first, both, (), 0.0) == 0
    for _ in range(3):
        calls.sent(0)
        assert not calls.replies
        assert calls.take(first, both, (), float("inf")) == 0
    calls.sent(0)
    assert calls.replies == [CallEnded(0, b'{"a":1}')]


def test_an_answer_that_is_no_json_is_repeated() -> None:
    first, *_ = both = replicas()
    calls = Calls(Answered(Answer(200, b'{"choices":[{'), None), GOOD)
    calls.add(0, attempts=2)
    assert calls.take(first, both, (), 0.0) == 0
    calls.sent(0)
    assert calls.take(first, both, (), float("inf")) == 0
    calls.sent(0)
    assert calls.replies == [CallEnded(0, b'{"a":1}')]


def test_a_wrong_request_is_not_repeated() -> None:
    calls = Calls(Answered(Answer(400, b'{"error":{"message":"too long"}}'), None), GOOD)
    first, *_ = both = replicas()
    calls.add(0)
    calls.add(1)
    calls.take(first, both, (), 0.0)
    calls.take(first, both, (), 0.0)
    calls.sent(0)
    calls.sent(1)
    assert calls.replies == [
        CallEnded(0, b"", "http_400", "too long", 1),
        CallEnded(1, b'{"a":1}'),
    ]


@pytest.mark.parametrize("sent", [False, True])
def test_a_dropped_call_has_no_answer(sent: bool) -> None:
    first, *_ = both = replicas()
    calls = Calls(GOOD)
    calls.add(0)
    if sent:
        assert calls.take(first, both, (), 0.0) == 0
        client = calls.in_flight[0] = Disconnect(cast(Any, None))
        calls.drop(0)
        assert client.gone
    else:
        calls.drop(0)
    assert calls.take(first, both, (), 0.0) is None
    assert calls.replies == []
