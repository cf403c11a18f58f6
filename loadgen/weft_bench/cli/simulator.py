"""The commands of the simulator: `weft bench sim`, `fit`, `truth`, and its inputs: `workload`."""

from __future__ import annotations

from typing import Annotated

import typer

from weft_bench.cli.options import JsonFile, names, one_of, writable

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
            help="8b, 14b or 70b on a100, h100, l40 or a6000, such as 8b-a100, or a file of `weft "
            "bench fit`; several, comma-separated, for unequal replicas"
        ),
    ] = "8b-a100",
    replicas: Annotated[int, typer.Option(min=1, max=256, help="engines to simulate")] = 1,
    programs: Annotated[int, typer.Option(min=1, help="programs to play")] = 200,
    rate: Annotated[float, typer.Option(min=0.0001, help="program arrivals per second")] = 1.0,
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursty, stepped, or recorded: the trace's")
    ] = "poisson",
    seeds: Annotated[int, typer.Option(min=1, max=100, help="seeds to average over")] = 3,
    slots: Annotated[int, typer.Option(min=0, help="concurrent calls; 0: the preset's")] = 0,
    kv_blocks: Annotated[int, typer.Option(min=0, help="KV blocks; 0: the preset's")] = 0,
    swap_gib: Annotated[
        float, typer.Option(min=0.0, help="host memory for KV of preempted calls, GiB; 0: no swap")
    ] = 0.0,
    tags: Annotated[bool, typer.Option("--tags/--no-tags", help="evict KV blocks by tag")] = True,
    prefix_cache: Annotated[
        bool, typer.Option("--prefix-cache/--no-prefix-cache", help="vLLM's prefix cache")
    ] = True,
    first_quantum: Annotated[
        float, typer.Option(min=0.0, help="first queue's quantum, s; 0: the order's default")
    ] = 0.0,
    naive: Annotated[
        bool, typer.Option("--naive", help="run one scheduler step per token; same result, slower")
    ] = False,
    steady: Annotated[
        bool,
        typer.Option("--steady", help="only count programs that arrive in the middle half"),
    ] = False,
    asynchronous: Annotated[
        bool,
        typer.Option("--async-scheduling", help="schedule a step during the previous one; slower"),
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="also print a CPU profile")] = False,
    json_file: JsonFile = "",
) -> None:
    """Simulate: vLLM's scheduler, Weft's orders and routing, and a cost model of the engine."""
    from weft_engine.wire import ORDER_NAMES

    from weft_bench.virtual.command import SimOptions, run
    from weft_bench.workloads.arrivals import KINDS, RECORDED

    options = SimOptions(
        workload=workload,
        policies=ORDER_NAMES if policy.strip() == "all" else names(policy),
        balancers=names(balancer),
        preset=preset,
        replicas=replicas,
        programs=programs,
        rate=rate,
        arrivals=one_of(arrivals, (*KINDS, RECORDED), "--arrivals"),
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
        raise typer.BadParameter("--policy or --balancer is empty")
    raise typer.Exit(run(options))


@simulator.command("fit")
def bench_fit(
    engine: Annotated[str, typer.Option(help="base URL of an idle engine of `weft replica`")],
    swap_engine: Annotated[
        str,
        typer.Option(help="a second engine with one slot and swap, to fit the cost of swapping"),
    ] = "",
    slots: Annotated[int, typer.Option(min=1, help="its --max-num-seqs")] = 16,
    step_tokens: Annotated[int, typer.Option(min=1, help="its --max-num-batched-tokens")] = 2048,
    kv_blocks: Annotated[int, typer.Option(min=2, help="its KV blocks")] = 1000,
    block_tokens: Annotated[int, typer.Option(min=1, help="its --block-size")] = 32,
    block_bytes: Annotated[int, typer.Option(min=1, help="bytes of one of its KV blocks")] = 65_536,
    context: Annotated[int, typer.Option(min=64, help="its --max-model-len")] = 8192,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="rounds; the fastest is used")] = 5,
    json_file: Annotated[
        str,
        typer.Option(
            "--json", callback=writable, help="write the model here, for `weft bench sim --preset`"
        ),
    ] = "",
) -> None:
    """Fit the simulator's cost model to the step times of a running engine."""
    from weft_bench.costs.command import FitOptions, run

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
        int, typer.Option(min=1, max=20, help="rounds of all orders; the medians are used")
    ] = 3,
    json_file: JsonFile = "",
) -> None:
    """Compare the simulator with a real engine on this machine: same programs, fitted costs."""
    from weft_bench.truth.command import TruthOptions, run

    options = TruthOptions(
        policies=names(policy),
        programs=programs,
        rate=rate,
        slots=slots,
        kv_blocks=kv_blocks,
        seed=seed,
        rounds=rounds,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@simulator.command("workload")
def bench_workload(
    name: Annotated[str, typer.Option(help="name of a workload generated from statistics")] = "",
    programs: Annotated[
        int, typer.Option(min=0, help="programs; 0: 100 to write, 1000 to describe, all of a file")
    ] = 0,
    seed: Annotated[int, typer.Option(help="random seed")] = 0,
    rate: Annotated[float, typer.Option(min=0.001, help="program arrivals per second")] = 1.0,
    arrivals: Annotated[str, typer.Option(help="poisson, bursty or stepped")] = "poisson",
    out: Annotated[
        str, typer.Option(callback=writable, help="write the workload here; .xz is compressed")
    ] = "",
    describe: Annotated[
        str, typer.Option(help="files or names of workloads, comma-separated, or 'all'")
    ] = "",
    shrink: Annotated[
        int, typer.Option(min=1, help="divide lengths of traces without text by this")
    ] = 1,
    markdown: Annotated[bool, typer.Option(help="print one Markdown row per workload")] = False,
    json_file: JsonFile = "",
) -> None:
    """Write a workload to a file that `bench replay` plays, or describe workloads."""
    from weft_bench.workloads.arrivals import KINDS
    from weft_bench.workloads.command import WorkloadOptions, run

    options = WorkloadOptions(
        name=name,
        programs=programs,
        seed=seed,
        rate=rate,
        arrivals=one_of(arrivals, tuple(KINDS), "--arrivals"),
        out=out,
        describe=names(describe),
        shrink=shrink,
        markdown=markdown,
        json_file=json_file,
    )
    raise typer.Exit(run(options))
