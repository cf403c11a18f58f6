"""Programs of calls from clients without keys."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lineage import SYSTEM, Gateway, called, result, said, user
from weft_gateway.programs.lineage.rules import How

TASK = user("Please book me a flight to Seattle on the 20th of May.")
ASKS = said("To book your flight I need your user id. Could you please give it to me?")
CALLS = called("get_user", user_id="mia_li_3668", fields=["name", "email"])


@pytest.fixture
def g() -> Gateway:
    return Gateway()


def program(call: Any) -> str:
    return call.verdict.program


def test_conversation_is_one_thread(g):
    turns = [SYSTEM, TASK, ASKS, user("mia_li_3668"), CALLS, result('{"name": "Mia"}')]
    first = g.turn(*turns[:2], answer=ASKS)
    second = g.turn(*turns[:4], answer=CALLS)
    third = g.ask(*turns)
    assert first.verdict.how is How.NEW
    assert [second.verdict.how, third.verdict.how] == [How.EXTENDS] * 2
    assert {(c.verdict.program, c.verdict.thread) for c in (first, second, third)} == {
        (program(first), "main")
    }


def test_programs_are_separate_by_tenant(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    other = g.ask(SYSTEM, TASK, ASKS, user("mia"), tenant="u")
    assert program(other) != program(first)


def test_programs_with_the_same_task_are_separated_by_their_answers(g):
    answers = [said(f"This is answer number {n}, and no other.") for n in range(2)]
    first = [g.turn(SYSTEM, TASK, answer=answer) for answer in answers]
    second = [g.ask(SYSTEM, TASK, answer, user("Go on.")) for answer in answers]
    third = [
        g.ask(SYSTEM, TASK, answer, user("Go on."), said("Yes."), user("?")) for answer in answers
    ]
    assert program(first[0]) == program(second[0]) == program(third[0])
    assert program(second[1]) == program(third[1]) != program(second[0])
    assert first[1].verdict.owner == second[1].verdict.owner


def test_programs_with_the_same_answers_are_separated_where_they_differ(g):
    g.turn(SYSTEM, TASK, answer=ASKS)
    one = g.turn(SYSTEM, TASK, ASKS, user("I am Mia."), answer=said("Hello, Mia."))
    g.turn(SYSTEM, TASK, answer=ASKS)
    other = g.turn(SYSTEM, TASK, ASKS, user("I am Raj."), answer=said("Hello, Raj."))
    assert program(one) != program(other)
    turn = user("Go on.")
    more = g.ask(SYSTEM, TASK, ASKS, user("I am Raj."), said("Hello, Raj."), turn)
    assert program(more) == program(other)


def test_later_program_with_the_same_task_is_separate(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    g.turn(SYSTEM, TASK, ASKS, user("I am Mia."), answer=said("Hello."))
    again = g.ask(SYSTEM, TASK)
    assert again.verdict.how is How.NEW
    assert program(again) != program(first)


def test_retry_of_a_failed_call_joins_its_program(g):
    first = g.ask(SYSTEM, TASK)
    g.fail(first)
    again = g.turn(SYSTEM, TASK, answer=ASKS)
    assert (again.verdict.program, again.verdict.thread) == (program(first), "main")
    assert program(g.ask(SYSTEM, TASK, ASKS, user("Mia"))) == program(first)


def test_equal_first_calls_are_separate_programs(g):
    assert len({program(g.ask(SYSTEM, TASK)) for _ in range(6)}) == 6


def test_repeated_later_call_is_a_new_thread(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    deep = (SYSTEM, TASK, ASKS, user("I am Mia."))
    second = g.turn(*deep, answer=said("Hello."))
    again = g.ask(*deep)
    assert again.verdict.how is How.REPEATS
    assert program(again) == program(second) == program(first)
    assert again.verdict.thread != second.verdict.thread == again.verdict.parent


def test_call_from_an_earlier_point_forks(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    g.turn(SYSTEM, TASK, ASKS, user("I am Mia."), answer=said("Hello, Mia."))
    fork = g.ask(SYSTEM, TASK, ASKS, user("I am Raj."))
    assert fork.verdict.how is How.FORKS
    assert program(fork) == program(first)
    assert fork.verdict.parent == "main" != fork.verdict.thread


def test_each_choice_can_be_continued(g):
    first = g.ask(SYSTEM, TASK, n=2)
    g.answer(first, said("One way to see it."), said("Another way to see it."))
    for text in ("One way to see it.", "Another way to see it."):
        assert program(g.ask(SYSTEM, TASK, said(text), user("Go on."))) == program(first)


ORDER = (
    "Look up the sunset tours of all operators in Maui. Then write down what each of them costs."
)


def test_helper_with_text_of_the_model_is_a_thread_of_its_program(g):
    lead = g.turn(SYSTEM, TASK, answer=said(json.dumps({"to": "web", "order": ORDER})))
    helper = g.ask(user(f"You are a helper with a browser.\n{ORDER}"))
    assert helper.verdict.how is How.QUOTES
    assert (helper.verdict.program, helper.verdict.parent) == (program(lead), "main")


def test_call_that_quotes_several_programs_joins_them(g):
    notes = [
        f"Number {n} of the documents tells of rivers and bridges. It was written in 19{n}0 at sea."
        for n in range(3)
    ]
    maps = [g.turn(user(f"Sum up: {n}"), answer=said(note)) for n, note in enumerate(notes)]
    assert len({program(m) for m in maps}) == 3
    reduced = g.ask(user("Write one summary of these:\n" + "\n".join(notes)))
    assert program(reduced) in {program(m) for m in maps}
    assert len(reduced.verdict.joined) == 3
    owners = {g.store.root("t", m.verdict.owner) for m in maps}
    assert owners == {program(reduced)}


def test_text_of_two_programs_or_of_clients_is_no_evidence(g):
    both = said("The cheapest operator in the harbour is known as Daniels. Its tours begin at six.")
    g.turn(user("Who is cheap?"), answer=both)
    g.turn(user("Whose tours are early?"), answer=both)
    assert g.ask(user(f"Is this right? {both['content']}")).verdict.how is How.NEW
    g.turn(user(f"Say again: {ORDER}"), answer=said(ORDER))
    assert g.ask(user(f"Do what follows. {ORDER}")).verdict.how is How.NEW


def test_truncated_history_is_found_by_its_answers(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    g.turn(SYSTEM, TASK, ASKS, user("I am Mia."), answer=said(ORDER))
    cut = g.ask(SYSTEM, user("(what came before was left out)"), said(ORDER), user("Go on."))
    assert program(cut) == program(first)


def test_growing_text_is_one_thread_with_or_without_answers(g):
    text = "Question: " + "what is the tallest of all these mountains, and who says so " * 9
    first = g.ask(prompt=f"{text}\nThought:")
    g.answer_body(first, {"choices": [{"text": " I must look.\n"}]})
    second = g.ask(prompt=f"{text}\nThought: I must look.\nObservation: 8848\nThought:")
    dropped = g.ask(
        prompt=f"{text}\nThought: I must look.\nObservation: 8848\nThought: \n<out>1</out>"
    )
    assert [c.verdict.how for c in (second, dropped)] == [How.EXTENDS] * 2
    assert program(first) == program(second) == program(dropped)


def test_unseen_answer_does_not_split_a_thread(g):
    first = g.ask(SYSTEM, TASK)
    second = g.ask(SYSTEM, TASK, ASKS, user("I am Mia."))
    third = g.ask(SYSTEM, TASK, ASKS, user("I am Mia."), said("Hello."), user("Hm."))
    assert program(first) == program(second) == program(third)


def test_edited_answer_does_not_split_a_thread(g):
    first = g.turn(SYSTEM, TASK, answer=ASKS)
    assert program(g.ask(SYSTEM, TASK, said("Your id?"), user("mia"))) == program(first)


def test_empty_calls_are_separate_programs(g):
    calls = [g.ask(prompt="") for _ in range(3)]
    assert len({program(c) for c in calls}) == 3


def rewritten(messages: list[dict[str, Any]], draw: Any) -> list[dict[str, Any]]:
    """Return the messages in another client's format."""
    made = []
    for message in messages:
        message = dict(message)
        if isinstance(message.get("content"), str):
            text = message["content"]
            if message["role"] == "assistant" and draw(st.booleans()):
                text = f"<think>So be it.</think>\n{text}"
            cut = draw(st.integers(0, len(text)))
            parts = [{"type": "text", "text": t} for t in (text[:cut], text[cut:])]
            message["content"] = draw(st.sampled_from([text, f"{text}\n", parts]))
        if message.get("tool_calls"):
            call = json.loads(json.dumps(message["tool_calls"][0]))
            arguments = json.loads(call["function"]["arguments"])
            turned = dict(draw(st.permutations(list(arguments.items()))))
            call["function"]["arguments"] = json.dumps(turned, indent=draw(st.integers(0, 2)))
            call["id"] = draw(st.text(max_size=5))
            message["tool_calls"] = [call]
        if draw(st.booleans()):
            message["reasoning_content"] = "Hm."
        made.append(dict(draw(st.permutations(list(message.items())))))
    return made


