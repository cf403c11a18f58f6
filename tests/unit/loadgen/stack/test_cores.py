"""Engines on separate cores, represented by other processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from weft_bench.stack.cores import descendants, engines_apart

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs Linux and two cores",
)
# Reports its start, and ends with its input.
CHILD = "import sys; print('here', flush=True); sys.stdin.read()"
PARENT = (
    "import subprocess, sys; child = subprocess.Popen([sys.executable, '-c', sys.argv[1], "
    "'the-' + 'engine'], stdout=subprocess.PIPE); child.stdout.readline(); "
    "print(child.pid, flush=True); sys.stdin.read(); child.wait()"
)


@pytest.fixture
def family():
    """A process that has started an engine. Yields their ids."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        yield parent.pid, int(parent.stdout.readline())
        assert parent.stdin is not None
        parent.stdin.close()


def test_engine_has_one_core_and_all_others_the_rest(family):
    parent, engine = family
    mine = os.sched_getaffinity(0)
    assert {parent, engine} <= set(descendants(os.getpid()))
    with engines_apart("the-engine") as apart:
        assert apart
        assert os.sched_getaffinity(engine) == {min(mine)}
        assert os.sched_getaffinity(parent) == os.sched_getaffinity(0) == mine - {min(mine)}
    assert os.sched_getaffinity(0) == mine


def test_cores_are_unchanged_without_an_engine(family):
    before = os.sched_getaffinity(0)
    with engines_apart("no-such-name") as apart:
        assert not apart
        assert os.sched_getaffinity(0) == before
