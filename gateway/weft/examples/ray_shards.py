"""Runs a batch workflow on the machines of a Ray cluster, with Ray Data: each actor runs parts of
the rows with `weft run --shard`.

    python -m weft.examples.ray_shards report.yaml --input docs.jsonl --output out.jsonl \\
        --parts 4 --gateway http://gateway-1:8080 --gateway http://gateway-2:8080

Every machine needs the workflow, the input and the files of `--connection` at the same paths, and
this package. A part stays in
the temporary folder of its machine until you delete it: if the same command runs again there, it
continues. Needs `pip install 'weft[ray]'`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

# Exit codes of `weft run` with an output: all rows have ended well, some have failed, or the loops
# of some have ended without their condition.
ENDED = (0, 1, 4)


class Shard:
    """An actor. files: the workflow and the input. gateways: their base URLs, used in turn. more:
    further options of `weft run`.
    """

    def __init__(
        self, files: tuple[str, str], parts: int, gateways: list[str], key: str, more: list[str]
    ) -> None:
        self.files = files
        self.parts = parts
        self.gateways = gateways
        self.key = key
        self.more = more
        seen = [(os.path.abspath(file), os.stat(file).st_mtime_ns) for file in files]
        self.name = f"weft-{sha256(repr([seen, more]).encode()).hexdigest()[:12]}-{parts}"

    def __call__(self, part: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Run a part, and yield the lines of its output. Raises RuntimeError."""
        number = int(part["item"])
        output = Path(tempfile.gettempdir()) / f"{self.name}-{number}.jsonl"
        if not output.exists():
            self._run(number, output)
        with output.open() as lines:
            for line in lines:
                # Ray Data needs columns of one type; values of different rows may differ.
                yield {"row": int(line.split(":", 1)[1].split(",", 1)[0]), "line": line}

    def _run(self, number: int, output: Path) -> None:
        workflow, rows = self.files
        command = [sys.executable, "-m", "weft_gateway.cli", "run", workflow, "--quiet"]
        command += ["--input", rows, "--output", str(output), "--shard", f"{number}/{self.parts}"]
        command += ["--gateway", self.gateways[(number - 1) % len(self.gateways)], *self.more]
        if Path(f"{output}.journal").exists():
            command.append("--resume")
        environment = {**os.environ, "OPENAI_API_KEY": self.key}
        done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True)
        if done.returncode not in ENDED:
            raise RuntimeError(f"part {number}: {done.stderr[-2000:]}")


def main(arguments: list[str]) -> None:
    """Run all parts, and write their rows in order."""
    import ray.data

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workflow")
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--parts", type=int, required=True, help="number of actors")
    parser.add_argument("--gateway", action="append", required=True, help="repeatable")
    parser.add_argument("--address", help="of the Ray cluster; without it: this machine")
    parser.add_argument("--connection", action="append", default=[], help="NAME=FILE; repeatable")
    parser.add_argument("--allow-host", action="append", default=[], help="repeatable")
    chosen = parser.parse_args(arguments)
    files = (os.path.abspath(chosen.workflow), os.path.abspath(chosen.input))
    ray.init(address=chosen.address)
    numbers = list(range(1, chosen.parts + 1))
    lines = ray.data.from_items(numbers, override_num_blocks=chosen.parts).flat_map(
        Shard,
        fn_constructor_args=(
            files, chosen.parts, chosen.gateway, os.environ.get("OPENAI_API_KEY", ""),
            _options(chosen.connection, chosen.allow_host),
        ),
        compute=ray.data.ActorPoolStrategy(size=chosen.parts),
    )  # fmt: skip
    with open(chosen.output, "w") as output:
        output.writelines(row["line"] for row in lines.sort("row").iter_rows())


def _options(connections: list[str], hosts: list[str]) -> list[str]:
    """Return options of `weft run`. Actors have other working folders."""
    found = []
    for one in connections:
        name, _, file = one.partition("=")
        found += ["--connection", f"{name}={os.path.abspath(file)}"]
    for one in hosts:
        found += ["--allow-host", one]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
