"""The commands and programs of README, get started and guides run as they stand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support import first_hour
from support.first_hour import Hour

pytestmark = [pytest.mark.system, pytest.mark.engine]

# `make first-hour` runs the others, which install packages.
STEPS = (
    first_hour.readme,
    first_hour.get_started,
    first_hour.langgraph,
    first_hour.openai_agents,
    first_hour.openai_batch,
    first_hour.anthropic_batch,
    first_hour.workflow,
    first_hour.keys,
)


@pytest.mark.parametrize("step", STEPS)
def test_a_page_runs_as_it_stands(stack, tmp_path, step: Callable[[Hour], str]) -> None:
    step(Hour(stack.url, tmp_path))
