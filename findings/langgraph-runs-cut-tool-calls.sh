#!/usr/bin/env bash
# LangGraph executes a tool call that the token limit has cut off, if it streams.
#
# Packages: langchain 1.5.2, langgraph 1.2.24, langchain-openai 1.7.4, langchain-core 1.8.3.
# Input: an answer with one tool call, whose arguments end in the middle of a string, and
#   finish_reason "length": what every engine sends at its token limit.
# Guess: an error, or no call of the tool, and the same with and without streaming.
# Seen: with streaming, the incomplete JSON is completed and the tool runs with the beginning of its
#   argument. Without streaming, the tool does not run, and the agent ends as a success with an
#   empty answer.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q langchain==1.5.2 langgraph==1.2.24 langchain-openai==1.7.4 \
  langchain-core==1.8.3 || exit 2
"$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

FUNCTION = {"name": "write_file", "arguments": '{"text": "first line, and then the li'}
CALL = {"id": "call_1", "type": "function", "function": FUNCTION}
DONE = {"role": "assistant", "content": "done"}


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        again = body["messages"][-1]["role"] == "tool"
        message = DONE if again else {"role": "assistant", "content": None, "tool_calls": [CALL]}
        if body.get("stream") and not again:
            message["tool_calls"] = [{"index": 0, **CALL}]
        choice = {"index": 0, "finish_reason": "stop" if again else "length"}
        part = "delta" if body.get("stream") else "message"
        answer = {"id": "c", "created": 1, "model": "m", "choices": [{**choice, part: message}]}
        answer["object"] = "chat.completion.chunk" if body.get("stream") else "chat.completion"
        data = json.dumps(answer).encode()
        if body.get("stream"):
            data = b"data: %b\n\ndata: [DONE]\n\n" % data
        self.send_response(200)
        kind = "text/event-stream" if body.get("stream") else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
url = f"http://127.0.0.1:{server.server_port}/v1"
ran = []


def write_file(text: str) -> str:
    """Write a file."""
    ran.append(text)
    return "written"


seen = {}
for streaming in (True, False):
    ran.clear()
    model = ChatOpenAI(model="m", base_url=url, api_key="k", streaming=streaming)
    result = create_agent(model, [write_file]).invoke({"messages": [("user", "Write it.")]})
    seen[streaming] = (list(ran), result["messages"][-1].content)
    print(f"streaming={streaming}: tool ran with {ran}, final answer {seen[streaming][1]!r}")
sys.exit(seen != {True: (["first line, and then the li"], "done"), False: ([], "")})
PYTHON
