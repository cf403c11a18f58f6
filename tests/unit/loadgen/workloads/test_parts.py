"""Token ids of parts."""

from __future__ import annotations

from weft_bench.workloads.parts import tag_spans, token_ids
from weft_bench.workloads.schema import Part
from weft_bench.workloads.traces.coding import FIRST_ID, IDS


def test_ids_depend_on_names_and_fit_any_vocabulary():
    one = token_ids((Part("a", 40), Part("b", 10)))
    assert len(one) == 50
    assert one == token_ids([Part("a", 40), Part("b", 10)])
    assert all(FIRST_ID <= token < FIRST_ID + IDS for token in one)
    assert one[:40] != token_ids((Part("c", 40),))


def test_shorter_part_is_a_prefix_of_a_longer_one():
    assert token_ids((Part("a", 90),))[:40] == token_ids((Part("a", 40),))


def test_part_has_the_highest_tag_of_all_later_parts():
    kinds = ("system", "user", "assistant", "user", "assistant", "tool", "assistant", "tool")
    parts = [Part(str(number), 10, kind) for number, kind in enumerate(kinds)]
    assert tag_spans(parts) == ((10, "SYSTEM_PROMPT"), (40, "USER_QUERY"), (80, "TOOL_OUTPUT"))
    assert tag_spans(parts[:7])[-1] == (70, "RESPONSE")


def test_kinds_become_tags_if_all_are_known():
    parts = [Part("a", 4, "system"), Part("b", 2, "system"), Part("c", 3, "tool"), Part("d", 1, "")]
    assert tag_spans(parts[:3]) == ((6, "SYSTEM_PROMPT"), (9, "TOOL_OUTPUT"))
    assert tag_spans(parts) == ()
    assert tag_spans(()) == ()
