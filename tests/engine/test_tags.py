"""Tagged eviction on vLLM's real KV-cache manager: Figures 5 and 7 of Sutradhara, and pins."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from weft_engine.engine_link import Command
from weft_engine.kv_command import KvCommand
from weft_engine.tags import Tag

pytestmark = pytest.mark.engine

# Four blocks of prompt in the first iteration, two of tool output in the second.
QUERY, TOOLS = 64, 32


def prompt(program: int, tools: bool) -> list[int]:
    start = 100 * program
    return list(range(start, start + QUERY + (TOOLS if tools else 0)))


def iterate(e: Any, program: int, second: bool) -> None:
    """One call of a program, alone on the engine."""
    tags = [QUERY, int(Tag.USER_QUERY), *([QUERY + TOOLS, int(Tag.TOOL_OUTPUT)] if second else [])]
    e.add(
        f"R{program}{2 if second else 1}", program=f"R{program}", tokens=20,
        prompt=prompt(program, second), extra={"weft_tags": tags},
    )  # fmt: skip
    e.run()


def cached(e: Any) -> dict[str, int]:
    return {report.call: report.cached_tokens for report in e.reports}


@pytest.mark.parametrize(
    ("tags", "hits"),
    [
        # Each second iteration pushes out what the next one needs: the cascade of Figure 5.
        (False, {"R22": 64, "R12": 32, "R32": 16}),
        # Answers and tool outputs go first, and the first iterations' contexts stay: Figure 7.
        (True, {"R22": 64, "R12": 64, "R32": 64}),
    ],
)
def test_figures_5_and_7(engine, tags, hits):
    """Three programs of two iterations, and a cache that just holds three first iterations."""
    e = engine(policy="fcfs", blocks=17, tags=tags)
    for program in (1, 2, 3):
        iterate(e, program, second=False)
    for program in (2, 1, 3):
        iterate(e, program, second=True)
    found = {report.call: report.cached_tokens for report in e.reports}
    assert {name: found[name] for name in hits} == hits
    assert all(len(tokens) == 20 for tokens in e.tokens.values())


def test_hints_are_reported_as_applied_or_ignored(engine):
    e = engine(policy="plas")
    e.add("good", extra={"weft_tags": [3, 4], "weft_retain": 5.0, "weft_priority": 99})
    e.add("bad", extra={"weft_tags": [9, 77], "weft_retain": "x", "weft_priority": 1.5})
    e.add("flat", extra={"weft_tags": "SYSTEM"})
    e.run()
    hints = {r.call: dict(h.split("=", 1) for h in r.hints) for r in e.reports}
    assert hints["good"] == {
        "weft_tags": "applied", "weft_retain": "applied", "weft_priority": "applied, clamped"
    }  # fmt: skip
    assert hints["bad"].keys() == {"weft_tags", "weft_retain", "weft_priority"}
    assert all(said.startswith("ignored: ") for said in hints["bad"].values())
    assert hints["flat"] == {"weft_tags": "ignored: malformed"}


def test_without_tags_hints_about_the_cache_are_reported_as_ignored(engine):
    e = engine(policy="plas", tags=False)
    e.add("call", extra={"weft_tags": [3, 4], "weft_retain": 5.0})
    e.run()
    assert [hint.partition("=")[2].partition(":")[0] for hint in e.reports[0].hints] == [
        "ignored"
    ] * 2


def test_a_pin_keeps_a_context_that_would_have_gone(engine):
    for pinned in (False, True):
        e = engine(policy="fcfs", blocks=13)
        e.add("first", program="P", prompt=prompt(1, tools=False), tokens=2)
        e.run()
        if pinned:
            e.scheduler.obey(Command(kv=KvCommand("retain", "P", ttl_s=1000.0)))
        for program, tools in ((2, False), (3, True)):
            e.add(f"other{program}", prompt=prompt(program, tools), tokens=2)
            e.run()
        e.add("again", program="P", prompt=prompt(1, tools=False), tokens=2)
        e.run()
        # The last block of a prompt is always computed.
        assert (cached(e)["again"] == 48) == pinned


def pinned_blocks(e: Any) -> int:
    return e.scheduler.state()["kv"]["pinned_blocks"]


@pytest.mark.parametrize("asked", ["by the call", "by command"])
@pytest.mark.parametrize(
    ("tokens", "blocks"), [(0, 0), (15, 0), (16, 1), (40, 2), (48, 3), (9999, 6), (None, 6)]
)
def test_a_pin_of_the_first_tokens_is_of_the_blocks_that_end_within_them(
    engine, asked, tokens, blocks
):
    """Blocks of 16 tokens. Pinned blocks are still cached after other contexts have filled the
    cache."""
    e = engine(policy="fcfs", blocks=13, pin_share=1.0)
    extra = {"weft_retain": 500.0} | ({} if tokens is None else {"weft_retain_tokens": tokens})
    context = prompt(1, tools=True)
    e.add(
        "first",
        program="P",
        prompt=context,
        tokens=2,
        extra=extra if asked == "by the call" else {},
    )
    e.run()
    if asked == "by command":
        e.scheduler.obey(Command(kv=KvCommand("retain", "P", ttl_s=500.0, tokens=tokens)))
    assert pinned_blocks(e) == blocks
    assert e.scheduler.violations() == []
    for program in (2, 3):
        # As large as the unpinned part, so that all of it is evicted.
        length = (13 - 1 - blocks) * 16 - 2
        others = [1000 * program + n for n in range(length)]
        e.add(f"other{program}", prompt=others, tokens=2)
        e.run()
    e.add("again", program="Q", prompt=context, tokens=1)
    e.run()
    # The last block of a prompt is always computed.
    assert cached(e)["again"] == 16 * min(blocks, 5)


def test_the_latest_hint_sets_the_reach_of_a_pin(engine):
    e = engine(policy="fcfs", blocks=20, pin_share=1.0)
    context = prompt(1, tools=True)
    for name, extra, blocks in (
        ("a", {"weft_retain": 50.0, "weft_retain_tokens": 80}, 5),
        ("b", {"weft_retain": 50.0, "weft_retain_tokens": 32}, 2),
        ("c", {}, 2),
        # Each call has computed the last block again, so there are four of it.
        ("d", {"weft_retain": 50.0}, 9),
        ("e", {"weft_retain": 50.0, "weft_retain_tokens": 64}, 4),
    ):
        e.add(name, program="P", prompt=context, tokens=2, extra=extra)
        e.run()
        assert pinned_blocks(e) == blocks, name
        assert e.scheduler.violations() == []
    hints = {report.call: report.hints for report in e.reports}
    assert hints["a"] == ("weft_retain=applied to the first 80 tokens",)
    e.now += 60.0
    e.add("f", program="Q", tokens=1)
    e.run()
    assert pinned_blocks(e) == 0


def test_a_cache_full_of_pins_never_blocks_a_call(engine):
    e = engine(policy="plas", blocks=12, pin_share=1.0)
    for program in range(1, 6):
        e.add(
            f"c{program}", program=f"P{program}", prompt=prompt(program, tools=True), tokens=20,
            extra={"weft_retain": 3600.0},
        )  # fmt: skip
        e.run()
        state = e.scheduler.state()["kv"]
        assert 0 < state["pinned_blocks"] <= state["pinned_blocks_limit"]
    assert all(len(tokens) == 20 for tokens in e.tokens.values())


def test_pins_expire_and_an_emptied_cache_knows_nothing(engine):
    e = engine(policy="plas", blocks=40)
    e.add("c", program="P", prompt=prompt(1, tools=False), tokens=2, extra={"weft_retain": 10.0})
    e.run()
    assert e.scheduler.state()["kv"]["pins"] == 1
    e.now += 11.0
    e.add("d", program="Q", tokens=1)
    e.run()
    assert e.scheduler.state()["kv"]["pins"] == 0
    assert e.scheduler.state()["kv"]["blocks_by_tag"]["NONE"] > 0
    e.scheduler.obey(Command(reset_cache=True))
    assert sum(e.scheduler.state()["kv"]["blocks_by_tag"].values()) == 0
    assert e.scheduler.violations() == []


@pytest.mark.parametrize("asked", ["by the call", "by command"])
def test_a_pin_and_a_temporary_priority_last_at_most_one_hour(engine, asked):
    e = engine(policy="plas", blocks=40)
    extra = {"weft_retain": 1e9} if asked == "by the call" else {}
    e.add("c", program="P", prompt=prompt(1, tools=False), tokens=2, extra=extra)
    e.run()
    if asked == "by command":
        for command in (KvCommand("retain", "P", 1e9), KvCommand("priority", "P", 1e9, 2)):
            e.scheduler.obey(Command(kv=command))
    for pause_s, pins in ((3500.0, 1), (101.0, 0)):
        e.now += pause_s
        e.add(f"after {pause_s}", program="Q", tokens=1)
        e.run()
        assert e.scheduler.state()["kv"]["pins"] == pins
    assert e.scheduler._eviction.policy._programs.get("P").priority == 0


@pytest.mark.parametrize("first", [0, 2], ids=["plain", "raised"])
def test_lowered_contexts_are_reused_before_older_ones(engine, first):
    """This includes blocks of the call that lowers its program's priority, which are younger."""
    e = engine(policy="fcfs", blocks=11)
    for number, priority in ((1, first), (2, -2)):
        e.add(
            f"c{number}", program=f"P{number}", prompt=prompt(number, tools=False), tokens=2,
            extra={"weft_tags": [QUERY, int(Tag.USER_QUERY)], "weft_priority": priority},
        )  # fmt: skip
        e.run()
    e.add("other", prompt=list(range(400, 460)), tokens=2)
    e.run()
    for number in (1, 2):
        e.add(f"again{number}", prompt=prompt(number, tools=False), tokens=1)
        e.run()
    assert cached(e)["again1"] == 48
    assert cached(e)["again2"] < 48


