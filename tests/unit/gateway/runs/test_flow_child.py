"""The gateway's side of a process: how it says that the process has ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft_gateway.runs import flow_child
from weft_gateway.runs.flow_child import Child, ChildLost

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("command", "how"),
    [("exit 3", "exit code 3"), ("kill -9 $$", "signal SIGKILL")],
)
async def test_a_lost_process_says_how_it_ended(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: str,
    how: str,
) -> None:
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho 'MemoryError in /private' >&2\n{command}\n")
    program.chmod(0o700)
    monkeypatch.setattr(flow_child.sys, "executable", str(program))
    async with Child(1 << 30, 30) as child:
        with pytest.raises(ChildLost) as found:
            await child.receive()
    assert f"its process has ended ({how}); a frequent reason" in str(found.value)
    # Only the log has what the process wrote.
    assert "/private" not in str(found.value)
    assert f"({how}): MemoryError in /private" in caplog.text
