#!/usr/bin/env bash
# The official SDKs return a final answer from a stream that never ended.
#
# Packages: openai 3.57.0, anthropic 2.14.0.
# Input: a stream whose HTTP body is complete, but which has no terminal event: no finish reason and no
#   [DONE] in Chat Completions, no message_delta and no message_stop in Messages.
# Guess: get_final_completion and get_final_message raise an error, since there is no final answer.
# Seen: both return the text so far. Only finish_reason and stop_reason, which are None, tell a cut-off
#   answer from a complete one.
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

USAGE = {"input_tokens": 5, "output_tokens": 1}
CHOICE = {"index": 0, "delta": {"role": "assistant", "content": "not"}, "finish_reason": None}
MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [],
    "stop_reason": None, "stop_sequence": None, "usage": USAGE,
}  # fmt: skip
EVENTS = (
    {"type": "message_start", "message": MESSAGE},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "not"}},
)


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        if self.path.endswith("/messages"):
            data = "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in EVENTS)
        else:
            chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
            data = f"data: {json.dumps({**chunk, 'choices': [CHOICE]})}\n\n"
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data.encode())

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}"
prompt = [{"role": "user", "content": "x"}]
client = openai.OpenAI(base_url=f"{url}/v1", api_key="k")
with client.chat.completions.stream(model="m", messages=prompt) as stream:
    choice = stream.get_final_completion().choices[0]
other = anthropic.Anthropic(base_url=url, api_key="k")
with other.messages.stream(model="m", max_tokens=9, messages=prompt) as stream:
    message = stream.get_final_message()
seen = [
    (choice.message.content, choice.finish_reason), (message.content[0].text, message.stop_reason)
]  # fmt: skip
print(seen)
sys.exit(seen != [("not", None), ("not", None)])
PYTHON
