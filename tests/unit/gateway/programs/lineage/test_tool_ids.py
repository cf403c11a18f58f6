"""Random ids of tool calls, of every API."""

from __future__ import annotations

import json
import secrets
import string
import uuid
from random import Random

import pytest
from support.lineage import Gateway, run
from weft_gateway.overlap.answers import parse_answer
from weft_gateway.programs.lineage.rules import How
from weft_gateway.programs.lineage.tool_ids import (
    MAX_IDS,
    answered_ids,
    asked_ids,
    fingerprint,
    is_random,
)

DRAWN = "call_8Xk2mQ9vT4hZ7pLw3RbN5cJd"
OTHER = "call_1Yt6nW0sB8gK5fHx2QvM9eAz"


@pytest.mark.parametrize(
    "name",
    [
        DRAWN,
        "chatcmpl-tool-4c1f0b7a9d3e4f52a6b8c0d1e2f3a4b5",
        "chatcmpl-tool-9b1e7c3a5d2f4086",
        "toolu_01A09q90qw90lq917835lq9",
        "fc_68acf3e21d4c81929b1f5a7c3e0d9b42",
        "call_7d1a2f60-93b4-4c0e-8a55-2f7e6b1c9d03",
    ],
)
def test_ids_of_engines_are_random(name):
    assert is_random(name)


@pytest.mark.parametrize(
    "name",
    [
        "", "1", "call_0", "call_1", "call_12", "call_abc123", "toolu_1", "functions.search:0",
        "functions.search_the_whole_documentation:12", "call_00000000000000000001",
        "call_1732190000000000000", "call_getTheWeatherInTheCityOf1", "step12_tool3_call4",
        "call_aaaaaaaaaaaaaaaaaaaaaaaa", "call_a1a1a1a1a1a1a1a1a1a1a1a1", "x" * 300 + DRAWN,
    ],
)  # fmt: skip
def test_counters_and_names_are_not_random(name):
    assert not is_random(name)


def test_few_random_ids_are_missed():
    rng = Random(0)
    letters = string.ascii_letters + string.digits
    drawn = ["".join(rng.choices(letters, k=24)) for _ in range(500)]
    drawn += [f"{rng.getrandbits(128):032x}" for _ in range(500)]
    drawn += [str(uuid.UUID(int=rng.getrandbits(128))) for _ in range(500)]
    assert sum(map(is_random, drawn)) > 0.96 * len(drawn)


def call(name):
    return {"id": name, "type": "function", "function": {"name": "act", "arguments": "{}"}}


def acts(*names):
    return {"role": "assistant", "content": None, "tool_calls": [call(name) for name in names]}


def returned(name, text="ok"):
    return {"role": "tool", "tool_call_id": name, "content": text}


USE = {"type": "tool_use", "id": DRAWN, "name": "act", "input": {}}
ITEM = {"type": "function_call", "call_id": DRAWN, "name": "act", "arguments": "{}"}


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        ({"choices": [{"message": acts(DRAWN)}]}, {"messages": [returned(DRAWN)]}),
        (
            {"content": [USE]},
            {"messages": [{"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": DRAWN}
            ]}]},
        ),
        ({"output": [ITEM]}, {"input": [{"type": "function_call_output", "call_id": DRAWN}]}),
    ],
)  # fmt: skip
def test_id_of_an_answer_is_found_in_the_request_of_every_api(answer, body):
    assert answered_ids(answer) == asked_ids(body) == [fingerprint(DRAWN)]


def test_last_ids_of_a_request_count():
    names = [secrets.token_hex(16) + "0a1b2c3d4e" for _ in range(3 * MAX_IDS)]
    found = asked_ids({"messages": [returned(name) for name in names]})
    assert found == [fingerprint(name) for name in reversed(names)][:MAX_IDS]


@pytest.mark.parametrize(
    "body",
    [{}, {"messages": "x"}, {"messages": [None, 1, {"content": [None, {"type": "tool_use"}]}]},
     {"messages": [{"tool_calls": [{"id": 5}, 3], "tool_call_id": ["a"]}]}, {"input": "x"}],
)  # fmt: skip
def test_malformed_values_have_no_ids(body):
    assert asked_ids(body) == []
    assert answered_ids({"choices": [body], "output": 3}) == []


def system(time):
    return {"role": "system", "content": f"It is {time} o'clock."}


USER = {"role": "user", "content": "go on"}


def agents(*names: tuple[str, str]) -> list[str]:
    """Run two agents whose prompts change with every call. Return the program of each call.

    names: ids of each agent's two tool calls.
    """
    gateway = Gateway()
    found, histories = [], [[USER], [{**USER, "content": "go"}]]
    for turn in range(3):
        for number, history in enumerate(histories):
            asked = gateway.ask(system(10 * turn + number), *history)
            found.append(asked.verdict.program)
            if turn < 2:
                answer = acts(names[number][turn])
                gateway.answer(asked, answer)
                history += [answer, returned(names[number][turn])]
    return found


def test_agent_with_changing_prompts_is_found_by_random_ids():
    drawn = [[secrets.token_hex(16) + "a1b2c3" for _ in range(2)] for _ in range(2)]
    found = agents(*drawn)
    assert found == [found[0], found[1]] * 3
    assert found[0] != found[1]


@pytest.mark.parametrize("names", [("call_0", "call_1"), ("1", "2"), ("functions.act:0",) * 2])
def test_counter_ids_do_not_join_calls(names):
    assert len(set(agents(names, names))) == 6


def test_id_of_two_programs_joins_no_calls():
    assert len(set(agents((DRAWN, DRAWN), (DRAWN, DRAWN)))) > 2


def test_second_call_with_an_id_forks_a_thread():
    gateway = Gateway()
    first = gateway.turn(system(1), USER, answer=acts(DRAWN))
    second = gateway.ask(system(2), USER, acts(DRAWN), returned(DRAWN))
    third = gateway.ask(system(3), USER, acts(DRAWN), returned(DRAWN))
    assert (second.verdict.how, second.verdict.thread) == (How.EXTENDS, first.verdict.thread)
    assert (third.verdict.how, third.verdict.parent) == (How.FORKS, first.verdict.thread)
    assert second.verdict.program == third.verdict.program == first.verdict.program


def test_ids_of_streams_are_found_within_the_tenant():
    gateway = Gateway()
    first = gateway.ask(system(1), USER)
    parts = [{"index": 0, **call(DRAWN)}], [{"index": 0, "function": {"arguments": " "}}]
    events = [{"choices": [{"delta": {"tool_calls": part}}]} for part in parts]
    raw = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    run(gateway.lineage.answered(first, parse_answer(raw, True), gateway.now))
    other = gateway.ask(system(2), USER, acts(DRAWN), returned(DRAWN), tenant="u")
    own = gateway.ask(system(2), USER, acts(DRAWN), returned(DRAWN))
    assert own.verdict.program == first.verdict.program != other.verdict.program
