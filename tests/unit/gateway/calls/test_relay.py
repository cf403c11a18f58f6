"""Relaying of answers to the client, without a socket."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from weft_engine.wire import REPORT_COMMENT, CallReport
from weft_gateway.calls import relay
from weft_gateway.calls.call import Call, Hooks, Tap
from weft_gateway.calls.relay import Step, StreamRelay
from weft_gateway.engine.endpoints import BY_PATH
from weft_gateway.engine.errors import ReplicaBadAnswer, ReplicaClosed, ReplicaWrongCall
from weft_gateway.model import Outcome

ID = "call-0123456789ab-1"
WORD = b'data: {"choices":[]}\n\n'
DONE = b"data: [DONE]\n\n"
REPORT = REPORT_COMMENT + CallReport(ID, service_s=1.0).to_json().encode() + b"\n\n"


def call(path: str = "/v1/chat/completions", status: int = 200) -> Call:
    made = Call(ID, BY_PATH[path], [], b"req", 0.0, Hooks())
    made.status, made.replica = status, "r0"
    return made


def streamed(of: Call, *taps: Tap, record: int = 0) -> StreamRelay:
    def head(begun: Call) -> Sequence[Tap]:
        assert begun is of
        if record:
            of.record(record)
        return taps

    return StreamRelay(of, head)


def test_report_before_the_end_lets_the_call_close() -> None:
    one = call()
    stream = streamed(one)
    assert stream.feed(WORD, False) == WORD
    assert stream.step is None
    assert stream.feed(DONE, False) == b""  # Held until the report arrives.
    assert stream.step is Step.END_SOON
    assert stream.feed(REPORT, False) == DONE
    assert stream.step is Step.CLOSE
    assert (one.outcome, one.report) == (Outcome.OK, CallReport(ID, service_s=1.0))
    assert stream.feed(b"", True) == b""
    assert stream.step is Step.OVER


def test_stream_without_a_report_is_over_at_its_end() -> None:
    one = call()
    stream = streamed(one)
    assert stream.feed(WORD + DONE, True) == WORD + DONE
    assert (stream.step, one.outcome, one.report) == (Step.OVER, Outcome.OK, None)


def test_truncated_stream_passes_its_bytes_and_an_error() -> None:
    one = call()
    stream = streamed(one)
    stream.feed(WORD, False)
    with pytest.raises(ReplicaClosed) as early:
        stream.feed(WORD, True)
    last, _ = stream.broken(early.value)
    assert last.startswith(WORD)
    assert b'"code":"replica_closed"' in last
    assert (stream.step, one.outcome) == (Step.OVER, Outcome.ERROR)


def test_break_after_the_terminal_frame_is_a_success() -> None:
    one = call()
    stream = streamed(one)
    stream.feed(WORD + DONE, False)
    assert stream.broken(ReplicaClosed("gone"))[0] == DONE
    assert one.outcome is Outcome.OK


def test_report_of_another_call_fails_the_answer() -> None:
    one = call()
    stream = streamed(one)
    other = REPORT.replace(ID.encode(), b"call-0123456789ab-2")
    with pytest.raises(ReplicaWrongCall) as wrong:
        stream.feed(WORD + DONE + other, False)
    assert DONE not in stream.broken(wrong.value)[0]
    assert (one.outcome, one.disowned) == (Outcome.ERROR, True)


def test_taps_change_the_clients_bytes_but_not_the_record() -> None:
    one = call()
    stream = streamed(one, lambda data: data + b": more\n\n", record=100)
    assert stream.feed(WORD, False) == WORD + b": more\n\n"
    assert stream.feed(DONE, True).startswith(DONE)
    assert one.answer() == WORD + DONE


def test_stream_over_the_limit_is_not_recorded() -> None:
    one = call()
    stream = streamed(one, record=len(WORD))
    for _ in range(3):
        stream.feed(WORD, False)
    assert one.answer() == b""


@pytest.mark.parametrize(
    ("status", "kind", "is_stream"),
    [(200, b"text/event-stream", True), (200, b"application/json", False), (500, b"", False)],
)
def test_head_distinguishes_streams_from_whole_answers(
    status: int, kind: bytes, is_stream: bool
) -> None:
    one = call()
    headers, found = relay.start(one, status, [(b"content-type", kind), (b"set-cookie", b"a=b")])
    assert (found, one.is_stream, one.status) == (is_stream, is_stream, status)
    assert (b"x-weft-replica", b"r0") in headers
    assert b"set-cookie" not in dict(headers)


@pytest.mark.parametrize(("status", "kind"), [(302, b"application/json"), (200, b"text/html")])
def test_answers_that_no_engine_sends_are_refused(status: int, kind: bytes) -> None:
    with pytest.raises(ReplicaBadAnswer):
        relay.start(call(), status, [(b"content-type", kind)])


def test_empty_answer_is_refused_but_empty_error_passes() -> None:
    with pytest.raises(ReplicaBadAnswer):
        relay.check_body(200, b"")
    relay.check_body(500, b"")


def test_an_answer_names_the_one_that_its_client_has_continued() -> None:
    one = call("/v1/responses", 200)
    one.continued = "resp_1"
    body = relay.whole(one, b'{"id": "resp_2", "previous_response_id": null, "n": 1e2}')
    assert body == b'{"id":"resp_2","previous_response_id":"resp_1","n":1e2}'
    assert one.body_out == body
    assert relay.whole(one, b"no json") == b"no json"
