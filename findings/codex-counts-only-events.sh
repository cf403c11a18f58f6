#!/usr/bin/env bash
# Codex gives up a stream in which only comments arrive, but waits for a silent server.
#
# Package: @openai/codex 0.171.0.
# Input: `codex exec` with `stream_idle_timeout_ms` 2000 and a provider without WebSockets. The server
#   answers after 6 s. Meanwhile it sends nothing; or the head and, every 0.5 s, a comment, which the
#   HTML standard recommends against idle limits; or the head and an event of an unknown type.
# Guess: an idle limit ends the silent connection, and any bytes keep it.
# Seen: the limit begins with the head and counts events only. Codex waits for the silent server and
#   with the unknown event, and with comments it repeats the call five times and fails.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --prefix "$folder" @openai/codex@0.171.0 || exit 2
FOLDER=$folder python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

FOLDER = Path(os.environ["FOLDER"])
MEANWHILE = {
    "silence": b"",
    "comments": b": keep-alive\n\n",
    "events": b'data: {"type": "keepalive"}\n\n',
}
TEXT = {"type": "output_text", "text": "hello", "annotations": []}
ITEM = {"type": "message", "id": "msg_1", "role": "assistant", "content": [TEXT]}
RESPONSE = {"id": "resp_1", "object": "response", "output": [ITEM], "status": "completed"}
EVENTS = (
    {"type": "response.created", "response": RESPONSE | {"output": []}},
    {"type": "response.output_item.done", "output_index": 0, "item": ITEM},
    {"type": "response.completed", "response": RESPONSE},
)
calls = dict.fromkeys(MEANWHILE, 0)


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        name = self.path.split("/")[1]
        calls[name] += 1
        self.rfile.read(int(self.headers["content-length"]))
        begun = False
        try:
            for _ in range(12):
                time.sleep(0.5)
                if MEANWHILE[name]:
                    begun = begun or self.head()
                    self.wfile.write(MEANWHILE[name])
            begun = begun or self.head()
            for event in EVENTS:
                self.wfile.write(b"data: %b\n\n" % json.dumps(event).encode())
        except ConnectionError:
            pass

    def head(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        return True

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()


def run(name):
    home = FOLDER / name
    home.mkdir()
    (home / "config.toml").write_text(
        'model = "m"\nmodel_provider = "local"\ncheck_for_update_on_startup = false\n'
        '[analytics]\nenabled = false\n[model_providers.local]\nname = "local"\n'
        f'base_url = "http://127.0.0.1:{server.server_port}/{name}"\nenv_key = "KEY"\n'
        'wire_api = "responses"\nstream_idle_timeout_ms = 2000\n'
    )
    command = [FOLDER / "node_modules/.bin/codex", "exec", "--skip-git-repo-check", "Say hello."]
    variables = {"PATH": os.environ["PATH"], "HOME": home, "CODEX_HOME": home, "KEY": "k"}
    return subprocess.run(
        command, cwd=home, env=variables, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    ).returncode


with ThreadPoolExecutor() as pool:
    status = dict(zip(MEANWHILE, pool.map(run, MEANWHILE)))
print("exit status", status, "calls", calls)
sys.exit(status != {"silence": 0, "comments": 1, "events": 0} or calls["comments"] != 6)
PYTHON