@settings(deadline=None)
@given(st.data())
def test_message_format_does_not_change_the_program(data):
    g = Gateway()
    turns = [SYSTEM, TASK, CALLS, result('{"name": "Mia"}'), ASKS, user("I am Mia.")]
    first = g.turn(*rewritten(turns[:2], data.draw), answer=CALLS)
    other = g.turn(SYSTEM, TASK, answer=said("Another program's answer."))
    second = g.turn(*rewritten(turns[:4], data.draw), answer=ASKS)
    third = g.ask(*rewritten(turns, data.draw))
    assert program(first) == program(second) == program(third)
    g.ask(SYSTEM, TASK, said("Another program's answer."), user("Go on."))
    assert g.store.root("t", other.verdict.owner) != program(first)


@settings(deadline=None)
@given(
    st.lists(st.text(min_size=1).filter(str.strip), min_size=2, max_size=6, unique_by=str.strip),
    st.randoms(use_true_random=False),
)
def test_programs_with_different_answers_never_merge(answers, rng):
    g = Gateway()
    answers = [a for a in answers if "</think>" not in a]
    calls = [g.turn(SYSTEM, TASK, answer=said(a)) for a in answers]
    turns = {n: [SYSTEM, TASK, said(a)] for n, a in enumerate(answers)}
    order = list(turns)
    for _ in range(3):
        rng.shuffle(order)
        last = {}
        for n in order:
            turns[n] += [user("Go on.")]
            last[n] = program(g.turn(*turns[n], answer=said("Yes.")))
            turns[n] += [said("Yes.")]
    assert len(set(last.values())) == len(answers)
    assert len({g.store.root("t", c.verdict.owner) for c in calls}) == len(answers)


