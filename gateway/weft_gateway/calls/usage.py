"""The usage in an engine's answer, for engines that send no report."""

from __future__ import annotations

import re
from typing import Final

from weft_gateway.calls.call import Call
from weft_gateway.policies.admission import Claim

# An answer ends with its usage. Quotes in the model's text are escaped, so it cannot contain these.
_USAGE_BYTES: Final = 4096
_PROMPT: Final = re.compile(rb'"(?:prompt|input)_tokens"\s*:\s*(\d{1,9})\b')
_OUTPUT: Final = re.compile(rb'"(?:completion|output)_tokens"\s*:\s*(\d{1,9})\b')


def usage_of(call: Call, claim: Claim | None) -> tuple[int, int]:
    """Return the tokens of prompt and output that the engine counted, 0 if unknown. claim: keeps
    the end of a stream.
    """
    text = call.body_out
    if text is None:
        text = b"" if claim is None else b"".join(claim.tail)
    text = text[-_USAGE_BYTES:]
    prompt, output = _PROMPT.search(text), _OUTPUT.search(text)
    if prompt is None:
        return 0, 0
    return int(prompt[1]), int(output[1]) if output is not None else 0