def test_the_next_call_reports_why_a_pin_has_ended(engine):
    e = engine(policy="plas", blocks=40, pin_share=0.2)
    for program in (1, 2):
        e.add(
            f"c{program}", program=f"P{program}", prompt=prompt(program, tools=True), tokens=2,
            extra={"weft_retain": 10.0},
        )  # fmt: skip
        e.run()
    e.now += 60.0
    for name, program in (("d1", "P1"), ("d2", "P2"), ("e2", "P2")):
        e.add(name, program=program, tokens=1)
        e.run()
    hints = {report.call: report.hints for report in e.reports}
    assert hints["d1"] == ("weft_retain=expired: another pin took its place",)
    assert hints["d2"] == ("weft_retain=expired: its retention time has passed",)
    assert hints["e2"] == ()


def test_without_tags_blocks_are_reused_as_vllm_reuses_them(engine):
    """The tiered queue reuses blocks in vLLM's order until a call gives a hint."""
    found = []
    for tags in (True, False):
        e = engine(policy="fcfs", blocks=14, tags=tags)
        draws = Random(5)
        for number in range(40):
            length = draws.randint(17, 96)
            e.add(
                f"c{number}", prompt=prompt(draws.randrange(4), tools=True)[:length],
                tokens=draws.randint(1, 20),
            )  # fmt: skip
            if draws.random() < 0.6:
                e.run()
        e.run()
        found.append((cached(e), e.batches))
    assert found[0] == found[1]
    assert sum(found[0][0].values()) > 0


