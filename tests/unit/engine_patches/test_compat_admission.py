"""The waiting queue from which requests are brought forward, and what vLLM would admit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.engine


def test_a_queue_of_turns_does_what_vllms_own_does():
    from vllm.v1.core.sched.request_queue import FCFSRequestQueue
    from weft_engine.compat_admission import ReorderableQueue

    ours, theirs = ReorderableQueue("abcdef"), FCFSRequestQueue("abcdef")
    for queue in (ours, theirs):
        queue.add_request("g")
        queue.remove_request("c")
        queue.remove_requests(["a", "z"])
        queue.prepend_request("x")
        queue.prepend_requests(["y", "w"])
        assert queue.pop_request() == "w"
    assert list(ours) == list(theirs) == ["y", "x", "b", "d", "e", "f", "g"]
    assert (len(ours), bool(ours), ours.peek_request()) == (7, True, "y")
    ours.prepend_request("e")
    assert list(ours)[:2] == ["e", "y"]
    ours.remove_requests(list(ours))
    assert not ours
    with pytest.raises(IndexError):
        ours.peek_request()


def request(status: str = "WAITING", adapter: int = 0, **changes: Any) -> Any:
    from vllm.v1.request import RequestStatus

    known = {
        "status": RequestStatus[status],
        "num_stale_output_tokens": 0,
        "num_computed_tokens": 0,
        "drop_stale_output": False,
        "structured_output_request": None,
        "lora_request": SimpleNamespace(lora_int_id=adapter) if adapter else None,
    }
    return SimpleNamespace(**{**known, **changes})


@pytest.mark.parametrize(
    ("grammar", "ready"), [(None, False), (ValueError("no such"), False), (object(), True)]
)
def test_a_grammar_must_have_been_compiled(grammar, ready):
    from weft_engine.compat_admission import Readiness

    asked = request(
        "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR",
        structured_output_request=SimpleNamespace(grammar=grammar),
    )
    readiness = Readiness({"r": asked}, 0, set())
    assert readiness("r") is ready
    assert readiness.refused == (not ready)


def test_a_call_that_vllm_waits_for_is_not_ready():
    from weft_engine.compat_admission import Readiness

    found = {
        "waits": request(),
        "was put back": request("PREEMPTED"),
        "was loaded": request("WAITING", num_computed_tokens=64),
        "remote": request("WAITING_FOR_REMOTE_KVS"),
        "stream": request("WAITING_FOR_STREAMING_REQ"),
        "stale": request("PREEMPTED", num_stale_output_tokens=1),
    }
    readiness = Readiness(found, 0, set())
    assert [name for name in found if readiness(name)] == ["waits", "was put back"]
    assert readiness.refused == 4


def test_adapters_are_counted_with_those_that_run():
    from weft_engine.compat_admission import Readiness

    found = {f"a{n}": request(adapter=n) for n in (1, 2, 3)} | {"none": request()}
    readiness = Readiness(found, 2, {1})
    assert [name for name in found if readiness(name)] == ["a1", "a2", "none"]
    # The second one that fits counts as loaded from now on.
    assert readiness("a2")


def test_those_put_last_are_preempted_in_their_order():
    from weft_engine.compat_admission import AdmissionHooks

    hooks = AdmissionHooks.__new__(AdmissionHooks)
    first, *_, last = hooks.running = [SimpleHash(name) for name in "abcd"]
    assert hooks.put_last([first, last])
    assert "".join(r.name for r in hooks.running) == "bcda"
    assert not hooks.put_last([first, last])
    assert not hooks.put_last([first])
    assert hooks.put_last([last])
    assert "".join(r.name for r in hooks.running) == "bcad"


class SimpleHash:
    """A request that is hashed by identity, as vLLM's are."""

    def __init__(self, name: str) -> None:
        self.name = name
