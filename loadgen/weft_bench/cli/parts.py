"""The commands that measure one part of Weft: `weft bench swap`, `scheduler`, `tags`, `placing`,
`deadlines`, `replaying`, `forecasts`, `lineage`, `receipts`, `batches`, `workflows`, `tenants`,
`attack`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Final

import typer

from weft_bench.cli.options import (
    BaseUrl,
    JsonFile,
    Names,
    Option,
    Orders,
    Parsed,
    choice,
    command,
    counts,
)
from weft_bench.cli.peers import EMULATED

parts = typer.Typer()


@command(parts, "swap", "weft_bench.micro.swap.command")
@dataclass(frozen=True, slots=True)
class SwapOptions:
    """Copy KV blocks between GPU and host memory in several ways; without a GPU, the CPU path."""

    blocks: Annotated[
        tuple[int, ...],
        Parsed(partial(counts, empty=True)),
        Option(help="blocks per swap, comma-separated; default: depends on the device"),
    ] = ()
    rounds: Annotated[int, Option(min=1, max=100, help="rounds; the median is used")] = 7
    json_file: JsonFile = ""


@command(parts, "scheduler", "weft_bench.micro.scheduler.command")
@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Time schedule() per step, beside vLLM's own scheduler with its priority policy."""

    policy: Annotated[str, Option(help="order in the engine: fcfs, plas ...")] = "resident"
    running: Annotated[int, Option(min=1, max=4096, help="calls in the batch")] = 256
    waiting: Annotated[int, Option(min=1, max=100_000, help="calls in the queue")] = 1000
    rounds: Annotated[int, Option(min=1, max=100, help="rounds; medians and their spread")] = 5
    steps: Annotated[int, Option(min=1, max=400, help="steps per round")] = 200
    # Steps before the measured ones.
    warm_up: int = 300
    # Waiting calls of the cases in which KV blocks are scarce.
    scarce_waiting: tuple[int, ...] = (400, 800)
    tenants: Annotated[int, Option(min=1, max=100_000, help="tenants that own the calls")] = 1
    asynchronous: Annotated[
        bool, Option("--async/--no-async", help="two steps in flight, as on a GPU")
    ] = True
    json_file: JsonFile = ""


@command(parts, "tags", "weft_bench.micro.tags.command")
@dataclass(frozen=True, slots=True)
class TagsOptions:
    """Compare the blocks that tags select with those of a full tokenisation."""

    data: Annotated[str, Option(help="folder of the public data sets")]
    programs: Annotated[int, Option(min=0, help="programs per data set; 0: all")] = 0
    warm_up: Annotated[int, Option(min=0, help="first calls, counted separately")] = 20
    json_file: JsonFile = ""


@command(parts, "placing", "weft_bench.micro.placing")
@dataclass(frozen=True, slots=True)
class PlacingOptions:
    """Time the placement of a new program by its prompt prefix."""

    replicas: Annotated[int, Option(min=2, max=1024, help="replicas to choose from")] = 4
    rounds: Annotated[int, Option(min=1, max=10_000, help="rounds of 20 calls")] = 100
    json_file: JsonFile = ""


@command(parts, "deadlines", "weft_bench.micro.deadlines")
@dataclass(frozen=True, slots=True)
class DeadlinesOptions:
    """Time a call from its arrival to its close in the gateway, with and without deadlines."""

    replicas: Annotated[int, Option(min=1, max=1024, help="replicas to choose from")] = 4
    rounds: Annotated[int, Option(min=1, max=10_000, help="rounds of 100 calls")] = 100
    json_file: JsonFile = ""


@command(parts, "replaying", "weft_bench.micro.replaying")
@dataclass(frozen=True, slots=True)
class ReplayingOptions:
    """Measure the latency of a gateway with mock engines while a tuner's replay runs beside it.

    Exit status 1: a call failed, or no replay ended.
    """

    calls: Annotated[int, Option(min=40, max=10_000, help="calls of each replay")] = 2000
    every_ms: Annotated[float, Option(min=0.5, max=1000, help="time between two calls, ms")] = 4.0
    seconds: Annotated[float, Option(min=0.5, max=60, help="length of a window, seconds")] = 10.0
    rounds: Annotated[int, Option(min=1, max=50, help="windows of each kind")] = 5
    json_file: JsonFile = ""


