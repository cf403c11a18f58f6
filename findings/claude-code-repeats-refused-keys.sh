#!/usr/bin/env bash
# Claude Code repeats a call whose API key is refused for three minutes, and shows nothing meanwhile.
#
# Package: @anthropic-ai/claude-code 2.1.332.
# Input: `claude -p` with ANTHROPIC_AUTH_TOKEN and a server that answers 401 with an error of type
#   authentication_error, as Anthropic's API does.
# Guess: the error is shown at once, because no repetition can help.
# Seen: eleven calls within 190 s, and then the error. With the header `x-should-retry: false` in the
#   answer there is one call. The script counts the calls of the first 15 s.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo '{"private": true}' > "$folder/package.json"
npm install --prefix "$folder" --no-audit --no-fund --silent @anthropic-ai/claude-code@2.1.332 || exit 2
FOLDER=$folder python3 - <<'PYTHON'
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

folder = os.environ["FOLDER"]
calls = 0
final = False


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        global calls
        calls += 1
        self.rfile.read(int(self.headers["content-length"]))
        error = {"type": "authentication_error", "message": "invalid x-api-key"}
        data = json.dumps({"type": "error", "error": error}).encode()
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if final:
            self.send_header("x-should-retry", "false")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
Thread(target=server.serve_forever, daemon=True).start()
environment = {
    "PATH": os.environ["PATH"],
    "HOME": folder,
    "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.server_port}",
    "ANTHROPIC_AUTH_TOKEN": "wrong",
    "ANTHROPIC_MODEL": "m",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}
seen = []
for final in (False, True):
    calls = 0
    try:
        done = subprocess.run(
            [f"{folder}/node_modules/.bin/claude", "-p", "Hello"],
            cwd=folder, env=environment, stdin=subprocess.DEVNULL, timeout=15,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )
        seen.append((calls, done.stdout.strip()))
    except subprocess.TimeoutExpired as error:
        seen.append((calls, (error.stdout or b"").decode()))
    print("with x-should-retry: false:" if final else "without:", *seen[-1])
(repeated, shown), (once, _) = seen
sys.exit(not (repeated > 3 and not shown and once == 1))
PYTHON