CODE = said(
    "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a - b\n\n\n"
    "def neg(a):\n    return -a\n\n\nprint(add(1, neg(2)))"
)


def file(text: str) -> Any:
    """The changing part of a coding assistant's prompt, which stands before the history."""
    return user(f"Here are the files:\n{text}")


def test_an_answer_of_code_alone_that_comes_back_word_for_word_is_evidence(g):
    """An assistant that writes the files anew in front of each prompt: nothing goes on from
    anything but the answer, which has no line of 24 bytes."""
    first = g.turn(SYSTEM, file("empty"), user("Write add and sub."), answer=CODE)
    history = [user("Write add and sub."), CODE, user("I committed it."), said("Ok.")]
    second = g.ask(SYSTEM, *history, file("add, sub"), user("Now mul."))
    assert program(second) == program(first)
    other = g.ask(SYSTEM, file("empty"), user("Write a parser."), said("Ok."), user("Go."))
    assert program(other) != program(first)


def test_lines_of_an_answer_of_code_are_evidence_only_in_a_message_of_the_model(g):
    first = g.turn(SYSTEM, file("empty"), user("Write add and sub."), answer=CODE)
    cut = "\n".join(CODE["content"].splitlines()[:10])
    mine = g.ask(SYSTEM, user("Condensed."), said(cut + "\n..."), file("x"), user("Now mul."))
    assert program(mine) == program(first)
    # The same lines in a file of the client prove nothing.
    other = g.ask(SYSTEM, file(CODE["content"]), user("Explain."), said("Ok."), user("Go."))
    assert program(other) != program(first)


def test_an_answer_is_evidence_where_other_programs_have_all_its_lines(g):
    lines = ["import os", "import sys", "import json", "import time", "import re", "import ast"]
    answers = [said("\n".join(each)) for each in (lines, lines[::-1], sorted(lines))]
    first = [g.turn(SYSTEM, file("empty"), user("Write it."), answer=each) for each in answers]
    programs = {program(each) for each in first}
    assert len(programs) == len(answers)
    for answer, begun in zip(answers, first, strict=True):
        more = [user("Write it."), answer, user("I committed it."), said("Ok.")]
        assert program(g.ask(SYSTEM, *more, file("new"), user("Go on."))) == program(begun)


def test_code_of_two_programs_is_evidence_for_neither(g):
    for name in ("add", "sum"):
        g.turn(SYSTEM, file(name), user(f"Write {name}, in two functions."), answer=CODE)
    third = g.ask(SYSTEM, user("Write it."), CODE, file("add"), user("Now mul."))
    assert third.verdict.how is How.NEW


def test_examples_that_a_client_wrote_as_answers_are_no_evidence(g):
    """Few-shot examples are in every prompt, so a model that repeats one gives no evidence."""
    shots = [user("Example"), CODE]
    g.turn(SYSTEM, *shots, user("Write add and sub."), answer=CODE)
    other = g.ask(SYSTEM, user("Another"), CODE, user("Write a parser."))
    assert other.verdict.how is How.NEW
