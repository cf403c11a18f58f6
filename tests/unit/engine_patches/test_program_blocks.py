"""Which programs are forgotten when there are too many."""

from __future__ import annotations

from weft_engine import program_blocks
from weft_engine.program_blocks import ProgramBlocks


def called(programs: ProgramBlocks, name: str, tenant: str, *numbers: int) -> None:
    known = programs.at_hand(name)
    known.tenant = tenant
    programs.own(known, list(numbers), [f"content {number}" for number in numbers])


def forget(programs: ProgramBlocks) -> list[tuple[str, bool]]:
    found = []
    for name, ended in programs.overdue():
        programs.forget(name)
        found.append((name, ended))
    assert programs.violations() == []
    return found


def test_of_too_many_programs_those_that_were_idle_longest_go(monkeypatch):
    monkeypatch.setattr(program_blocks, "KEPT_PROGRAMS", 3)
    programs = ProgramBlocks(100)
    for name in ("a", "b", "c", "a"):
        called(programs, name, "t", 1)
        assert forget(programs) == []
    called(programs, "d", "t", 1)
    assert forget(programs) == [("b", True)]


def test_many_programs_of_a_tenant_leave_those_of_another_alone(monkeypatch):
    monkeypatch.setattr(program_blocks, "KEPT_PROGRAMS", 3)
    programs = ProgramBlocks(100)
    called(programs, "mine", "honest", 1)
    for number in range(9):
        called(programs, f"x{number}", "greedy", number)
        forget(programs)
    assert programs.get("mine") is not None
    assert programs.get("x8") is not None
    assert programs.get("x0") is None


def test_long_contexts_evict_programs_of_the_same_tenant_which_may_be_alive():
    programs = ProgramBlocks(10)
    called(programs, "mine", "honest", *range(5))
    gone = []
    for number in range(5):
        called(programs, f"x{number}", "greedy", *range(10))
        gone += forget(programs)
    assert gone
    assert not any(ended for _, ended in gone)
    assert programs.get("mine") is not None
    assert programs.blocks <= 40


def test_the_program_at_hand_is_never_forgotten():
    programs = ProgramBlocks(10)
    called(programs, "one", "t", *range(100))
    assert forget(programs) == []


def test_blocks_that_hold_something_else_are_owned_anew_and_come_last():
    programs = ProgramBlocks(10)
    known = programs.at_hand("p")
    programs.own(known, [1, 2, 3], ["a", "b", "c"])
    programs.own(known, [1, 2, 3], ["x", "b", "c"])
    assert list(known.blocks.items()) == [(2, "b"), (3, "c"), (1, "x")]
    programs.lose(known, [2])
    assert programs.blocks == 2
    programs.clear()
    assert programs.get("p") is None
    assert programs.violations() == []
