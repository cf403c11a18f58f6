"""The commands that measure one part: `weft bench swap`, `scheduler`, `tags`, `placing`, `lineage`,
`receipts`, `tenants`, `attack`."""

from __future__ import annotations

from typing import Annotated

import typer

from weft_gateway.options import counts, one_of, writable

parts = typer.Typer()


@parts.command("swap")
def bench_swap(
    blocks: Annotated[
        str, typer.Option(help="blocks a swap, comma-separated; default: what the device is for")
    ] = "",
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds; the median counts")] = 7,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """KV blocks between a GPU and host memory, beside other ways; without a GPU, the CPU path."""
    from weft_bench.swap.command import SwapOptions, run

    wanted = counts(blocks, "--blocks", empty=True)
    raise typer.Exit(run(SwapOptions(blocks=wanted, rounds=rounds, json_file=json_file)))


@parts.command("scheduler")
def bench_scheduler(
    policy: Annotated[str, typer.Option(help="order in the engine: fcfs, plas ...")] = "warm_plas",
    running: Annotated[int, typer.Option(min=1, max=4096, help="calls in the batch")] = 256,
    waiting: Annotated[int, typer.Option(min=1, max=100_000, help="calls in the queue")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds; their medians' spread")] = 5,
    steps: Annotated[int, typer.Option(min=1, max=400, help="steps a round")] = 200,
    tenants: Annotated[
        int, typer.Option(min=1, max=100_000, help="tenants that the calls belong to, by turns")
    ] = 1,
    asynchronous: Annotated[
        bool, typer.Option("--async/--no-async", help="two steps in flight, as on a GPU")
    ] = True,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """What schedule() takes in each step, beside vLLM's own scheduler with its priority policy."""
    from weft_bench.scheduler.command import SchedulerOptions, run

    options = SchedulerOptions(
        policy=policy,
        running=running,
        waiting=waiting,
        rounds=rounds,
        steps=steps,
        tenants=tenants,
        asynchronous=asynchronous,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@parts.command("tags")
def bench_tags(
    data: Annotated[str, typer.Option(help="folder of the public data sets")],
    programs: Annotated[int, typer.Option(min=0, help="programs a data set; 0: all")] = 0,
    warm_up: Annotated[int, typer.Option(min=0, help="first calls that are counted apart")] = 20,
    json_file: Annotated[str, typer.Option("--json", help="write the figures here")] = "",
) -> None:
    """Whether tags land on the blocks on which a full tokenisation would put them."""
    from weft_bench.tags.command import TagsOptions, run

    options = TagsOptions(data=data, programs=programs, warm_up=warm_up, json_file=json_file)
    raise typer.Exit(run(options))


@parts.command("placing")
def bench_placing(
    replicas: Annotated[int, typer.Option(min=2, max=1024, help="to choose among")] = 4,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="rounds of 20 calls")] = 100,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """What a call costs that chooses its program's home by what prompts begin with."""
    from weft_bench.placing.command import PlacingOptions, run

    raise typer.Exit(run(PlacingOptions(replicas, rounds, json_file)))


@parts.command("lineage")
def bench_lineage(
    data: Annotated[
        str, typer.Option(help="folder of the recorded programs: tau_airline, agent_calls")
    ],
    sets: Annotated[str, typer.Option(help="sets, comma-separated; default: all")] = "",
    seed: Annotated[int, typer.Option(min=0, help="when programs begin")] = 0,
    rounds: Annotated[
        int, typer.Option(min=1, max=1000, help="calls of each kind whose time is taken")
    ] = 100,
    json_file: Annotated[str, typer.Option("--json", help="write the figures here")] = "",
) -> None:
    """Recorded programs with their keys hidden: which calls the gateway puts together, and at what
    cost."""
    from weft_bench.lineage.command import LineageOptions, run

    names = tuple(name for name in sets.split(",") if name)
    raise typer.Exit(run(LineageOptions(data, names, seed, rounds, json_file)))


@parts.command("receipts")
def bench_receipts(
    limit: Annotated[int, typer.Option(min=1, max=1_000_000, help="receipts kept")] = 4096,
    rounds: Annotated[int, typer.Option(min=1, max=1000, help="rounds; the median counts")] = 9,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """What keeping a call's receipt takes, with room and once it is taken, by tenants."""
    from weft_bench.receipts.command import ReceiptsOptions, run

    raise typer.Exit(run(ReceiptsOptions(limit, rounds, json_file)))


@parts.command("tenants")
def bench_tenants(
    policy: Annotated[
        str, typer.Option(help="orders in the engine, comma-separated")
    ] = "warm_plas,plas,vtc,fcfs",
    base_url: Annotated[
        str, typer.Option(help="a gateway that runs already; default: a stack of its own")
    ] = "",
    agents: Annotated[int, typer.Option(min=1, max=64, help="honest agents")] = 4,
    threads: Annotated[int, typer.Option(min=1, max=256, help="attacking threads")] = 24,
    slots: Annotated[int, typer.Option(min=1, max=256, help="calls that the engine runs")] = 4,
    kv_blocks: Annotated[int, typer.Option(min=64, help="KV blocks of the engine")] = 300,
    calls: Annotated[
        int, typer.Option(min=1, max=1000, help="calls of each honest agent in a repeat")
    ] = 12,
    max_tokens: Annotated[int, typer.Option(min=1, max=1024, help="tokens of an answer")] = 96,
    repeats: Annotated[int, typer.Option(min=1, max=50, help="of each column")] = 3,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """An honest tenant beside one that attacks: with many calls, and with pinned KV blocks. Exit
    status 1: a goal is missed, or an attack did not take place or proves nothing."""
    from weft_bench.tenants.command import TenantsOptions, run
    from weft_engine.wire import ORDER_NAMES

    policies = one_of(policy, ORDER_NAMES, "--policy")
    options = TenantsOptions(
        policies=policies,
        base_url=base_url,
        agents=agents,
        threads=threads,
        slots=slots,
        kv_blocks=kv_blocks,
        calls=calls,
        max_tokens=max_tokens,
        repeats=repeats,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@parts.command("attack")
def bench_attack(
    seconds: Annotated[float, typer.Option(min=0.2, max=60, help="of each window")] = 6.0,
    rounds: Annotated[
        int, typer.Option(min=1, max=20, help="windows alone, and beside each attack")
    ] = 3,
    attacks: Annotated[
        str, typer.Option(help="attacks, comma-separated, as the table names them; default: all")
    ] = "",
    goal_ms: Annotated[
        float, typer.Option(help="goal for the worst call above the worst one alone")
    ] = 100.0,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """What an honest client notices of attacks on the same gateway, which runs in front of mock
    engines. Exit status 1: a goal is missed, or an attack did not take place."""
    from weft_bench.attack.command import AttackOptions, run

    names = tuple(name.strip() for name in attacks.split(",") if name.strip())
    raise typer.Exit(run(AttackOptions(seconds, rounds, names, goal_ms, json_file)))
