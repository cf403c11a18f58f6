"""Phases, noise and the end of an engine's log."""

import pytest
from weft_deploy.local.logs import clean, end, engine_core_died

NOISE = """nanobind: leaked 4 instances!
 - leaked instance 0x7f9a033887e8 of type "triton._C.libtriton.ir.attribute"
nanobind: leaked 64 types!
 - leaked type "triton._C.libtriton.ir.location"
 - leaked type "ATOMIC_OP"
 - ... skipped remainder
nanobind: leaked 514 functions!
 - leaked function "create_async_tdm_gather"
 - leaked function ""
nanobind: this is likely caused by a reference counting issue in the binding code.
See https://nanobind.readthedocs.io/en/latest/refleaks.html
"""
GONE = "(MainProcess pid=1) WARNING 11-21 [core_client.py:817] [shutdown] MPClient: engine core "
GONE += "exited unexpectedly; starting cleanup"
DEAD = (
    "(MainProcess pid=1) ERROR 11-21 [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError"
)
FATAL = "(EngineCore pid=2) ERROR 11-21 [core.py:1512] EngineCore encountered a fatal error."
TIDYING = "INFO:     Shutting down\nINFO:     Application shutdown complete.\n"


def test_only_noise_is_removed() -> None:
    assert clean(f"one\n\n  {NOISE}two\n") == ["one", "  nanobind: leaked 4 instances!", "two"]
    assert clean(NOISE) == []
    spared = ["the nanobind: in it", "- leaked memory", "  indented", "See https://docs.vllm.ai"]
    assert clean("\n".join(spared)) == spared


@pytest.mark.parametrize("line", [GONE, DEAD, FATAL])
def test_each_message_of_a_dead_engine_core_is_recognised(line: str) -> None:
    assert engine_core_died(f"INFO one\n{line}\n{TIDYING}{NOISE}")


def test_a_regular_shutdown_is_not_a_dead_engine_core() -> None:
    assert not engine_core_died(f"INFO: EngineCore is ready\n{TIDYING}{NOISE}")


def test_the_end_of_a_log_is_its_last_lines() -> None:
    assert end(f"one\ntwo\n\nthree\n{NOISE}", 2) == "two\nthree"
    assert end("", 2) == ""


def test_the_end_of_a_log_is_the_last_message_of_a_dead_engine_core() -> None:
    text = f"one\n{FATAL}\nValueError: bad\n{DEAD}\n{TIDYING}{NOISE}"
    assert end(text, 3) == f"{FATAL}\nValueError: bad\n{DEAD}"
