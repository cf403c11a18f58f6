#!/usr/bin/env bash
# vllm-router removes `strict` from tools, and `cache_control`, before the engine.
#
# Package: vllm-router 0.1.17.
# Input: a Chat Completions request with a tool whose function has "strict": true, a system message
#   with cache_control, and a member that no API defines.
# Guess: a router passes the request on as it is, or drops only what it does not know.
# Seen: the unknown member arrives; "strict" and "cache_control" do not. The engine then does not force
#   arguments into the tool's schema. The router also adds members that no client sent.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q vllm-router==0.1.17 || exit 2
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import json
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

FUNCTION = {"name": "f", "strict": True, "parameters": {"type": "object", "properties": {}}}
SYSTEM = {"role": "system", "content": "s", "cache_control": {"type": "ephemeral"}}
REQUEST = {
    "model": "m", "messages": [SYSTEM, {"role": "user", "content": "x"}], "made_up": {"z": 1},
    "tools": [{"type": "function", "function": FUNCTION}],
}  # fmt: skip
bodies = []


class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer({"object": "list", "data": [{"id": "m", "object": "model"}]})

    def do_POST(self):
        bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        choice = {"index": 0, "finish_reason": "stop"}
        choice["message"] = {"role": "assistant", "content": "a"}
        self.answer({"id": "c", "object": "chat.completion", "model": "m", "choices": [choice]})

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
port = free_port()
with open(f"{sys.argv[1]}/log", "wb") as log:
    router = subprocess.Popen(
        [f"{sys.argv[1]}/venv/bin/vllm-router", "--policy", "round_robin", "--host", "127.0.0.1"]
        + ["--port", str(port), "--prometheus-port", str(free_port())]
        + ["--worker-urls", f"http://127.0.0.1:{server.server_port}"],
        stdout=log,
        stderr=log,
    )
try:
    for _ in range(120):
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            head = {"content-type": "application/json"}
            urllib.request.urlopen(urllib.request.Request(url, json.dumps(REQUEST).encode(), head))
            break
        except OSError:
            time.sleep(0.5)
finally:
    router.terminate()
    router.wait(30)
body = bodies[-1]
added = sorted(set(body) - set(REQUEST))
print("function:", body["tools"][0]["function"])
print("system:", body["messages"][0])
print("added:", added)
same = "strict" not in body["tools"][0]["function"] and "cache_control" not in body["messages"][0]
sys.exit(not (same and body["made_up"] == {"z": 1} and added))
PYTHON
