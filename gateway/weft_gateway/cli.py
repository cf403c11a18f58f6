"""The `weft` command. Each command imports what it needs when it runs, so that `weft --help` is
fast and the gateway alone needs neither torch nor vLLM."""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from weft_gateway.cli_experiments import experiments
from weft_gateway.cli_gpu import gpu
from weft_gateway.cli_parts import parts
from weft_gateway.cli_peers import peers
from weft_gateway.cli_simulator import simulator
from weft_gateway.options import Passing, counts, exclude, given, one_name, one_of, writable

app = typer.Typer(
    name="weft",
    help="Serve agent programs, not calls: an OpenAI-compatible gateway in front of vLLM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(help="Measure: replay real programs, compare proxies.", no_args_is_help=True)
bench.add_typer(parts)
bench.add_typer(simulator)
bench.add_typer(experiments)
bench.add_typer(gpu)
bench.add_typer(peers)
app.add_typer(bench, name="bench")

DEFAULT_PORT = 8080
JsonFile = Annotated[str, typer.Option("--json", callback=writable, help="write the figures here")]
# Options of a replay that only engines which it starts itself can follow.
_OF_OWN_ENGINES = (
    "replicas", "slots", "kv_blocks", "max_model_len", "swap_gib", "first_quantum",
)  # fmt: skip
_OF_SIMULATED = ("preset", "slots", "kv_blocks", "speed_up", "answer_tokens", "scheduler")


@app.command(cls=Passing)
def up(
    context: typer.Context,
    replicas: Annotated[int, typer.Option(min=1, max=64, help="engines to start")] = 2,
    model: Annotated[str, typer.Option(help="model name or folder; default: the demo model")] = "",
    attach: Annotated[
        list[str] | None, typer.Option(help="[NAME=]URL of an engine that runs already; repeatable")
    ] = None,
    redis: Annotated[str, typer.Option(help="process table on Redis; default: in memory")] = "",
    policy: Annotated[str, typer.Option(help="order in the engines: fcfs, plas ...")] = "warm_plas",
    balancer: Annotated[str, typer.Option(help="locality, round_robin or least_used")] = "locality",
    host: Annotated[str, typer.Option(help="address of the gateway")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port of the gateway")] = DEFAULT_PORT,
) -> None:
    """Start everything on this machine: engines, the gateway, and print its base URL.

    What follows `--` goes to every engine as it is."""
    from weft_deploy.local.up import UpOptions, run

    if attach:
        exclude(
            context,
            "--attach",
            ("replicas", "model", "policy"),
            "engines that run already keep what they were started with",
        )
    options = UpOptions(
        replicas=replicas,
        model=model,
        attach=tuple(attach or ()),
        redis_url=redis,
        policy=policy,
        balancer=balancer,
        host=host,
        port=port,
        engine_arguments=tuple(context.args),
    )
    raise typer.Exit(run(options))


@app.command()
def serve(
    replica: Annotated[
        list[str] | None,
        typer.Option(help="URL or NAME=URL of an engine; repeatable (WEFT_REPLICAS)"),
    ] = None,
    redis: Annotated[
        str | None, typer.Option(help="process table on Redis (WEFT_REDIS_URL)")
    ] = None,
    balancer: Annotated[str | None, typer.Option(help="locality, round_robin, least_used")] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on (WEFT_HOST)")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on (WEFT_PORT)")] = None,
) -> None:
    """Run the gateway alone. Every setting can also come from WEFT_* variables."""
    from weft_gateway.config import SettingsError, exposed, load, unread
    from weft_gateway.serve import run

    try:
        settings = load(
            replicas=",".join(replica) if replica else None,
            redis_url=redis,
            balancer=balancer,
            host=host,
            port=port,
        )
    except SettingsError as error:
        for line in str(error).splitlines():
            typer.echo(f"weft serve: {line}", err=True)
        raise typer.Exit(2) from None
    for line in (*unread(os.environ), *exposed(settings)):
        typer.echo(f"weft serve: warning: {line}", err=True)
    raise typer.Exit(run(settings))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def replica(
    context: typer.Context,
    model: Annotated[str, typer.Option(help="model name or folder")] = "",
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="port to listen on")] = 8001,
    policy: Annotated[str, typer.Option(help="order, as fcfs, plas or atlas")] = "warm_plas",
    simulated: Annotated[
        bool, typer.Option("--simulated", help="no vLLM and no model: an engine's API and pace")
    ] = False,
    preset: Annotated[
        str, typer.Option(help="simulated: 8b, 14b or 70b on a GPU, or a file of `weft bench fit`")
    ] = "8b-a100",
    slots: Annotated[int, typer.Option(min=0, help="simulated: calls at once; 0: preset's")] = 0,
    kv_blocks: Annotated[int, typer.Option(min=0, help="simulated: KV blocks; 0: preset's")] = 0,
    speed_up: Annotated[float, typer.Option(help="simulated: all times divided by this")] = 1.0,
    answer_tokens: Annotated[
        int, typer.Option(min=1, help="simulated: answers where a call sets no limit")
    ] = 50,
    scheduler: Annotated[
        str, typer.Option(help="simulated: plain, or vllm for its own (takes seconds to start)")
    ] = "plain",
) -> None:
    """Run one vLLM engine with Weft's plugin. Further arguments go to vLLM as they are.

    With --simulated, run a replica that only keeps an engine's pace, and says so."""
    import importlib

    if simulated:
        from weft_bench.simulated.command import SimulatedOptions
        from weft_bench.simulated.command import run as simulate

        if context.args:
            raise typer.BadParameter(f"--simulated knows no {context.args[0]}")
        options = SimulatedOptions(
            model=model or "simulated",
            host=host,
            port=port,
            policy=policy,
            preset=preset,
            slots=slots,
            kv_blocks=kv_blocks,
            speed_up=speed_up,
            answer_tokens=answer_tokens,
            scheduler=scheduler,
        )
        raise typer.Exit(simulate(options))
    if unused := given(context, _OF_SIMULATED):
        raise typer.BadParameter(f"{', '.join(unused)}: only with --simulated")
    if not model:
        raise typer.BadParameter("missing", param_hint="--model")
    # By name: the gateway may import nothing of the plugin but its wire module.
    launch = importlib.import_module("weft_engine.launch")
    raise typer.Exit(
        launch.run(model=model, host=host, port=port, policy=policy, extra=context.args)
    )


