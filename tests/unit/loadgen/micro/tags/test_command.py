"""The tags bench as a command, on a small data set."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.parts import TagsOptions
from weft_bench.micro.tags.command import run


@pytest.mark.slow
def test_it_measures_every_tokenizer_and_writes_figures(tmp_path, capsys):
    folder = tmp_path / "data/agent_calls"
    folder.mkdir(parents=True)
    with lzma.open(folder / "magagent.jsonl.xz", "wt") as opened:
        for number in range(30):
            text = f"user: {'plan a trip, ' * 400}\n\nassistant: step {number}"
            line = {"session_id": "a", "timestamp": number, "input": text, "output": ""}
            opened.write(f"{json.dumps(line)}\n")
    file = tmp_path / "tags.json"
    options = TagsOptions(data=str(tmp_path / "data"), warm_up=5, json_file=str(file))
    assert run(options) == 0
    assert "magagent" in capsys.readouterr().out
    found = {f["name"]: f["value"] for f in json.loads(file.read_text())["figures"]}
    for tokenizer in ("demo, 6k", "trained, 32k"):
        assert found[f"{tokenizer}/magagent/calls"] == 30
        assert found[f"{tokenizer}/magagent/wire_mean"] > 0.9
        assert found[f"{tokenizer}/magagent/tag_p50"] > 0


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli.bench, ["tags", "--data", str(tmp_path)])
    assert done.exit_code == 2
    assert "holds none of" in done.output
