"""The supervisor's children, under their guards."""

from __future__ import annotations

import sys

import pytest
from support.waiting import DEADLINE_S
from weft_deploy.local.children import Children

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups")


def test_a_childs_output_and_status_are_kept(tmp_path):
    first = "import os, sys; print(os.environ['A'], flush=True)"
    script = f"{first}; print('no', file=sys.stderr); sys.exit(7)"
    with Children(tmp_path / "logs") as children:
        child = children.start("one", [sys.executable, "-c", script], {"A": "first"})
        assert child.process.wait(DEADLINE_S) == 7
        assert children.crashed() is child
        assert child.last_lines(2).splitlines() == ["first", "no"]
        assert child.last_lines() == "no"


def test_the_status_of_a_signal_is_128_plus_its_number(tmp_path):
    script = "import os; os.kill(os.getpid(), 9)"
    with Children(tmp_path) as children:
        child = children.start("one", [sys.executable, "-c", script], {})
        assert child.process.wait(DEADLINE_S) == 128 + 9


def test_stop_ends_all_children(tmp_path):
    children = Children(tmp_path)
    started = [
        children.start(str(n), [sys.executable, "-c", "import time; time.sleep(600)"], {})
        for n in range(3)
    ]
    assert children.crashed() is None
    children.stop()
    assert all(child.exited is not None for child in started)
    assert children.crashed() is None


def test_a_child_that_has_ended_can_be_restarted(tmp_path):
    with Children(tmp_path) as children:
        command = [sys.executable, "-c", "import os; print(os.environ['A'])"]
        child = children.start("one", command, {"A": "first"})
        assert child.process.wait(DEADLINE_S) == 0
        children.forget(child)
        assert children.crashed() is None
        children.restart(child)
        assert (tmp_path / "one.log.old").read_text() == "first\n"
        while (again := children.crashed()) is None:
            pass
        assert again is not child
        assert again.last_lines() == "first"