@pytest.mark.parametrize("completed", [False, True])
def test_a_partial_prefill_stays_until_the_call_that_it_is_for_has_ended(engine, completed):
    e = engine(policy="fcfs", blocks=12)
    partial = {"weft_tags": [QUERY, int(Tag.PARTIAL_PREFILL)]}
    e.add("ahead", program="P", prompt=prompt(1, tools=False), tokens=1, extra=partial)
    e.run()
    if completed:
        query = {"weft_tags": [QUERY, int(Tag.TOOL_OUTPUT)]}
        e.add("call", program="P", prompt=prompt(1, tools=False), tokens=2, extra=query)
        e.run()
    for number in (2, 3):
        query = {"weft_tags": [QUERY, int(Tag.USER_QUERY)]}
        e.add(f"other{number}", prompt=prompt(number, tools=False), tokens=2, extra=query)
        e.run()
    e.add("again", prompt=prompt(1, tools=False), tokens=1)
    e.run()
    assert (cached(e)["again"] == 48) != completed


@pytest.mark.parametrize(("told", "turns"), [(True, 4), (False, 24)], ids=["forgotten", "silent"])
def test_tags_of_ended_programs_do_not_outlive_them(engine, told, turns):
    """Half of the cache holds system prompts of programs that never call again. Two contexts that
    need more than the other half find room: at once if the end of the programs was reported, and
    otherwise when the tags have aged."""
    e = engine(policy="fcfs", blocks=101)
    system = {"weft_tags": [160, int(Tag.SYSTEM_PROMPT)]}
    for number in range(5):
        e.add(f"dead{number}", program=f"dead{number}", tokens=1,
              prompt=list(range(1000 * number, 1000 * number + 160)), extra=system)  # fmt: skip
        e.run()
        if told:
            e.scheduler.obey(Command(kv=KvCommand("forget", f"dead{number}")))
    found = 0
    for number in range(turns):
        context = list(range(90_000 + 5000 * (number % 2), 90_000 + 5000 * (number % 2) + 640))
        query = {"weft_tags": [640, int(Tag.USER_QUERY)]}
        e.add(f"turn{number}", program="alive", prompt=context, tokens=1, extra=query)
        e.run()
        found = int(e.reports[-1].cached_tokens)
    assert found == 624


