"""The bench of deadlines in the gateway."""

from __future__ import annotations

import json

from weft_bench.cli.parts import DeadlinesOptions
from weft_bench.micro import deadlines
from weft_bench.micro.deadlines import measure, run


def test_calls_of_the_variant_with_deadlines_have_budgets(monkeypatch):
    """The bench measures what it says: budgets from forecasts, and none without deadlines."""
    seen = {}
    serve = deadlines._Gateway._serve

    async def noted(gateway, call):
        await serve(gateway, call)
        seen[id(gateway)] = call.budget

    monkeypatch.setattr(deadlines._Gateway, "_serve", noted)
    found = measure(replicas=2, rounds=1)
    none, plain, budget, soonest = seen.values()
    assert none is plain is None
    for one in (budget, soonest):
        assert one is not None
        assert one.cost_s > 0
        assert (one.remaining, one.slo) == (0, "report")
    assert found["without these parts"]["more"] == 0
    assert all(0 < row["p50"] <= row["p90"] for row in found.values())


def test_the_command_shows_a_line_for_each_variant_and_writes_figures(tmp_path, capsys):
    file = tmp_path / "deadlines.json"
    assert run(DeadlinesOptions(rounds=1, json_file=str(file))) == 0
    assert "deadlines, soonest" in capsys.readouterr().out
    document = json.loads(file.read_text())
    assert document["command"] == "weft bench deadlines"
    assert len(document["figures"]) == 12
