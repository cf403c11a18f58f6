"""The commands of the simulator: `weft bench sim`, `weft bench fit`, `weft bench truth`."""

from __future__ import annotations

from typing import Annotated

import typer

from weft_gateway.options import one_name, writable

simulator = typer.Typer()


@simulator.command("sim")
def bench_sim(
    workload: Annotated[
        str,
        typer.Option(help="a name of `weft bench workload`, or file or folder of a real trace"),
    ] = "dialogues",
    policy: Annotated[
        str, typer.Option(help="orders to compare, comma-separated, or 'all'")
    ] = "fcfs,plas",
    balancer: Annotated[
        str, typer.Option(help="balancers to compare, comma-separated")
    ] = "locality",
    preset: Annotated[
        str,
        typer.Option(
            help="8b, 14b or 70b on a100, h100, l40 or a6000, as 8b-a100, or a file of `weft bench "
            "fit`; several, comma-separated, for unequal replicas"
        ),
    ] = "8b-a100",
    replicas: Annotated[int, typer.Option(min=1, max=256, help="engines to simulate")] = 1,
    programs: Annotated[int, typer.Option(min=1, help="programs to play")] = 200,
    rate: Annotated[float, typer.Option(min=0.0001, help="program arrivals per second")] = 1.0,
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursty, stepped, or recorded: the trace's")
    ] = "poisson",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="seeds; means are over them")] = 3,
    slots: Annotated[int, typer.Option(min=0, help="calls at once; 0: the preset's")] = 0,
    kv_blocks: Annotated[int, typer.Option(min=0, help="KV blocks; 0: the preset's")] = 0,
    swap_gib: Annotated[
        float, typer.Option(min=0.0, help="host memory for displaced calls' KV, GiB; 0: no swap")
    ] = 0.0,
    tags: Annotated[
        bool, typer.Option("--tags/--no-tags", help="evict KV blocks by what they hold")
    ] = True,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache/--no-prefix-cache", help="vLLM's prefix cache")
    ] = True,
    first_quantum: Annotated[
        float, typer.Option(min=0.0, help="first queue's quantum, s; 0: the orders' own")
    ] = 0.0,
    naive: Annotated[
        bool, typer.Option("--naive", help="a step of the scheduler for each token: same, slower")
    ] = False,
    steady: Annotated[
        bool,
        typer.Option("--steady", help="figures of programs that arrive in the middle half alone"),
    ] = False,
    asynchronous: Annotated[
        bool,
        typer.Option("--async-scheduling", help="schedule a step while the last one runs; slower"),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="also say in which functions the CPU time was spent")
    ] = False,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """Simulate: vLLM's scheduler, our orders and routing, a model that only costs time."""
    from weft_bench.arrivals import KINDS, RECORDED
    from weft_bench.sim_command import SimOptions, run
    from weft_engine.wire import ORDER_NAMES

    names = ORDER_NAMES if policy.strip() == "all" else tuple(p.strip() for p in policy.split(","))
    options = SimOptions(
        workload=workload,
        policies=tuple(dict.fromkeys(name for name in names if name)),
        balancers=tuple(dict.fromkeys(b.strip() for b in balancer.split(",") if b.strip())),
        preset=preset,
        replicas=replicas,
        programs=programs,
        rate=rate,
        arrivals=one_name(arrivals, (*KINDS, RECORDED), "--arrivals"),
        seeds=seeds,
        slots=slots,
        kv_blocks=kv_blocks,
        swap_gib=swap_gib,
        tags=tags,
        prefix_cache=prefix_cache,
        first_quantum_s=first_quantum,
        naive=naive,
        steady=steady,
        asynchronous=asynchronous,
        profile=profile,
        json_file=json_file,
    )
    if not options.policies or not options.balancers:
        raise typer.BadParameter("no order or no balancer is named")
    raise typer.Exit(run(options))


@simulator.command("fit")
def bench_fit(
    engine: Annotated[str, typer.Option(help="base URL of an idle engine of `weft replica`")],
    swap_engine: Annotated[
        str,
        typer.Option(help="another one, with one slot and swap: what a swapped block takes"),
    ] = "",
    slots: Annotated[int, typer.Option(min=1, help="its --max-num-seqs")] = 16,
    step_tokens: Annotated[int, typer.Option(min=1, help="its --max-num-batched-tokens")] = 2048,
    kv_blocks: Annotated[int, typer.Option(min=2, help="its KV blocks")] = 1000,
    block_tokens: Annotated[int, typer.Option(min=1, help="its --block-size")] = 32,
    block_bytes: Annotated[int, typer.Option(min=1, help="bytes of one of its KV blocks")] = 65_536,
    context: Annotated[int, typer.Option(min=64, help="its --max-model-len")] = 8192,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds; the quickest counts")] = 5,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", callback=writable, help="write the model here, for `weft bench sim --preset`"
        ),
    ] = "",
) -> None:
    """Fit the simulator's cost model to a running engine, by what its steps take."""
    from weft_bench.fitting.command import FitOptions, run

    options = FitOptions(
        engine=engine,
        swap_engine=swap_engine,
        slots=slots,
        step_tokens=step_tokens,
        kv_blocks=kv_blocks,
        block_tokens=block_tokens,
        block_bytes=block_bytes,
        context=context,
        rounds=rounds,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@simulator.command("truth")
def bench_truth(
    policy: Annotated[str, typer.Option(help="orders, comma-separated")] = "fcfs,plas",
    programs: Annotated[int, typer.Option(min=1, help="programs to play")] = 30,
    rate: Annotated[float, typer.Option(min=0.001, help="program arrivals per second")] = 6.0,
    slots: Annotated[int, typer.Option(min=1, help="calls that the engine runs at once")] = 2,
    kv_blocks: Annotated[int, typer.Option(min=64, help="KV blocks of the engine")] = 1000,
    seed: Annotated[int, typer.Option(help="seed of programs and arrivals")] = 0,
    rounds: Annotated[
        int, typer.Option(min=1, max=20, help="rounds of all orders; the medians count")
    ] = 3,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """Compare the simulator with a real engine on this machine: same programs, fitted costs."""
    from weft_bench.truth.command import TruthOptions, run

    options = TruthOptions(
        policies=tuple(dict.fromkeys(p.strip() for p in policy.split(",") if p.strip())),
        programs=programs,
        rate=rate,
        slots=slots,
        kv_blocks=kv_blocks,
        seed=seed,
        rounds=rounds,
        json_file=json_file,
    )
    raise typer.Exit(run(options))
