"""A fake engine without a model: an HTTP server with a child process that ignores SIGTERM.

    python fake_engine.py PORT FOLDER

Like vLLM it has a child process. Files in FOLDER control it. `crash` ends the engine with status 3
and leaves the child behind, at each start, or at one start if the file contains "once". `core-dies`
prints vLLM's messages about a dead engine core and ends with status 0, like vLLM. While `hold`
exists, the engine is not ready. `models` has the names of its models as a JSON list.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_HELPER = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"

_CORE_DIES = (
    """
ERROR [core.py:1512] EngineCore encountered a fatal error.
ERROR [core.py:1512] RuntimeError: no reason to go on
ERROR [async_llm.py:906] AsyncLLM output_handler failed.
ERROR [async_llm.py:906] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.
INFO:     Shutting down
nanobind: leaked 514 functions!
"""
    + 40 * ' - leaked function "get_half_ty"\n'
)


def main(port: int, folder: Path) -> None:
    listed = folder / "models"
    names = json.loads(listed.read_text()) if listed.exists() else ["fake"]
    models = {"object": "list", "data": [{"id": name} for name in names]}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers = {"/health": {}, "/v1/models": models}
            known = self.path in answers and not (folder / "hold").exists()
            body = json.dumps(answers.get(self.path, {})).encode()
            self.send_response(200 if known else 503)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", 0))
            model = json.loads(self.rfile.read(length))["model"]
            message = {"role": "assistant", "content": f"I am {model}."}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            usage = {"prompt_tokens": 1, "completion_tokens": 4, "total_tokens": 5}
            body = json.dumps(
                {
                    "id": "chatcmpl-1",
                    "object": "chat.completion",
                    "created": 1,
                    "model": model,
                    "choices": [choice],
                    "usage": usage,
                }
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing, so that the log has only the messages that tests look for."""

    def crash() -> None:
        while not (folder / "crash").exists():
            if (folder / "core-dies").exists():
                print(_CORE_DIES, flush=True)
                os._exit(0)
            time.sleep(0.02)
        if (folder / "crash").read_text() == "once":
            (folder / "crash").unlink()
        print("the fake engine found a reason to die", flush=True)
        os._exit(3)

    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    helper = subprocess.Popen([sys.executable, "-c", _HELPER])
    threading.Thread(target=crash, daemon=True).start()
    print(f"engine {os.getpid()}, helper {helper.pid}", flush=True)
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
