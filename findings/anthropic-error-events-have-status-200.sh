#!/usr/bin/env bash
# An error within a Messages stream is an APIStatusError with status 200.
#
# Package: anthropic 2.14.0.
# Input: a stream that begins well and then has the event `error` with type overloaded_error, as
#   Anthropic's documentation of streaming shows it.
# Guess: the exception that a 529 answer with the same error raises, OverloadedError.
# Seen: the plain APIStatusError, whose status_code is 200: code that repeats calls by class or by
#   status does not see an overload. Only the body tells it. The SDK itself does not repeat the call.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q anthropic==2.14.0 || exit 2
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anthropic

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
}  # fmt: skip
ERROR = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
calls = []


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        calls.append(self.path)
        self.rfile.read(int(self.headers["content-length"]))
        if self.path.startswith("/plain"):
            status, kind, data = 529, "application/json", json.dumps(ERROR)
        else:
            status, kind = 200, "text/event-stream"
            start = json.dumps({"type": "message_start", "message": MESSAGE})
            data = f"event: message_start\ndata: {start}\n\nevent: error\ndata: {json.dumps(ERROR)}\n\n"
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
seen = []
for path in ("plain", "stream"):
    url = f"http://127.0.0.1:{server.server_port}/{path}"
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0 if path == "plain" else 2)
    try:
        prompt = [{"role": "user", "content": "x"}]
        list(client.messages.create(model="m", max_tokens=9, messages=prompt, stream=True))
    except anthropic.APIStatusError as error:
        seen.append((type(error).__name__, error.status_code))
print(seen, len(calls))
sys.exit(seen != [("OverloadedError", 529), ("APIStatusError", 200)] or len(calls) != 2)
PYTHON