def test_tags_never_keep_more_than_the_prompt(engine):
    """Spans beyond the prompt would tag the answer as a system prompt."""
    e = engine(policy="plas", blocks=40)
    e.add("c", prompt=prompt(1, tools=False), tokens=40, extra={"weft_tags": [9999, 4]})
    e.run()
    counts = e.scheduler.state()["kv"]["blocks_by_tag"]
    assert (counts["SYSTEM_PROMPT"], counts["RESPONSE"]) == (4, 2)
    assert e.reports[0].hints == ("weft_tags=applied, cut at the prompt's 64 tokens",)


def test_a_pin_that_has_not_got_all_its_blocks_says_so(engine):
    for share, said in (
        (
            0.15,
            ("weft_retain=applied", "weft_retain=applied to 3 of 6 blocks: pin_share is used up"),
        ),
        (0.0, ("weft_retain=ignored: pin_share leaves no block to pin",)),
    ):
        e = engine(policy="plas", blocks=20, pin_share=share)
        e.add("c", prompt=prompt(1, tools=True), tokens=2, extra={"weft_retain": 10.0})
        e.run()
        assert e.reports[0].hints == said


def test_a_pinned_context_loses_its_end_first(engine):
    """The context is retained after it was freed. Then the cache is filled except for two
    blocks."""
    e = engine(policy="fcfs", blocks=9, pin_share=1.0)
    e.add("first", program="P", prompt=prompt(1, tools=False), tokens=2)
    e.run()
    e.scheduler.obey(Command(kv=KvCommand("retain", "P", ttl_s=1000.0)))
    e.add("other", prompt=prompt(2, tools=True)[:90], tokens=2)
    e.run()
    e.add("again", program="P", prompt=prompt(1, tools=False), tokens=1)
    e.run()
    assert cached(e)["again"] == 32


def test_an_emptying_by_vllm_itself_is_noticed(engine):
    e = engine(policy="plas", blocks=40)
    e.add("c", program="P", prompt=prompt(1, tools=False), tokens=2,
          extra={"weft_tags": [QUERY, 4], "weft_retain": 100.0})  # fmt: skip
    e.run()
    assert e.scheduler.reset_prefix_cache()
    state = e.scheduler.state()["kv"]
    assert sum(state["blocks_by_tag"].values()) == state["pinned_blocks"] == 0
    assert e.scheduler.violations() == []


@pytest.mark.parametrize("seed", range(4))
def test_the_books_agree_after_every_step_whatever_is_asked(engine, seed):
    """Random tags, pins, priorities, commands, aborts, preemption and reuse."""
    draws = Random(seed)
    e = engine(policy="plas", blocks=24, max_num_seqs=4, pin_share=draws.choice([0.3, 1.0]))
    alive: list[str] = []
    for number in range(150):
        program = f"P{draws.randrange(6)}"
        extra: dict[str, Any] = {}
        if draws.random() < 0.7:
            cuts = sorted(draws.sample(range(1, 120), 3))
            extra["weft_tags"] = [v for cut in cuts for v in (cut, draws.randrange(6))]
        if draws.random() < 0.3:
            extra["weft_retain"] = draws.uniform(0.0, 40.0)
        if draws.random() < 0.3:
            extra["weft_retain_tokens"] = draws.randint(0, 100)
        if draws.random() < 0.3:
            extra["weft_priority"] = draws.randint(-5, 5)
        name = f"c{number}"
        length = draws.randint(1, 96)
        e.add(
            name, program=program, service=draws.uniform(0.0, 9.0), extra=extra,
            prompt=prompt(draws.randrange(3), tools=True)[:length], tokens=draws.randint(1, 24),
        )  # fmt: skip
        alive.append(name)
        if draws.random() < 0.2:
            kind = draws.choice(["retain", "release", "priority"])
            reach = draws.choice([None, 0, 20, 50])
            command = Command(kv=KvCommand(kind, program, ttl_s=9.0, priority=2, tokens=reach))
            e.scheduler.obey(command)
        if draws.random() < 0.1:
            e.abort(alive.pop(draws.randrange(len(alive))))
        for _ in range(draws.randrange(4)):
            if e.busy:
                e.step()
                assert e.scheduler.violations() == []
    e.run()
    e.now += 100.0
    e.add("last")
    e.run()
    assert e.scheduler.state()["kv"]["pins"] == 0