@bench.callback()
def _bench() -> None:
    """Measure Weft on this machine."""
    # What a bench has started ends with it, however it is told to stop.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@bench.command("replay")
def bench_replay(
    context: typer.Context,
    trace: Annotated[str, typer.Option(help="file or folder of a real trace")] = "",
    policy: Annotated[
        str, typer.Option(help="orders to compare, comma-separated, or 'all'")
    ] = "fcfs,plas",
    base_url: Annotated[
        str, typer.Option(help="a running gateway; default: start one as `weft up` does")
    ] = "",
    programs: Annotated[int, typer.Option(min=1, help="programs to play")] = 24,
    rate: Annotated[float, typer.Option(min=0.001, help="program arrivals per second")] = 1.0,
    arrivals: Annotated[
        str, typer.Option(help="poisson, bursty, stepped, or recorded: the trace's, at the rate")
    ] = "poisson",
    seed: Annotated[int, typer.Option(help="seed of arrivals and of the sample")] = 0,
    gap_scale: Annotated[float, typer.Option(min=0.0, help="factor on tool gaps")] = 1.0,
    max_gap: Annotated[float, typer.Option(min=0.0, help="longest gap played, seconds")] = 10.0,
    output_scale: Annotated[float, typer.Option(min=0.01, help="factor on answers' length")] = 1.0,
    replicas: Annotated[int, typer.Option(min=1, help="engines to start")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="calls that an engine runs at once")] = 4,
    kv_blocks: Annotated[
        int, typer.Option(min=0, help="KV blocks of an engine; 0: as many as vLLM would take")
    ] = 0,
    max_model_len: Annotated[
        int, typer.Option(min=0, help="longest context, tokens; 0: the model's")
    ] = 0,
    swap_gib: Annotated[
        float, typer.Option(min=0.0, help="host memory for displaced calls' KV, GiB; 0: no swap")
    ] = 0.0,
    tags: Annotated[
        str, typer.Option(help="evict KV blocks by what they hold: on, off, or 'off,on' for both")
    ] = "on",
    first_quantum: Annotated[
        float, typer.Option(min=0.001, help="first queue's quantum, s; small, as the demo model")
    ] = 0.1,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
    plot: Annotated[str, typer.Option(callback=writable, help="write a PNG here")] = "",
) -> None:
    """Replay agent dialogues as closed-loop programs, once per policy, on the same replicas."""
    from weft_bench.arrivals import KINDS, RECORDED
    from weft_bench.replay.command import ReplayOptions, run
    from weft_engine.wire import ORDER_NAMES

    if base_url:
        exclude(context, "--base-url", _OF_OWN_ENGINES, "its engines run already")
    tagged = {"on": True, "off": False}
    options = ReplayOptions(
        trace=trace,
        # The first is what the others are compared with.
        policies=one_of(policy, ORDER_NAMES, "--policy"),
        base_url=base_url,
        programs=programs,
        rate=rate,
        arrivals=one_name(arrivals, (*KINDS, RECORDED), "--arrivals"),
        seed=seed,
        gap_scale=gap_scale,
        max_gap_s=max_gap,
        output_scale=output_scale,
        replicas=replicas,
        slots=slots,
        kv_blocks=kv_blocks,
        max_model_len=max_model_len,
        swap_gib=swap_gib,
        tags=tuple(tagged[name] for name in one_of(tags, tuple(tagged), "--tags")),
        first_quantum_s=first_quantum,
        json_file=json_file,
        plot=plot,
    )
    raise typer.Exit(run(options))


