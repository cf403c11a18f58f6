#!/usr/bin/env bash
# A connection that breaks within a stream raises no anthropic.APIError.
#
# Packages: anthropic 2.14.0, openai 3.57.0 (both on httpx2).
# Input: a stream that begins well, and whose connection then breaks.
# Guess: anthropic.APIConnectionError, as for a connection that breaks before the answer, and as in the
#   OpenAI SDK.
# Seen: openai raises openai.APIConnectionError. anthropic raises httpx2.RemoteProtocolError, which is
#   no anthropic.AnthropicError: `except anthropic.APIError` does not catch it.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openai==3.57.0 anthropic==2.14.0 || exit 2
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import anthropic
import openai

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1},
}  # fmt: skip
START = {"type": "message_start", "message": MESSAGE}
CHOICE = {"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/messages"):
            data = f"event: message_start\ndata: {json.dumps(START)}\n\n".encode()
        else:
            data = f"data: {json.dumps({**CHUNK, 'choices': [CHOICE]})}\n\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data) + 1))  # One byte never comes.
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
prompt = [{"role": "user", "content": "x"}]
seen = {}
try:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
    list(client.chat.completions.create(model="m", messages=prompt, stream=True))
except Exception as error:
    seen["openai"] = (type(error).__name__, isinstance(error, openai.APIError))
try:
    other = anthropic.Anthropic(base_url=url, api_key="k")
    list(other.messages.create(model="m", max_tokens=9, messages=prompt, stream=True))
except Exception as error:
    kind = type(error)
    name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
    seen["anthropic"] = (name, isinstance(error, anthropic.AnthropicError))
print(seen)
expected = {
    "openai": ("APIConnectionError", True), "anthropic": ("httpx2.RemoteProtocolError", False)
}  # fmt: skip
sys.exit(seen != expected)
PYTHON
