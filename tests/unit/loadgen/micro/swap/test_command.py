"""The swap bench on the CPU path, at a small shape."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.cli.parts import SwapOptions
from weft_bench.micro.swap import ways
from weft_bench.micro.swap.command import run
from weft_bench.micro.swap.ways import OURS, PER_BLOCK, Shape

SMALL = Shape(layers=3, heads=2, head_dim=8, block_tokens=4)

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="shows the path without a GPU")


def test_command_reports_a_missing_gpu_and_measures_the_cpu_path(tmp_path, capsys):
    file = tmp_path / "swap.json"
    assert run(SwapOptions(blocks=(4, 2), rounds=2, json_file=str(file)), SMALL) == 0
    shown = capsys.readouterr().out
    assert "No GPU" in shown
    assert "vllm_batch: absent (needs a GPU)" in shown
    document = json.loads(file.read_text())
    assert document["configuration"]["device"] == "the CPU"
    assert document["configuration"]["blocks"] == [2, 4]
    assert {f["unit"] for f in document["figures"]} == {"GB/s", "1"}
    figures = {f["name"]: f["value"] for f in document["figures"]}
    for direction in ("out", "in"):
        for count in (2, 4):
            ours = figures[f"{direction}/{count}/weft/rate"]
            limit = figures[f"{direction}/{count}/limit/rate"]
            assert figures[f"{direction}/{count}/limit/weft_rate_ratio"] == ours / limit > 0


@pytest.mark.parametrize("blocks", [(0,), (4, -1)])
def test_a_swap_of_no_blocks_is_refused(blocks, capsys):
    assert run(SwapOptions(blocks=blocks), SMALL) == 2
    assert "at least one block" in capsys.readouterr().err


def test_counts_that_exceed_the_memory_are_skipped_and_reported(capsys):
    assert run(SwapOptions(blocks=(2, 10**12), rounds=1), SMALL) == 0
    assert "skipped for lack of memory: 1000000000000 blocks" in capsys.readouterr().out
    assert run(SwapOptions(blocks=(10**12,)), SMALL) == 2


def broken(monkeypatch, name):
    """Replace a method by one that writes wrong bytes."""
    real = ways.ways

    def spoilt(scene, blocks, absent):
        return [
            replace(way, out=lambda: scene.host.fill_(1)) if way.name == name else way
            for way in real(scene, blocks, absent)
        ]

    monkeypatch.setattr(ways, "ways", spoilt)


def test_a_peer_that_moves_wrong_bytes_is_not_compared(monkeypatch, tmp_path):
    broken(monkeypatch, PER_BLOCK)
    file = tmp_path / "swap.json"
    assert run(SwapOptions(blocks=(2,), rounds=1, json_file=str(file)), SMALL) == 0
    document = json.loads(file.read_text())
    assert "wrong bytes out" in document["configuration"]["absent"][PER_BLOCK]
    assert not [f for f in document["figures"] if PER_BLOCK in f["name"]]


def test_ours_moving_wrong_bytes_fails_the_bench(monkeypatch, capsys):
    broken(monkeypatch, OURS)
    assert run(SwapOptions(blocks=(2,), rounds=1), SMALL) == 1
    assert "weft copied wrong bytes out" in capsys.readouterr().err


def test_command_refuses_an_invalid_list():
    done = CliRunner().invoke(cli.bench, ["swap", "--blocks", "many"])
    assert done.exit_code == 2
    assert "not a list of numbers" in done.output
