"""`weft up` with the real supervisor and gateway, and fake engines.

    python up_with_fakes.py PORT FOLDER HOST [ATTACHED_URL...]

The files in FOLDER/N control engine N; see fake_engine.py. Logs go to FOLDER/logs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from weft_deploy.local.plan import Start, UpOptions
from weft_deploy.local.up import run


def main(port: int, folder: Path, host: str, attach: list[str]) -> int:
    def replica(options: UpOptions, number: int, port: int, *_: object) -> Start:
        own = folder / str(number)
        own.mkdir(exist_ok=True)
        script = Path(__file__).with_name("fake_engine.py")
        return Start(
            f"replica-{number}",
            (sys.executable, str(script), str(port), str(own)),
            f"http://127.0.0.1:{port}/health",
        )

    model = "" if attach else "fake"
    options = UpOptions(model=model, host=host, port=port, attach=tuple(attach))
    return run(options, replica=replica, logs=folder / "logs")


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:4], sys.argv[4:]))
