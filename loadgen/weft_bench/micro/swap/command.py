"""`weft bench swap`: copies KV blocks between a GPU and host memory by several methods."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from rich.progress import Progress

from weft_bench.cli.parts import SwapOptions
from weft_bench.report.figures import finish, refuse
from weft_bench.report.rows import Column, Rows, figures, show

if TYPE_CHECKING:
    import torch

    from weft_bench.micro.swap.ways import Scene, Shape, Way


OURS: Final = "weft"
LIMIT: Final = "limit"
LABELS: Final = ("direction", "blocks", "way")
COLUMNS: Final = (
    Column("rate", "GB/s", "GB/s", ".2f"),
    Column("weft_rate_ratio", "1", "weft's rate / its", ".2f"),
)
# (direction, blocks, way) to GB/s, 10^9 bytes.
Rates = Mapping[tuple[str, int, str], float]


def rows(rates: Rates) -> Rows:
    """Return the rate of each way, and the ratio of Weft's rate to it."""
    found = {}
    for (direction, blocks, way), rate in rates.items():
        values = {"rate": rate}
        if way != OURS:
            values["weft_rate_ratio"] = rates[direction, blocks, OURS] / rate
        found[direction, str(blocks), way] = values
    return found


def ranges(rates: Rates) -> list[str]:
    """Return the range of the ratio of Weft's rate to that of each other way."""
    ratios: dict[str, list[float]] = {}
    for (_, _, way), values in rows(rates).items():
        if way != OURS:
            ratios.setdefault(way, []).append(values["weft_rate_ratio"])
    return [f"{OURS} over {way}: {min(r):.2f} to {max(r):.2f}" for way, r in ratios.items()]


ON_GPU: Final = (16, 64, 256, 1024, 4096)
# The CPU path serves tests and small machines. These counts exceed the CPU's caches.
ON_CPU: Final = (16, 64)
_GIB: Final = 1024**3


class Wrong(Exception):
    """A method did not move the expected bytes."""


def run(options: SwapOptions, shape: Shape | None = None) -> int:
    """Measure and report.

    Returns the exit status: 1 if Weft's method moved wrong bytes, 2 if torch is missing or the
    options are invalid.
    """
    try:
        import torch

        from weft_bench.micro.swap.ways import Shape, scene
    except ImportError as error:
        return refuse("swap", f"needs torch: {error}")
    if any(count < 1 for count in options.blocks):
        return refuse("swap", "a swap needs at least one block")
    name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name, 0)
    if name == "cpu":
        print("No GPU found: this measures the CPU path, host memory to host memory.")
    shape = shape or Shape()
    asked = options.blocks or (ON_GPU if name == "cuda" else ON_CPU)
    counts = [count for count in sorted(set(asked)) if _fits(count, shape, device)]
    left_out = sorted(set(asked) - set(counts))
    if left_out:
        print(f"skipped for lack of memory: {', '.join(map(str, left_out))} blocks")
    if not counts:
        return refuse("swap", "not enough memory for any number of blocks")
    absent: dict[str, str] = {}
    try:
        rates = _measure(options, scene(shape, counts[-1], device), counts, absent)
    except Wrong as error:
        print(f"weft bench swap: {error}", file=sys.stderr)
        return 1
    where = torch.cuda.get_device_name(device) if name == "cuda" else "the CPU"
    table = rows(rates)
    title = f"KV blocks of {shape.block_bytes:,} bytes to and from host memory, {where}"
    show(title, LABELS, table, COLUMNS)
    for line in ranges(rates):
        print(line)
    for way, reason in absent.items():
        print(f"{way}: absent ({reason})")
    configuration: dict[str, Any] = {
        **asdict(options), "blocks": counts, "left_out": left_out, "absent": absent,
        "device": where, "torch": torch.__version__, "shape": asdict(shape),
        "block_bytes": shape.block_bytes,
    }  # fmt: skip
    finish("swap", options.json_file, configuration, figures(table, COLUMNS))
    return 0


