"""`weft tune`: the choice of alpha in virtual time, and the windows."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner
from weft_bench.tune import command, journals
from weft_bench.tune.journals import Journals, TuneError
from weft_bench.tune.recorded import Line, recorded
from weft_bench.tune.replay import best, engines_of, tails


def line(program: str, at: float, took: float = 1.0, **other: Any) -> Line:
    known = {
        "n": int(1000 * at), "call": f"{program}@{at}", "model": "m", "kind": "k", "outcome": "ok",
        "prompt_tokens": 1000, "cached_tokens": 0, "output_tokens": 50, "deadline_s": None,
    }  # fmt: skip
    return Line(program=program, arrived_at=at, total_s=took, **(known | other))


def state(*seconds: float, order: str = "fcfs") -> dict[str, Any]:
    """Replicas with these seconds per prompt token, and a hundred times as many per step."""
    found = {}
    for number, token_s in enumerate(seconds):
        costs = {
            "step_s": 0.001, "weights_s": 100 * token_s, "prefill_token_s": token_s,
            "decode_sequence_s": token_s, "context_token_s": 0.0,
        }  # fmt: skip
        limits = {"slots": 8, "step_tokens": 2048, "kv_blocks": 4000, "block_tokens": 16}
        engine = {"policy": order, "options": {}, "costs": costs, "kv": None, **limits}
        found[f"r{number}"] = {"status": 200, "answer": {"weft": {}, "engines": [engine]}}
    return found


def programs(count: int, every_s: float) -> dict[str, list[Line]]:
    return {f"p{n}": [line(f"p{n}", 100.0 + n * every_s)] for n in range(count)}


@pytest.mark.slow
@pytest.mark.engine
def test_the_search_finds_the_known_alpha() -> None:
    engines = engines_of(state(1e-3, 1e-4))
    # Programs that never meet belong on the fast engine. The first calls teach what calls cost.
    rare = recorded(programs(20, 100.0))
    found = tails(rare, {f"p{n}" for n in range(10, 20)}, engines, 0.05)
    assert found.keys() == {0.05, *(step / 10 for step in range(11))}
    assert found[1.0] < found[0.0] / 5
    assert best(found, 0.0) > 0
    # A crowd that the fast engine cannot hold needs both.
    crowd = recorded(programs(60, 0.05))
    found = tails(crowd, {f"p{n}" for n in range(60)}, engines_of(state(1.1e-4, 1e-4)), 1.0)
    assert best(found, 1.0) < 1.0
    assert found[best(found, 1.0)] < 0.7 * found[1.0]
    assert best({0.0: 2.0, 0.4: 1.0, 0.5: 1.0, 1.0: 1.0}, 0.6) == 0.5


def test_engines_without_costs_or_with_different_orders_are_refused() -> None:
    stock = {"r0": {"status": 404, "answer": {"detail": "Not Found"}}}
    with pytest.raises(TuneError, match="r0 reports no step costs"):
        engines_of(stock)
    different = state(1e-4) | {"r1": state(1e-4, order="urgency")["r0"]}
    for wrong in (different, {}):
        with pytest.raises(TuneError, match="different orders"):
            engines_of(wrong)


class Gateways:
    """Answers of gateways, by URL. posted: the values of alpha that each has got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, balancer: str = "work") -> None:
        self.lines: dict[str, list[Line]] = {"one": [], "two": []}
        self.posted: list[tuple[str, float]] = []
        self.balancer = {"name": balancer, "alpha": 0.5 if balancer == "work" else None}
        for module in (command, journals):
            monkeypatch.setattr(module, "ask", self.ask)
        monkeypatch.setattr(command, "tails", lambda *_: {0.5: 9.0, 0.1: 8.0})

    def ask(self, gateway: str, method: str, path: str, body: Any = None) -> bytes:
        if method == "POST":
            self.posted.append((gateway, body["options"]["alpha"]))
        if path.startswith("/weft/journal?after="):
            after = int(path.rpartition("=")[2])
            new = [one for one in self.lines[gateway] if one.n > after][:3]
            return b"\n".join(msgspec.json.encode(one) for one in new)
        return json.dumps({"balancer": self.balancer, "replicas": state(1e-4)}).encode()


def test_one_tuning_reads_all_journals_and_posts_to_each_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateways = Gateways(monkeypatch)
    for number in range(8):
        gateways.lines["two" if number % 2 else "one"].append(line(f"p{number}", 10.0 + number))
    gateways.lines["one"].append(line("failed", 30.0, outcome="error"))
    both = ["--gateway", "one", "--gateway", "two"]
    dry = CliRunner().invoke(command.tune, [*both, "--dry-run"])
    assert dry.output == (
        "alpha would be 0.1; P95 of 8 programs, replayed: 9 s with 0.5, 8 s with 0.1\n"
    )
    assert not gateways.posted
    assert CliRunner().invoke(command.tune, both).exit_code == 0
    assert gateways.posted == [("one", 0.1), ("two", 0.1)]


@pytest.mark.parametrize(
    ("programs", "model", "balancer", "reason"),
    [
        (4, "m", "work", "4 programs in the journal; 5 are needed"),
        (9, "other", "work", "the journal has several"),
        (9, "m", "locality", "the gateway uses `locality`"),
    ],
)
def test_a_journal_that_cannot_be_replayed_is_an_error(
    programs: int, model: str, balancer: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateways = Gateways(monkeypatch, balancer)
    for number in range(programs):
        other = {"model": model} if number == 0 else {}
        gateways.lines["one"].append(line(f"p{number}", 10.0 + number, **other))
    found = CliRunner().invoke(command.tune, ["--gateway", "one"])
    assert (found.exit_code, gateways.posted) == (1, [])
    assert reason in found.output


def test_a_gateway_that_cannot_be_reached_is_an_error() -> None:
    found = CliRunner().invoke(command.tune, ["--gateway", "http://127.0.0.1:9"])
    assert found.exit_code == 1
    assert "weft tune: http://127.0.0.1:9 cannot be reached" in found.output


def test_windows_tune_only_if_programs_became_significantly_slower(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gateways = Gateways(monkeypatch)
    tuner = command.Tuner(Journals(["one"]), every_s=100.0, dry_run=False)

    def window(begin_s: float, took_s: float, count: int = 10) -> list[tuple[str, float]]:
        """End a window with `count` programs that took about `took_s` each."""
        gateways.posted.clear()
        gateways.lines["one"] += [
            line(f"{begin_s}-{n}", begin_s + n, took_s + n / 10) for n in range(count)
        ]
        gateways.lines["one"].append(line("newest", begin_s + 200.0, 0.0))
        tuner.window()
        return list(gateways.posted)

    assert window(1000, 2.0) == []
    assert window(2000, 2.1) == []
    # Too few programs: the window goes on.
    assert window(3000, 60.0, count=3) == []
    assert window(4000, 40.0) == [("one", 0.1)]
    assert window(5000, 40.0) == []
    assert window(6000, 10.0) == []
