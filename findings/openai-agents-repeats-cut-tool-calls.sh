#!/usr/bin/env bash
# The OpenAI Agents SDK uses up all turns of a run on a tool call that the token limit cuts off.
#
# Packages: openai-agents 0.24.0, openai 3.57.0.
# Input: answers with one tool call whose arguments end in the middle of a string, and
#   finish_reason "length", as an engine sends them when max_tokens is too small for the call.
# Guess: an error that names the token limit, after one call.
# Seen: the SDK tells the model that the tool has failed and that it should try again, until max_turns.
#   The error is MaxTurnsExceeded. Neither the model nor the caller learns of the token limit.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q openai-agents==0.24.0 openai==3.57.0 || exit 2
OPENAI_AGENTS_DISABLE_TRACING=1 "$folder/venv/bin/python" - <<'PYTHON'
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool
from agents.exceptions import MaxTurnsExceeded
from openai import AsyncOpenAI

FUNCTION = {"name": "write_file", "arguments": '{"text": "first line, and then the li'}
requests = []


class Engine(BaseHTTPRequestHandler):
    def do_POST(self):
        requests.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        call = {"id": f"call_{len(requests)}", "type": "function", "function": FUNCTION}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "finish_reason": "length", "message": message}
        answer = {"id": "c", "created": 1, "model": "m", "choices": [choice]}
        data = json.dumps({"object": "chat.completion", **answer}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Engine)
Thread(target=server.serve_forever, daemon=True).start()
ran = []


@function_tool
def write_file(text: str) -> str:
    """Write a file."""
    ran.append(text)
    return "written"


client = AsyncOpenAI(base_url=f"http://127.0.0.1:{server.server_port}/v1", api_key="k")
agent = Agent(name="a", model=OpenAIChatCompletionsModel("m", client), tools=[write_file])
try:
    Runner.run_sync(agent, "Write it.", max_turns=5)
    ended = "no error"
except MaxTurnsExceeded as error:
    ended = str(error)
told = [m["content"] for m in requests[-1]["messages"] if m["role"] == "tool"]
print(f"calls of the model: {len(requests)}; tool ran: {ran}; error: {ended}")
print(f"the model was told {len(told)} times: {told[:1]}")
same = len(requests) == 5 and not ran and "Max turns" in ended and len(told) == 4
sys.exit(not (same and not any("length" in text for text in told)))
PYTHON
