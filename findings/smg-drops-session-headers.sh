#!/usr/bin/env bash
# SMG does not pass session headers on to its workers, and renames `reasoning` in the history.
#
# Package: smg 1.13.0.
# Input: a Chat Completions request with x-session-id, session-id, traceparent and a User-Agent, whose
#   history has a message with `reasoning`, as vLLM returns it, and with `session_id` in the body.
# Guess: all of them reach the worker, or none.
# Seen: traceparent and the body's session_id arrive; the session headers and the User-Agent do not. The
#   message's `reasoning` arrives as `reasoning_content`.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q smg==1.13.0 || exit 2
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import json
import socket
import subprocess
import sys
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

HEADERS = {
    "content-type": "application/json", "x-session-id": "s", "session-id": "s",
    "user-agent": "agent/1.0",
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}  # fmt: skip
MESSAGES = [
    {"role": "user", "content": "x"},
    {"role": "assistant", "content": "y", "reasoning": "because"},
    {"role": "user", "content": "z"},
]
REQUEST = {"model": "m", "messages": MESSAGES, "session_id": "s"}
calls = []


class Worker(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path.endswith("/models"):
            self.answer({"object": "list", "data": [{"id": "m", "object": "model"}]})
        else:
            self.answer({"model_path": "m", "served_model_name": "m", "is_generation": True})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        calls.append(({name.lower(): value for name, value in self.headers.items()}, body))
        choice = {"index": 0, "finish_reason": "stop"}
        choice["message"] = {"role": "assistant", "content": "a"}
        answer = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
        self.answer({**answer, "choices": [choice]})

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


server = ThreadingHTTPServer(("127.0.0.1", 0), Worker)
Thread(target=server.serve_forever, daemon=True).start()
port = free_port()
with open(f"{sys.argv[1]}/log", "wb") as log:
    router = subprocess.Popen(
        [f"{sys.argv[1]}/venv/bin/smg", "launch", "--policy", "round_robin", "--host", "127.0.0.1"]
        + ["--port", str(port), "--prometheus-port", str(free_port())]
        + ["--worker-urls", f"http://127.0.0.1:{server.server_port}"],
        stdout=log,
        stderr=log,
    )
try:
    for _ in range(120):
        try:
            url = f"http://127.0.0.1:{port}/v1/chat/completions"
            data = json.dumps(REQUEST).encode()
            urllib.request.urlopen(urllib.request.Request(url, data, HEADERS))
            break
        except OSError:
            time.sleep(0.5)
finally:
    router.kill()
    router.wait(30)
headers, body = calls[-1]
arrived = {name: headers.get(name) for name in sorted(HEADERS) if name != "content-type"}
print("headers:", arrived)
print("session_id:", body.get("session_id"), "assistant:", body["messages"][1])
lost = arrived["x-session-id"] is None and arrived["session-id"] is None
lost = lost and arrived["user-agent"] != HEADERS["user-agent"]
kept = arrived["traceparent"] == HEADERS["traceparent"] and body.get("session_id") == "s"
renamed = body["messages"][1].get("reasoning_content") == "because"
sys.exit(not (lost and kept and renamed and "reasoning" not in body["messages"][1]))
PYTHON