@command(parts, "forecasts", "weft_bench.micro.forecasts")
@dataclass(frozen=True, slots=True)
class ForecastsOptions:
    """Compare the gateway's forecasts of answers and remaining calls with recorded programs."""

    data: Annotated[str, Option(help="folder of the recorded programs")] = ""
    sets: Annotated[Names, Option(help="workloads, or files in --data, comma-separated")] = (
        "tau_airline",
        "coding_sessions",
        "agent_calls/miniswe.jsonl.xz",
        "agent_calls/magagent.jsonl.xz",
        "text2sql-3",
    )
    programs: Annotated[int, Option(min=1, max=100_000, help="programs of each set")] = 400
    at_once: Annotated[int, Option(min=1, max=1000, help="active programs")] = 16
    seeds: Annotated[int, Option(min=1, max=100, help="number of seeds")] = 3
    first_seed: Annotated[int, Option(min=0, help="the first seed")] = 0
    json_file: JsonFile = ""


@command(parts, "lineage", "weft_bench.micro.lineage.command")
@dataclass(frozen=True, slots=True)
class LineageOptions:
    """Measure how well lineage joins the calls of recorded programs without keys, and its cost."""

    data: Annotated[str, Option(help="folder of the recorded programs: tau_airline, agent_calls")]
    sets: Annotated[Names, Option(help="sets, comma-separated; default: all")] = ()
    seed: Annotated[int, Option(min=0, help="seed of program starts")] = 0
    rounds: Annotated[int, Option(min=1, max=1000, help="timed calls of each kind")] = 100
    names: Annotated[bool, Option(help="give the calls names that mislead, instead")] = False
    json_file: JsonFile = ""


@command(parts, "receipts", "weft_bench.micro.receipts")
@dataclass(frozen=True, slots=True)
class ReceiptsOptions:
    """Time the storage of receipts, below and at the limit, with one and many tenants."""

    limit: Annotated[int, Option(min=1, max=1_000_000, help="receipts kept")] = 4096
    rounds: Annotated[int, Option(min=1, max=1000, help="rounds; the median is used")] = 9
    json_file: JsonFile = ""


@command(parts, "batches", "weft_bench.micro.batches")
@dataclass(frozen=True, slots=True)
class BatchesOptions:
    """Measure processor time and memory of a gateway that runs a batch on a mock engine. With
    --beside: measure chats beside many rows on emulated engines instead.

    Exit status 1: a request has no result, a goal is missed, or the machine was too slow for
    emulated engines.
    """

    requests: Annotated[int, Option(min=1, max=50_000, help="requests of the batch")] = 50_000
    characters: Annotated[int, Option(min=2, max=100_000, help="of each prompt")] = 3000
    topics: Annotated[int, Option(min=1, max=10_000, help="common beginnings of prompts")] = 100
    beside: Annotated[
        int, Option(min=0, max=10_000, help="rows beside chats; the following options are for it")
    ] = 0
    chats: Annotated[
        float, Option(min=0.01, max=1000, help="chats per replica and engine second")
    ] = 4.0
    preset: Annotated[str, Option(help="preset of the emulated engines")] = "8b-a100"
    replicas: Annotated[int, Option(min=1, max=16, help="emulated engines")] = 2
    slots: Annotated[int, Option(min=1, max=1024, help="of each engine")] = 16
    dilate: Annotated[float, Option(min=1, max=100, help="factor of all times of engines")] = 2.0
    seed: Annotated[int, Option(min=0, help="seed of prompts and arrivals")] = 1
    json_file: JsonFile = ""


GROUPED: Final = "grouped"
SHUFFLED: Final = "shuffled"
ORDERS_OF_ROWS: Final = (GROUPED, SHUFFLED)


TATQA: Final = "tatqa"
SPIDER: Final = "spider"
WORKFLOWS: Final = (TATQA, SPIDER)
_PRESETS: Final = {TATQA: "8b-a100", SPIDER: "8b-a100,32b-a100"}
_REPLICAS: Final = {TATQA: 2, SPIDER: 4}


def _with_defaults(_: typer.Context, options: WorkflowsOptions) -> WorkflowsOptions:
    if options.workload == SPIDER and not options.emulated:
        raise typer.BadParameter("spider needs two models: it runs on emulated engines only")
    return options.whole()


