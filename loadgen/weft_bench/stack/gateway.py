"""`weft serve` with other constants: `python -m weft_bench.stack.gateway JSON [OPTIONS]`.

JSON: members of `weft_gateway.constants.Constants` that differ. OPTIONS: of `weft serve`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from weft_gateway import cli, serve
from weft_gateway.constants import Constants


def command(
    constants: Mapping[str, Any], replicas: Sequence[str] = (), port: int | None = None
) -> list[str]:
    """Return the command line of such a gateway."""
    line = [sys.executable, "-m", "weft_bench.stack.gateway", json.dumps(constants)]
    line += [word for url in replicas for word in ("--replica", url)]
    return line if port is None else [*line, "--port", str(port)]


if __name__ == "__main__":
    serve.run = partial(serve.run, constants=Constants(**json.loads(sys.argv[1])))
    sys.argv[1:2] = ["serve"]
    cli.main()
