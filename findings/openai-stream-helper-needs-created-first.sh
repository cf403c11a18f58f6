#!/usr/bin/env bash
# The stream helper of OpenAI's SDK fails if any event comes before `response.created`.
#
# Package: openai 3.57.0.
# Input: a Responses stream that begins with the event {"type": "keepalive"}, which shows the client of
#   a call in a queue that its call goes on. The rest is an ordinary answer.
# Guess: both ways to read a stream skip an event that they do not know, as they do later in a stream.
# Seen: `responses.create(stream=True)` yields it; `responses.stream()` raises a RuntimeError, which
#   is no openai.APIError, and the answer is lost. A comment of the same stream hurts neither.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openai==3.57.0 || exit 2
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import openai

RESPONSE = {"id": "resp_1", "object": "response", "model": "m", "output": [], "status": "completed"}
FIRST = {
    "comment": ": keep-alive\n\n",
    "event": 'event: keepalive\ndata: {"type": "keepalive"}\n\n',
}


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        data = FIRST[self.path.split("/")[1]]
        for number, kind in enumerate(("response.created", "response.completed")):
            event = {"type": kind, "sequence_number": number, "response": RESPONSE}
            data += f"event: {kind}\ndata: {json.dumps(event)}\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
seen = {}
for first in FIRST:
    url = f"http://127.0.0.1:{server.server_port}/{first}"
    client = openai.OpenAI(base_url=url, api_key="k", max_retries=0)
    seen[first, "create"] = len(list(client.responses.create(model="m", input="x", stream=True)))
    try:
        with client.responses.stream(model="m", input="x") as stream:
            seen[first, "helper"] = stream.get_final_response().id
    except RuntimeError as error:
        seen[first, "helper"] = str(error)
for case, result in seen.items():
    print(*case, result)
fails = "`response.created` before `keepalive`" in seen["event", "helper"]
sys.exit(not fails or seen["comment", "helper"] != "resp_1" or seen["event", "create"] != 3)
PYTHON
