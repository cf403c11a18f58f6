"""`weft bench peers` end to end: round robin and Weft as real processes over simulated replicas."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest
from support.peers import dialogues
from weft_bench.peers.replicas import simulated_replicas

pytestmark = pytest.mark.system


def test_peers_compares_round_robin_and_weft_over_the_same_replicas(tmp_path):
    data, file = dialogues(tmp_path / "data", 20, turns=4), tmp_path / "peers.json"
    done = subprocess.run(
        [sys.executable, "-m", "weft_gateway.cli", "bench", "peers", "--data", str(data),
         "--fronts", "weft/round_robin,weft/plas,weft/plas/no-key", "--orders", "plas",
         "--workloads", "tau_airline", "--programs", "8", "--replicas", "2", "--seeds", "1",
         "--long-gaps", "0.25", "--gap-factor", "2", "--speed-up", "50", "--json", str(file)],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "simulated: tau_airline" in done.stdout
    turns = {turn["front"]: turn["slices"] for turn in json.loads(file.read_text())["turns"]}
    assert set(turns) == {"weft/round_robin", "weft/plas", "weft/plas/no-key"}
    for slices in turns.values():
        figures = slices["all"]
        assert (figures["errors"], figures["untold"], figures["programs"]) == (0, 0, 8)
        assert figures["calls"] == 32
        assert figures["slowdown"] > 0.9
        assert slices["long gaps"]["programs"] == 2
    # Round robin with two replicas moves most calls of a chain to the other replica.
    assert turns["weft/round_robin"]["all"]["migrations"] > 0
    tokens = {slices["all"]["output_tokens"] for slices in turns.values()}
    assert len(tokens) == 1, "the fronts did different work"


def test_replicas_report_their_answers_and_reset_empties_them(tmp_path):
    body = {
        "model": "simulated", "max_tokens": 4, "ignore_eos": True,
        "messages": [{"role": "user", "content": "Which flights leave? " * 40}],
    }  # fmt: skip
    with simulated_replicas(2, "8b-a100", 4, 500, 1000.0, tmp_path) as replicas:
        urls = [f"{url}/v1/chat/completions" for url in replicas.urls]

        def ask(url: str) -> str:
            return httpx.post(url, json=body, trust_env=False).json()["id"]

        ids = [ask(urls[0]), ask(urls[0]), ask(urls[1])]
        found = replicas.answers()
        assert [found[one].replica for one in ids] == [0, 0, 1]
        assert [found[one].cached_tokens > 0 for one in ids] == [False, True, False]
        replicas.reset("plas")
        assert replicas.answers() == {}
        again = ask(urls[0])
        assert replicas.answers()[again].cached_tokens == 0
        state = httpx.get(f"{replicas.urls[0]}/weft/state", trust_env=False).json()
        assert state["engines"][0]["policy"] == "plas"
        assert replicas.behind_s() >= 0