def _fits(count: int, shape: Shape, device: torch.device) -> bool:
    """Return whether the layers, a flat buffer and the host's buffer leave some memory free."""
    import torch

    from weft_bench.micro.swap.ways import pool_blocks

    far = count * shape.block_bytes
    near = far + pool_blocks(count) * shape.block_bytes
    host = _available()
    if device.type == "cpu":
        return near + far + _GIB // 2 <= host
    return near + _GIB <= torch.cuda.mem_get_info(device)[0] and far + _GIB <= host


def _available() -> int:
    """Return the available bytes of host memory, or a large number if unknown."""
    info = Path("/proc/meminfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    found = [int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:")]
    return found[0] if found else 1 << 62


def _measure(
    options: SwapOptions, scene: Scene, counts: list[int], absent: dict[str, str]
) -> dict[tuple[str, int, str], float]:
    """Measure all methods in each round, so that drift of the machine affects all.

    Returns medians.
    """
    import torch

    from weft_bench.micro.swap.ways import ways

    clock = _gpu_seconds if scene.prepared.device.type == "cuda" else _cpu_seconds
    rates = {}
    order = torch.randperm(scene.prepared.blocks, generator=torch.Generator().manual_seed(0))
    with Progress() as progress:
        bar = progress.add_task("measuring", total=len(counts) * (options.rounds + 1))
        for count in counts:
            blocks = order[:count].contiguous()
            seconds: dict[tuple[str, str], list[float]] = {}
            found = [
                way for way in ways(scene, blocks, absent) if _moves(way, scene, blocks, absent)
            ]
            progress.advance(bar)
            for _ in range(options.rounds):
                for way in found:
                    seconds.setdefault(("out", way.name), []).append(clock(way.out))
                    seconds.setdefault(("in", way.name), []).append(clock(way.back))
                progress.advance(bar)
            size = count * scene.prepared.block_bytes
            for direction in ("out", "in"):
                for way in found:
                    middle = median(seconds[direction, way.name])
                    rates[direction, count, way.name] = size / middle / 1e9
    return rates


def _moves(way: Way, scene: Scene, blocks: torch.Tensor, absent: dict[str, str]) -> bool:
    """Warm up a method and check its result.

    Returns False for a method that fails. Raises Wrong if Weft's method fails.
    """
    try:
        _check(way, scene, blocks)
    except (Wrong, RuntimeError) as error:
        if way.name in (OURS, LIMIT):
            raise
        absent[way.name] = str(error).splitlines()[0]
        return False
    return True


def _check(way: Way, scene: Scene, blocks: torch.Tensor) -> None:
    """Run a method in both directions and check the first and the last block."""
    import torch

    if way.name == LIMIT:
        # It moves as many bytes but no blocks.
        way.out()
        way.back()
        return
    size = scene.prepared.block_bytes
    ends = [0, len(blocks) - 1]
    numbers = blocks[ends].to(scene.prepared.device)
    before = [layer[numbers].clone() for layer in scene.layers]
    expected = torch.stack(before, dim=1).cpu().view(2, -1).view(torch.uint8)
    staged = scene.host[: len(blocks) * size].view(-1, size)
    staged.zero_()
    way.out()
    _wait(scene)
    if not torch.equal(staged[ends], expected):
        raise Wrong(f"{way.name} copied wrong bytes out")
    for layer in scene.layers:
        layer[numbers] = 0
    way.back()
    _wait(scene)
    after = torch.stack([layer[numbers] for layer in scene.layers], dim=1)
    if not torch.equal(after.cpu().view(2, -1).view(torch.uint8), expected):
        raise Wrong(f"{way.name} copied wrong bytes in")


def _wait(scene: Scene) -> None:
    import torch

    if scene.prepared.device.type == "cuda":
        torch.cuda.synchronize(scene.prepared.device)


def _gpu_seconds(work: Callable[[], None]) -> float:
    """Return the seconds from the start of the work on the stream to its end.

    This includes time spent waiting for the host: an idle caller waits as long.
    """
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _cpu_seconds(work: Callable[[], None]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
