"""Which calls are sent and which are held, in tokens and seconds."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from weft_gateway.policies.admission import Admission, Claim, Why

# Residents may fill 900 tokens, and a single call of up to 15 is small.
CACHE = 1000
WAIT_S = 30.0


class Scene:
    """A cache of 1,000 tokens, and the calls that were sent, in order."""

    def __init__(self, wait_s: float = WAIT_S) -> None:
        self.rules = Admission(CACHE, wait_s)
        self.claims: dict[str, Claim] = {}
        self.sent: list[str] = []

    def call(
        self,
        call: str,
        program: str,
        tokens: int,
        now: float = 0.0,
        arrival_s: float = 0.0,
        shared: int = 0,
        **values: object,
    ) -> None:
        claim = Claim(call, program, arrival_s, tokens, **values)  # type: ignore[arg-type]
        self.claims[call] = claim
        if self.rules.enter(claim, now, shared):
            self.sent.append(call)
        assert self.rules.violations() == []

    def leave(self, call: str, now: float = 0.0, tokens: int = 0) -> None:
        self.rules.leave(self.claims.pop(call), now, tokens)
        self.admit(now)

    def end(self, program: str, now: float = 0.0) -> None:
        self.rules.end(program)
        self.admit(now)

    def admit(self, now: float) -> None:
        self.sent += [claim.call for claim in self.rules.admit(now)]
        assert self.rules.violations() == []

    @property
    def held(self) -> list[str]:
        return sorted(self.rules.held)


def full() -> Scene:
    """A scene with a resident of 700 tokens and a guest of 290, whose calls run."""
    scene = Scene()
    scene.call("a1", "a", 700, arrival_s=1.0)
    scene.call("b1", "b", 290, arrival_s=2.0)
    return scene


def test_calls_that_fit_together_are_sent():
    scene = full()
    assert scene.sent == ["a1", "b1"]
    assert (scene.rules.residents, scene.rules.kept_tokens) == (1, 700)
    assert scene.rules.due == math.inf


def test_a_call_that_does_not_fit_is_held_until_another_one_has_ended():
    scene = full()
    scene.call("c1", "c", 250, 1.0, arrival_s=3.0)
    assert scene.held == ["c1"]
    assert scene.claims["c1"].ahead == 1
    assert scene.rules.due == 1.0 + WAIT_S
    scene.leave("b1", 2.0)
    assert scene.sent == ["a1", "b1", "c1"]
    assert scene.claims["c1"].why is Why.FITS
    assert scene.rules.due == math.inf


def test_a_resident_keeps_its_place_during_a_gap():
    scene = Scene()
    scene.call("a1", "a", 700, arrival_s=1.0)
    scene.leave("a1", 1.0, 700)
    scene.call("c1", "", 250, 2.0)
    scene.call("c2", "", 250, 2.0)
    assert (scene.sent, scene.held) == (["a1", "c1"], ["c2"])
    scene.call("a2", "a", 720, 3.0, arrival_s=1.0)
    assert scene.sent == ["a1", "c1", "a2"]


def test_a_resident_loses_its_place_after_the_limit():
    scene = Scene()
    scene.call("a1", "a", 700, 0.0, arrival_s=1.0)
    scene.leave("a1", 1.0)
    scene.call("c1", "", 250, 2.0)
    scene.call("d1", "d", 250, 2.5, arrival_s=4.0)
    assert scene.held == ["d1"]
    # No gap is known yet, and no prefill was measured.
    assert scene.rules.due == math.nextafter(1.0 + 2 * 5.0, math.inf)
    scene.admit(11.0)
    assert scene.sent == ["a1", "c1", "d1"]
    assert scene.claims["d1"].why is Why.RESIDENT


@pytest.mark.parametrize(
    ("gap_s", "keep_s"), [(2.0, 5.0), (4.0, 6.0), (6.0, 9.0), (8.0, 0.0), (100.0, 0.0)]
)
def test_the_limit_follows_the_usual_gap_up_to_two_prefills_of_the_cache(gap_s, keep_s):
    scene = Scene()
    for number in range(12):
        scene.call(f"a{number}", "a", 700, gap_s * number, arrival_s=1.0)
        scene.leave(f"a{number}", gap_s * number)
    assert scene.rules.keep_s == keep_s


def test_programs_that_return_too_late_keep_no_place():
    scene = Scene()
    for number in range(9):
        scene.call(f"a{number}", "a", 700, 100.0 * number, arrival_s=1.0)
        scene.leave(f"a{number}", 100.0 * number + 1.0)
    scene.call("a9", "a", 700, 900.0, arrival_s=1.0)
    scene.call("b1", "", 290, 900.0)
    scene.call("c1", "c", 600, 900.0, arrival_s=3.0)
    assert scene.held == ["c1"]
    scene.leave("a9", 901.0)
    assert scene.claims["c1"].why is Why.RESIDENT


def test_the_prefill_of_the_cache_is_measured_with_first_calls():
    scene = Scene()
    for number, (tokens, single, seconds) in enumerate(
        [(1925, True, 4.0), (1925, True, 2.0), (1925, False, 1.0), (1000, True, 0.1)]
    ):
        name = f"a{number}"
        scene.call(name, name, tokens, 0.0, arrival_s=1.0, single=single)
        claim = scene.claims[name]
        if name in scene.sent:
            scene.rules.answers(claim, seconds)
            scene.rules.answers(claim, seconds + 9.0)
        scene.leave(name, seconds)
        scene.end(name, seconds)
    # 1,000 tokens at 2,000 tokens (1,925 of the prompt, one of the output) in two seconds.
    assert scene.rules.keep_s == 2 * 1.0


def test_a_guest_that_has_ended_takes_room_until_all_residents_were_used_after_it():
    scene = Scene()
    scene.call("a1", "a", 600, arrival_s=1.0)
    scene.call("b1", "b", 200, arrival_s=2.0)
    scene.leave("a1", 1.0)
    # The engine would evict `a` for a second guest, whose predecessor was used later.
    scene.call("c1", "", 150, 1.0)
    scene.leave("c1", 2.0)
    scene.call("d1", "", 150, 2.0)
    assert scene.held == ["d1"]
    scene.call("a2", "a", 600, 3.0, arrival_s=1.0)
    scene.admit(3.0)
    assert scene.claims["d1"].why is Why.FITS


def test_the_context_that_a_guest_uses_again_takes_no_room_from_it():
    scene = Scene()
    scene.call("a1", "a", 600, arrival_s=1.0)
    scene.call("x1", "", 50)
    scene.leave("a1", 1.0)
    scene.call("b1", "b", 350, 1.0, arrival_s=2.0)
    scene.leave("b1", 2.0)
    scene.call("c1", "", 340, 3.0)
    scene.call("b2", "b", 350, 3.0, arrival_s=2.0)
    assert (scene.sent, scene.held) == (["a1", "x1", "b1", "b2"], ["c1"])


def test_contexts_that_the_engine_has_evicted_take_no_room():
    scene = Scene()
    for number in range(20):
        scene.call(f"c{number}", "", 100, float(number))
        scene.leave(f"c{number}", float(number))
    assert scene.rules._resting_tokens == 1000
    scene.call("a1", "a", 700, 20.0, arrival_s=1.0)
    scene.leave("a1", 20.0)
    assert scene.rules._resting_tokens == 1000
    scene.call("b1", "b", 300, 21.0, arrival_s=2.0)
    assert scene.held == []


def test_no_wait_is_longer_than_the_bound():
    scene = full()
    scene.call("c1", "c", 250, 1.0, arrival_s=3.0)
    scene.admit(30.9)
    assert scene.held == ["c1"]
    scene.call("a2", "a", 700, 31.0, arrival_s=1.0)
    scene.admit(31.0)
    assert scene.claims["c1"].why is Why.LATE
    assert scene.sent == ["a1", "b1", "a2", "c1"]


def test_an_idle_replica_never_waits():
    scene = Scene()
    scene.call("a1", "a", 5000, arrival_s=1.0)
    assert scene.sent == ["a1"]
    scene.call("b1", "b", 4000, arrival_s=2.0)
    scene.call("c1", "c", 4000, arrival_s=3.0)
    assert scene.held == ["b1", "c1"]
    scene.leave("a1", 1.0)
    assert scene.claims["b1"].why is Why.IDLE
    assert scene.held == ["c1"]


def test_held_calls_are_sent_in_the_order_of_their_programs():
    scene = full()
    scene.call("d1", "d", 250, 1.0, arrival_s=4.0)
    scene.call("c1", "c", 250, 2.0, arrival_s=3.0)
    assert [scene.claims[name].ahead for name in ("d1", "c1")] == [1, 1]
    scene.leave("b1", 3.0)
    assert scene.sent[2:] == ["c1"]
    assert scene.held == ["d1"]


def test_the_programs_ahead_are_residents_and_older_held_programs():
    scene = full()
    for call, program in (("c1", "c"), ("c2", "c"), ("d1", "d")):
        scene.call(call, program, 250, 1.0, arrival_s=3.0 if program == "c" else 4.0)
    assert scene.claims["d1"].ahead == 2


def test_a_small_single_call_is_never_held():
    scene = Scene()
    scene.call("a1", "a", 900, arrival_s=1.0)
    scene.call("b1", "", 90)
    scene.call("chat", "", 15, 1.0, single=True)
    scene.call("title", "t", 15, 1.0, arrival_s=9.0, single=True)
    scene.call("more", "u", 15, 1.0, arrival_s=9.0, single=False)
    scene.call("long", "", 16, 1.0, single=True)
    assert scene.sent == ["a1", "b1", "chat", "title"]
    assert scene.held == ["long", "more"]


def test_a_smaller_call_passes_one_that_does_not_fit():
    scene = Scene()
    scene.call("a1", "a", 700, arrival_s=1.0)
    scene.call("b1", "b", 400, arrival_s=2.0)
    scene.call("c1", "", 300, arrival_s=3.0)
    assert scene.sent == ["a1", "c1"]
    assert scene.held == ["b1"]


def test_tokens_that_programs_share_count_once():
    scene = Scene()
    scene.call("a1", "a", 600, arrival_s=1.0)
    scene.call("b1", "b", 600, arrival_s=2.0, shared=500)
    assert scene.rules.kept_tokens == 700
    # The later calls of a program share the same tokens.
    scene.leave("b1", 1.0, 640)
    scene.call("b2", "b", 650, 2.0, arrival_s=2.0)
    assert scene.rules.kept_tokens == 750


def test_the_end_of_a_program_gives_its_place_to_another_one():
    scene = Scene()
    scene.call("a1", "a", 700, arrival_s=1.0)
    scene.call("b1", "", 290)
    scene.leave("a1", 1.0)
    scene.call("c1", "c", 700, 2.0, arrival_s=3.0)
    assert scene.held == ["c1"]
    scene.end("a", 3.0)
    assert scene.claims["c1"].why is Why.RESIDENT


def test_a_program_that_ends_during_a_call_may_begin_again():
    scene = Scene()
    scene.call("a1", "a", 100, arrival_s=1.0)
    scene.end("a", 1.0)
    scene.call("a2", "a", 100, 2.0, arrival_s=2.0)
    scene.leave("a1", 3.0)
    scene.leave("a2", 4.0)
    assert scene.rules.kept_tokens == 100


def test_a_held_call_that_leaves_frees_nothing_twice():
    scene = full()
    scene.call("c1", "c", 300, 1.0, arrival_s=3.0)
    claim = scene.claims["c1"]
    scene.leave("c1", 2.0)
    assert claim.why is Why.LEFT
    scene.rules.leave(claim, 2.0)
    assert scene.rules.violations() == []
    assert scene.held == []


def test_tenants_share_the_memory_by_their_weights():
    scene = Scene()
    for number in range(8):
        scene.call(f"m{number}", f"m{number}", 100, arrival_s=float(number), tenant="many")
    for number in range(8):
        scene.call(
            f"f{number}", f"f{number}", 100, arrival_s=50.0 + number, tenant="few", weight=3.0
        )
    residents = scene.rules._sets.residents
    assert len([name for name in residents if name.startswith("f")]) == 6
    assert scene.rules.residents == 9


def test_without_scarcity_no_call_of_any_tenant_is_held():
    scene = Scene()
    for number in range(7):
        scene.call(f"c{number}", f"p{number}", 100, arrival_s=1.0, tenant=f"t{number}")
    assert scene.held == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["call", "leave", "end", "wait"]),
        st.integers(0, 5),
        st.integers(1, 1200),
        st.floats(0.0, 40.0),
    ),
    max_size=60,
)


# The place of p0 ends at an instant whose sums are rounded.
@example(
    [
        ("call", 0, 1, 9.0), ("call", 0, 1, 26.0), ("call", 0, 1, 4.941069385060751),
        ("call", 0, 1, 4.719168714950205), ("call", 0, 1, 19.879583863813735),
        ("call", 0, 1, 19.874181221692893), ("call", 0, 1, 22.37419938128092),
        ("call", 0, 1, 31.746431911996574), ("end", 0, 1, 8.0), ("end", 0, 1, 39.0),
        ("end", 0, 1, 22.013698307779283), ("call", 0, 1, 37.488450221510924),
        ("call", 1, 1, 1.5523680719179735), ("leave", 0, 759, 0.0), ("call", 1, 241, 10.0),
    ]
)  # fmt: skip
@given(steps)
def test_every_call_is_sent_in_time_and_the_counts_stay_right(steps):
    scene, now, number = Scene(), 0.0, 0
    for step, which, tokens, later in steps:
        now = min(now + later, scene.rules.due)
        if step == "call":
            number += 1
            program = "" if which == 5 else f"p{which}"
            scene.call(f"c{number}", program, tokens, now, float(which), tenant=f"t{which % 2}")
        elif step == "leave" and scene.claims:
            scene.leave(sorted(scene.claims)[tokens % len(scene.claims)], now, tokens)
        elif step == "end":
            scene.end(f"p{which}", now)
        scene.admit(now)
        for claim in scene.rules.held.values():
            assert now < claim.until <= now + WAIT_S
            assert scene.rules.due > now
    for call in sorted(scene.claims):
        scene.leave(call, now)
    assert (scene.held, scene.rules._guest_tokens) == ([], 0)