@command(parts, "workflows", "weft_bench.mapred.command", check=_with_defaults)
@dataclass(frozen=True, slots=True)
class WorkflowsOptions:
    """Compare `weft run` with LangGraph on map-reduce over TAT-QA, or with LangGraph and Helium's
    Algorithm 1 on text to SQL over Spider with two models.

    Needs langgraph and langchain-openai. Exit status 1: a goal is missed, answers differ, or the
    machine was too slow for emulated engines.
    """

    data: Annotated[str, Option(help="folder of the recorded workloads")]
    workload: Annotated[
        str,
        choice("weft_bench.cli.parts:WORKFLOWS"),
        Option(help="tatqa, or spider: emulated engines of two models"),
    ] = TATQA
    engines: Annotated[
        str,
        choice("weft_bench.cli.peers:ENGINES"),
        Option(help="emulated, or real: vLLM with the demo model on a CPU"),
    ] = EMULATED
    base_url: BaseUrl = ""
    replicas: Annotated[
        int, Option(min=0, max=16, help="engines; 0: two for tatqa, four for spider")
    ] = 0
    rows: Annotated[
        tuple[str, ...],
        choice("weft_bench.cli.parts:ORDERS_OF_ROWS", several=True),
        Option(help="orders of the rows: grouped, shuffled, or both, comma-separated"),
    ] = ORDERS_OF_ROWS
    contexts: Annotated[
        int,
        Option(min=1, max=250, help="contexts of six questions; spider: databases of twelve"),
    ] = 14
    tokens: Annotated[int, Option(min=1, max=1024, help="tokens of an answer")] = 32
    seeds: Annotated[int, Option(min=1, max=100, help="draws of the contexts")] = 1
    first_seed: Annotated[int, Option(min=0, help="the first of them")] = 0
    slots: Annotated[int, Option(min=1, help="calls that a replica runs at once")] = 16
    kv_blocks: Annotated[int, Option(min=64, help="KV blocks of a replica")] = 2000
    preset: Annotated[
        str,
        Option(
            help="emulated: engines in turn; default: 8b-a100, for spider 8b-a100,32b-a100 (the "
            "small model first)"
        ),
    ] = ""
    dilate: Annotated[
        float, Option(min=0.001, help="emulated: factor on all times of the engines")
    ] = 4.0
    json_file: JsonFile = ""

    @property
    def emulated(self) -> bool:
        """Whether the engines are emulated."""
        return self.engines == EMULATED

    def whole(self) -> WorkflowsOptions:
        """Return the options with the defaults of the workload."""
        replicas = self.replicas or _REPLICAS[self.workload]
        return replace(self, replicas=replicas, preset=self.preset or _PRESETS[self.workload])


@command(parts, "tenants", "weft_bench.tenants.command")
@dataclass(frozen=True, slots=True)
class TenantsOptions:
    """Measure an honest tenant next to an attacker that uses many calls, pinned KV blocks or long
    prompts.

    Exit status 1: a goal is missed, an attack did not take place, or a control does no harm.
    """

    policies: Annotated[
        Orders, Option("--policy", help="orders in the engine, comma-separated, or 'all'")
    ] = ("resident", "plas", "vtc", "fcfs")
    base_url: BaseUrl = ""
    agents: Annotated[int, Option(min=1, max=64, help="honest agents")] = 4
    threads: Annotated[int, Option(min=1, max=256, help="attacking threads")] = 24
    slots: Annotated[int, Option(min=1, max=256, help="concurrent calls of the engine")] = 4
    kv_blocks: Annotated[int, Option(min=64, help="KV blocks of the engine")] = 300
    calls: Annotated[
        int, Option(min=1, max=1000, help="calls of each honest agent in a repeat")
    ] = 12
    max_tokens: Annotated[int, Option(min=1, max=1024, help="tokens of an answer")] = 96
    repeats: Annotated[int, Option(min=1, max=50, help="repeats of each column")] = 3
    # Honest calls around each attack on pinned blocks.
    rounds: int = 8
    json_file: JsonFile = ""


@command(parts, "attack", "weft_bench.attack.command")
@dataclass(frozen=True, slots=True)
class AttackOptions:
    """Measure the cost of attacks on a gateway with mock engines for an honest client.

    Exit status 1: a goal is missed, or an attack did not take place.
    """

    seconds: Annotated[float, Option(min=0.2, max=60, help="length of each window")] = 6.0
    rounds: Annotated[int, Option(min=1, max=20, help="windows alone and during each attack")] = 3
    # Empty: all.
    attacks: Annotated[
        tuple[str, ...],
        choice("weft_bench.attack.attacks:ATTACKS", several=True, empty=True),
        Option(help="attacks by name, comma-separated; default: all"),
    ] = ()
    goal_ms: Annotated[
        float, Option(help="goal for the worst call during an attack minus the worst alone")
    ] = 100.0
    json_file: JsonFile = ""
