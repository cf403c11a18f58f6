"""The simulator as a command, at a small size."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner
from weft_bench import cli

pytestmark = [pytest.mark.engine, pytest.mark.slow]

SMALL = ["sim", "--programs", "6", "--seeds", "2", "--rate", "20", "--slots", "4"]


def test_it_simulates_every_order_and_balancer_and_writes_figures(tmp_path):
    file = tmp_path / "sim.json"
    done = CliRunner().invoke(
        cli.bench,
        [*SMALL, "--policy", "fcfs,plas", "--balancer", "locality,round_robin", "--replicas", "2",
         "--preset", "8b-a100,8b-l40", "--kv-blocks", "500", "--json", str(file)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "simulated: dialogues, 6 programs" in done.output
    document = json.loads(file.read_text())
    assert document["configuration"]["simulated"] is True
    names = {f["name"] for f in document["figures"]}
    for kind in ("locality/fcfs", "locality/plas", "round_robin/fcfs", "round_robin/plas"):
        assert f"simulated/{kind}/response_mean" in names


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--policy", "guess"], "unknown: guess"),
        (["--balancer", "guess"], "unknown balancer"),
        (["--preset", "guess"], "unknown preset"),
        (["--workload", "/nowhere"], "does not exist"),
        (["--kv-blocks", "9"], "does not fit"),
    ],
)
def test_invalid_options_are_reported(options, why):
    done = CliRunner().invoke(cli.bench, [*SMALL, *options])
    assert done.exit_code == 2
    assert why in done.output


def test_empty_list_of_orders_is_refused():
    assert CliRunner().invoke(cli.bench, [*SMALL, "--policy", " ,"]).exit_code == 2


def test_recording_with_fewer_programs_is_reported(tmp_path):
    file = tmp_path / "two.jsonl.xz"
    made = ["workload", "--name", "bfcl", "--programs", "2", "--out", str(file)]
    assert CliRunner().invoke(cli.bench, made).exit_code == 0
    done = CliRunner().invoke(cli.bench, [*SMALL, "--workload", str(file)])
    assert done.exit_code == 0, done.output
    assert "2 programs of 6 requested" in done.output.replace("\n", " ")


def test_arrivals_follow_the_option(tmp_path):
    """The programs are the same; only their arrivals differ."""
    file = tmp_path / "six.jsonl"
    made = ["workload", "--name", "bfcl", "--programs", "6", "--arrivals", "bursty"]
    assert CliRunner().invoke(cli.bench, [*made, "--out", str(file)]).exit_code == 0
    ends = {}
    for kind in ("poisson", "stepped", "recorded"):
        out = tmp_path / f"{kind}.json"
        options = ["--workload", str(file), "--arrivals", kind, "--json", str(out)]
        done = CliRunner().invoke(cli.bench, [*SMALL, "--policy", "fcfs", *options])
        assert done.exit_code == 0, done.output
        assert (f"{kind} arrivals" in done.output.replace("\n", " ")) == (kind != "poisson")
        figures = json.loads(out.read_text())["figures"]
        (ends[kind],) = [f["value"] for f in figures if f["name"].endswith("/end")]
    assert len(set(ends.values())) == 3


@pytest.mark.parametrize("kind", ["weekly", "recorded"])
def test_invalid_arrivals_are_refused(kind):
    done = CliRunner().invoke(cli.bench, [*SMALL, "--arrivals", kind])
    assert done.exit_code == 2
    assert "known:" in done.output or "has no arrival times" in done.output
