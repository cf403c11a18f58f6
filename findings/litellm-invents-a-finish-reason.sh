#!/usr/bin/env bash
# LiteLLM gives a stream that ends early the finish reason "stop".
#
# Package: litellm 1.108.7.
# Input: a Chat Completions stream of two chunks that ends in good order (the HTTP body is complete),
#   but without a chunk that has a finish reason, and without [DONE]: a server that stopped early.
# Guess: an error, or finish_reason None.
# Seen: a third chunk with finish_reason "stop", so that the cut-off answer looks complete. The
#   LiteLLM proxy passes it on to its own clients, followed by [DONE].
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q litellm==1.108.7 || exit 2
LITELLM_LOCAL_MODEL_COST_MAP=True "$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import litellm


def chunk(text):
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}
    data = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: %b\n\n" % json.dumps({**data, "choices": [choice]}).encode()


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        data = chunk("The answer is ") + chunk("not")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
stream = litellm.completion(
    "openai/m",
    api_base=f"http://127.0.0.1:{server.server_port}/v1",
    api_key="k",
    messages=[{"role": "user", "content": "x"}],
    stream=True,
)
seen = [(part.choices[0].delta.content, part.choices[0].finish_reason) for part in stream]
print(seen)
sys.exit(seen != [("The answer is ", None), ("not", None), (None, "stop")])
PYTHON
