"""The four APIs of an engine. Each reads calls and formats answers."""

from typing import Final

from weft_bench.simulated.dialects.base import Asked, Dialect, Refused
from weft_bench.simulated.dialects.chat import Chat
from weft_bench.simulated.dialects.completions import Completions
from weft_bench.simulated.dialects.messages import Messages
from weft_bench.simulated.dialects.responses import Responses

DIALECTS: Final[dict[bytes, type[Dialect]]] = {
    b"/v1/chat/completions": Chat,
    b"/v1/completions": Completions,
    b"/v1/responses": Responses,
    b"/v1/messages": Messages,
}

__all__ = ["DIALECTS", "Asked", "Dialect", "Refused"]
