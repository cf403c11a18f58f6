"""The commands that load a gateway over HTTP: `weft bench replay`, `overhead`, `overlap`."""

from __future__ import annotations

from typing import Annotated, Final

import typer
from weft_deploy.options import exclude

from weft_bench.cli.options import JsonFile, counts, names, one_of, some_of, writable

load = typer.Typer()

# Options of `replay` that only apply to engines that it starts itself.
_OF_OWN_ENGINES: Final = (
    "replicas", "slots", "kv_blocks", "max_model_len", "swap_gib", "first_quantum",
)  # fmt: skip


@load.command("replay")
def bench_replay(
    context: typer.Context,
    trace: Annotated[str, typer.Option(help="file or folder of a real trace")] = "",
    policy: Annotated[
        str,
        typer.Option(
            help="orders to compare, comma-separated, or 'all'; the first is the baseline"
        ),
    ] = "fcfs,plas",
    base_url: Annotated[
        str, typer.Option(help="a running gateway; default: start one as `weft up` does")
    ] = "",
    programs: Annotated[int, typer.Option(min=1, help="programs to play")] = 24,
    rate: Annotated[float, typer.Option(min=0.001, help="program arrivals per second")] = 1.0,
    arrivals: Annotated[
        str,
        typer.Option(help="poisson, bursty, stepped, or recorded: the trace's, rescaled"),
    ] = "poisson",
    seed: Annotated[int, typer.Option(help="seed of arrivals and of the sample")] = 0,
    gap_scale: Annotated[float, typer.Option(min=0.0, help="factor on tool gaps")] = 1.0,
    max_gap: Annotated[float, typer.Option(min=0.0, help="limit of a gap, seconds")] = 10.0,
    output_scale: Annotated[float, typer.Option(min=0.01, help="factor on answers' length")] = 1.0,
    replicas: Annotated[int, typer.Option(min=1, help="engines to start")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="calls that an engine runs at once")] = 4,
    kv_blocks: Annotated[
        int, typer.Option(min=0, help="KV blocks of an engine; 0: vLLM's default")
    ] = 0,
    max_model_len: Annotated[
        int, typer.Option(min=0, help="longest context, tokens; 0: the model's")
    ] = 0,
    swap_gib: Annotated[
        float, typer.Option(min=0.0, help="host memory for KV of preempted calls, GiB; 0: no swap")
    ] = 0.0,
    tags: Annotated[
        str, typer.Option(help="evict KV blocks by tag: on, off, or 'off,on' for both")
    ] = "on",
    first_quantum: Annotated[
        float, typer.Option(min=0.001, help="first queue's quantum, s; small for the demo model")
    ] = 0.1,
    json_file: JsonFile = "",
    plot: Annotated[str, typer.Option(callback=writable, help="write a PNG here")] = "",
) -> None:
    """Replay agent dialogues as closed-loop programs, once per policy, on the same replicas."""
    from weft_engine.wire import ORDER_NAMES

    from weft_bench.replay.command import ReplayOptions, run
    from weft_bench.workloads.arrivals import KINDS, RECORDED

    if base_url:
        exclude(context, "--base-url", _OF_OWN_ENGINES, "its engines are running")
    tagged = {"on": True, "off": False}
    options = ReplayOptions(
        trace=trace,
        policies=some_of(policy, ORDER_NAMES, "--policy"),
        base_url=base_url,
        programs=programs,
        rate=rate,
        arrivals=one_of(arrivals, (*KINDS, RECORDED), "--arrivals"),
        seed=seed,
        gap_scale=gap_scale,
        max_gap_s=max_gap,
        output_scale=output_scale,
        replicas=replicas,
        slots=slots,
        kv_blocks=kv_blocks,
        max_model_len=max_model_len,
        swap_gib=swap_gib,
        tags=tuple(tagged[name] for name in some_of(tags, tuple(tagged), "--tags")),
        first_quantum_s=first_quantum,
        json_file=json_file,
        plot=plot,
    )
    raise typer.Exit(run(options))


@load.command("overhead")
def bench_overhead(
    peers: Annotated[
        str,
        typer.Option(
            help="peers, comma-separated; 'none': Weft alone, 'bare': Weft without lineage, tags "
            "and receipts",
        ),
    ] = "litellm,vllm-router",
    concurrency: Annotated[str, typer.Option(help="concurrent calls, comma-separated")] = "1,8,64",
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="requests per cell")] = 2000,
    seconds: Annotated[
        float, typer.Option(min=0, max=60, help="minimum time of a cell, seconds")
    ] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="rounds; the median is used")] = 3,
    session: Annotated[
        bool, typer.Option("--session", help="calls name their program, as most agents' do")
    ] = False,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="prompts differ, as in first turns")
    ] = False,
    plugin: Annotated[
        bool,
        typer.Option("--plugin", help="engines report Weft's plugin; calls then carry tags"),
    ] = False,
    json_file: JsonFile = "",
) -> None:
    """Measure requests/s and added latency of Weft and its peers with a fast mock engine."""
    from weft_bench.overhead.command import OverheadOptions, run

    options = OverheadOptions(
        peers=tuple(name for name in names(peers) if name != "none"),
        concurrency=counts(concurrency, "--concurrency"),
        requests=requests,
        seconds=seconds,
        rounds=rounds,
        session=session,
        distinct=distinct,
        plugin=plugin,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@load.command("overlap")
def bench_overlap(
    context: typer.Context,
    base_url: Annotated[
        str, typer.Option(help="a running gateway; default: start one as `weft up` does")
    ] = "",
    requests: Annotated[int, typer.Option(min=1, help="requests per seed")] = 12,
    rate: Annotated[
        float, typer.Option(min=0.0, help="requests per second; 0: as many at once as in the paper")
    ] = 0.0,
    seeds: Annotated[int, typer.Option(min=1, help="sets of requests, one after another")] = 4,
    seed: Annotated[int, typer.Option(help="the first seed")] = 0,
    changed: Annotated[
        float, typer.Option(min=0, max=1, help="share of turns with another system prompt")
    ] = 1.0,
    replicas: Annotated[int, typer.Option(min=1, help="engines to start")] = 1,
    max_model_len: Annotated[
        int, typer.Option(min=8192, help="longest context, tokens; scales the prompts")
    ] = 32_768,
    kv_blocks: Annotated[
        int,
        typer.Option(min=0, help="KV blocks of an engine; 0: 12 median prompts, as in paper"),
    ] = 0,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="3 requests, nearly at once; a minute after startup"),
    ] = False,
    json_file: JsonFile = "",
) -> None:
    """Measure agents' requests without and with prompt splitting, streaming dispatch and tags."""
    from weft_bench.overlap.command import OverlapOptions, run

    if base_url:
        exclude(
            context,
            "--base-url",
            ("replicas", "max_model_len", "kv_blocks"),
            "its engines are running",
        )
    if quick:
        exclude(context, "--quick", ("requests", "seeds", "rate"), "--quick sets them")
        requests, seeds, rate = 3, 1, 1.0
    options = OverlapOptions(
        base_url=base_url,
        requests=requests,
        rate=rate,
        seeds=seeds,
        seed=seed,
        changed=changed,
        replicas=replicas,
        max_model_len=max_model_len,
        kv_blocks=kv_blocks,
        json_file=json_file,
    )
    raise typer.Exit(run(options))
