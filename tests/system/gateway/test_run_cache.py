"""`weft run --prompt-cache`: answers of earlier runs."""

from __future__ import annotations

import json

import pytest
from support.runs import ROWS, Answers, Runs

pytestmark = [pytest.mark.system, pytest.mark.anyio]


async def test_a_later_run_makes_only_the_calls_that_are_new(engine, weft, tmp_path):
    answers = Answers()
    async with engine(script=answers) as stub, weft(stub) as gateway:
        runs = Runs(tmp_path, gateway.url)
        cache = ("--prompt-cache", str(tmp_path / "answers.sqlite"))
        assert (await runs.run("whole.jsonl", *cache))[0] == 0
        whole, answers.count = answers.count, 0
        assert whole > 3 * ROWS
        status, text = await runs.run("again.jsonl", "--analyze", *cache)
        # The votes are samples, so each run draws them.
        assert (status, answers.count) == (0, ROWS), text
        answers.count = 0
        assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()

        lines = (tmp_path / "in.jsonl").read_text().splitlines()
        lines[0] = json.dumps({**json.loads(lines[0]), "question": "another question"})
        (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
        status, text = await runs.run("changed.jsonl", *cache)
        assert status == 0, text
        assert ROWS < answers.count <= ROWS + 5
        (tmp_path / "text").write_text("no cache " * 200)
        (tmp_path / "loop").symlink_to("loop")
        before = set(tmp_path.iterdir())
        for file, what in (
            ("text", "cannot be used as a prompt cache"),
            ("bad.jsonl", "of this run"),
            ("bad.jsonl.journal-lock", "of this run"),
            ("in.jsonl", "of this run"),
            ("wf.yaml", "of this run"),
            ("loop", "Too many levels of symbolic links"),
        ):
            status, text = await runs.run("bad.jsonl", "--prompt-cache", str(tmp_path / file))
            assert (status, what in text) == (2, True), text
            assert "Traceback" not in text
        assert set(tmp_path.iterdir()) == before
