"""The bench of receipts as a command, at a small size."""

from __future__ import annotations

import json

from typer.testing import CliRunner
from weft_bench import cli
from weft_bench.micro.receipts import SCENES, measure
from weft_gateway.model import Decision
from weft_gateway.telemetry.receipts import Receipt


def test_it_prints_and_writes_its_figures(tmp_path):
    out = tmp_path / "out.json"
    options = ["--limit", "8", "--rounds", "1", "--json", str(out)]
    done = CliRunner().invoke(cli.bench, ["receipts", *options])
    assert done.exit_code == 0, done.output
    assert "full, us" in done.output
    figures = {each["name"]: each["value"] for each in json.loads(out.read_text())["figures"]}
    assert len(figures) == 2 * len(SCENES)
    assert figures["20 tenants/25 programs/full"] > 0


def test_second_half_replaces_the_first(monkeypatch):
    kept = []

    def add(receipts, calls):
        for number, (_, call, key) in enumerate(calls):
            receipts.add(receipt(call, key, float(number)))
            kept.append(len(receipts))
        return 0.5

    monkeypatch.setattr("weft_bench.micro.receipts._add", add)
    cost = measure(tenants=3, programs=2, limit=10, rounds=2)
    assert kept == [*range(1, 11), *[10] * 10] * 2
    assert cost == {"room": 50_000.0, "full": 50_000.0}


def receipt(call, key, at_s):
    decision = Decision("r0", False, frozenset({"r0"}), "least used")
    return Receipt(call, call, key, "main", "", "none", "chat", "m", at_s, decision, "r0", 1, None)