@bench.command("workload")
def bench_workload(
    name: Annotated[str, typer.Option(help="a workload that is made from statistics")] = "",
    programs: Annotated[
        int, typer.Option(min=0, help="programs; 0: 100 to write, 1000 to describe, all of a file")
    ] = 0,
    seed: Annotated[int, typer.Option(help="seed of everything that is drawn")] = 0,
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
    markdown: Annotated[bool, typer.Option(help="a row of a document for each")] = False,
    json_file: JsonFile = "",
) -> None:
    """Write a workload to a file that `bench replay` plays, or tell what workloads are like."""
    from weft_bench.arrivals import KINDS
    from weft_bench.workload_command import WorkloadOptions, run

    options = WorkloadOptions(
        name=name,
        programs=programs,
        seed=seed,
        rate=rate,
        arrivals=one_name(arrivals, tuple(KINDS), "--arrivals"),
        out=out,
        describe=tuple(part for part in describe.split(",") if part),
        shrink=shrink,
        markdown=markdown,
        json_file=json_file,
    )
    raise typer.Exit(run(options))


@bench.command("overhead")
def bench_overhead(
    peers: Annotated[
        str,
        typer.Option(
            help="peers to compare with, comma-separated; 'none' for ours alone, 'bare' for ours "
            "without what looks into calls",
        ),
    ] = "litellm,vllm-router",
    concurrency: Annotated[str, typer.Option(help="calls at once, comma-separated")] = "1,8,64",
    requests: Annotated[int, typer.Option(min=10, max=100_000, help="requests a cell")] = 2000,
    seconds: Annotated[float, typer.Option(min=0, max=60, help="and so long at least")] = 2.0,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="rounds; the median counts")] = 3,
    session: Annotated[
        bool, typer.Option("--session", help="calls name their program, as most agents' do")
    ] = False,
    distinct: Annotated[
        bool, typer.Option("--distinct", help="prompts differ, as those of first turns do")
    ] = False,
    plugin: Annotated[
        bool, typer.Option("--plugin", help="engines pass for Weft's own: calls carry tags")
    ] = False,
    json_file: Annotated[
        str, typer.Option("--json", callback=writable, help="write the figures here")
    ] = "",
) -> None:
    """Requests/s and added latency against a fast mock engine, beside the peers."""
    from weft_bench.overhead.command import OverheadOptions, run

    options = OverheadOptions(
        peers=tuple(p for p in peers.split(",") if p and p != "none"),
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


@bench.command("overlap")
def bench_overlap(
    context: typer.Context,
    base_url: Annotated[
        str, typer.Option(help="a running gateway; default: start one as `weft up` does")
    ] = "",
    requests: Annotated[int, typer.Option(min=1, help="requests a seed")] = 12,
    rate: Annotated[
        float, typer.Option(min=0.0, help="requests per second; 0: as many at once as in the paper")
    ] = 0.0,
    seeds: Annotated[int, typer.Option(min=1, help="sets of requests, played one by one")] = 4,
    seed: Annotated[int, typer.Option(help="the first seed")] = 0,
    changed: Annotated[
        float, typer.Option(min=0, max=1, help="share of turns with another system prompt")
    ] = 1.0,
    replicas: Annotated[int, typer.Option(min=1, help="engines to start")] = 1,
    max_model_len: Annotated[
        int, typer.Option(min=8192, help="longest context, tokens; prompts are scaled to it")
    ] = 32_768,
    kv_blocks: Annotated[
        int, typer.Option(min=0, help="KV blocks of an engine; 0: 12 median prompts, as the paper")
    ] = 0,
    quick: Annotated[
        bool, typer.Option("--quick", help="3 requests, nearly at once: a minute beside the start")
    ] = False,
    json_file: JsonFile = "",
) -> None:
    """Agents' requests without and with prompt splitting, streaming dispatch and tags."""
    from weft_bench.overlap.command import OverlapOptions, run

    if base_url:
        exclude(
            context, "--base-url", ("replicas", "max_model_len", "kv_blocks"), "its engines run"
        )
    if quick:
        exclude(context, "--quick", ("requests", "seeds", "rate"), "it sets them")
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


def main() -> None:
    """Entry point of the console script."""
    app()


if __name__ == "__main__":
    main()
