#!/usr/bin/env bash
# Codex in a terminal uses the API key of its first start, not the one that is set now.
#
# Package: @openai/codex 0.171.0.
# Input: a provider with `env_key`; `codex` in a terminal with one key, and again with another one.
# Guess: each start uses the key in its environment.
# Seen: both starts send the first key. The terminal interface starts a daemon, which outlives it and
#   keeps its environment. If the variable was unset at the first start, the second one says
#   "Missing environment variable" although it is set. `codex app-server daemon restart` helps;
#   `codex exec` uses no daemon.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo '{"private": true}' > "$folder/package.json"
npm install --prefix "$folder" --no-audit --no-fund --silent @openai/codex@0.171.0 || exit 2
FOLDER=$folder python3 - <<'PYTHON'
import os
import pty
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

folder = Path(os.environ["FOLDER"])
keys = []


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        keys.append(self.headers["authorization"])
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(400)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
Thread(target=server.serve_forever, daemon=True).start()
(folder / ".codex").mkdir()
(folder / ".codex" / "config.toml").write_text(f"""
model = "m"
model_provider = "p"
[model_providers.p]
name = "P"
base_url = "http://127.0.0.1:{server.server_port}/v1"
env_key = "P_KEY"
wire_api = "responses"
""")
codex = str(folder / "node_modules" / ".bin" / "codex")


def environment(key):
    return {
        "PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "xterm-256color", "P_KEY": key
    }


def start(key):
    """Start `codex` in a terminal with a task, and return the key of its first call."""
    before = len(keys)
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe(codex, [codex, "Hello"], environment(key))

    def answer():
        try:
            while piece := os.read(terminal, 65536):
                for asked, reply in ((b"\x1b[6n", b"\x1b[1;1R"), (b"\x1b[c", b"\x1b[?62c")):
                    if asked in piece:
                        os.write(terminal, reply)
                if b"trust" in piece:
                    os.write(terminal, b"\r")
        except OSError:
            pass

    Thread(target=answer, daemon=True).start()
    deadline = time.monotonic() + 60
    while len(keys) == before and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return keys[before] if len(keys) > before else None


try:
    seen = [start("first"), start("second")]
finally:
    subprocess.run(
        [codex, "app-server", "daemon", "stop"], env=environment("first"), capture_output=True
    )
    # A second process of the daemon stays.
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cmdline").read_bytes().startswith(f"{folder}/.codex".encode()):
                os.kill(int(process.name), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            pass
print(seen)
sys.exit(seen != ["Bearer first", "Bearer first"])
PYTHON
