"""What the load client sends."""

from __future__ import annotations

import json
from itertools import islice

from loadgen.load_client import make_request, requests_of

REQUEST = make_request("http://localhost:1", "m", stream=False)


def prompts(distinct: bool) -> list[str]:
    sent = islice(requests_of(REQUEST, distinct), 5)
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in sent]
    return [body["messages"][0]["content"] for body in bodies]


def test_requests_are_the_same_in_every_byte_unless_they_are_to_differ():
    assert len(set(prompts(distinct=False))) == 1
    found = prompts(distinct=True)
    assert len(set(found)) == 5
    # In their end alone, so that the length that the head tells is right.
    assert {len(prompt) for prompt in found} == {len(prompts(distinct=False)[0])}
    assert {prompt[:-16] for prompt in found} == {prompts(distinct=False)[0][:-16]}


def test_no_two_runs_send_the_same():
    assert not set(prompts(distinct=True)) & set(prompts(distinct=True))
