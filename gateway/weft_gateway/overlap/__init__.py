"""Tools, decoding and prefill at the same time (Sutradhara 3.2, 4.1, 4.2). Sans-I/O.

A tool call can be dispatched when its last brace is there, long before the answer ends: `json_end`
finds where a value ends, `tool_calls` puts calls together from any API's chunks, `text_calls` finds
them in plain text, `events` frames bytes, and `dispatch` puts `event: tool_call_dispatch` between
the frames of a stream; `whole` finds the calls of an answer that is none. These are of the standard
library, since the gateway and the Python client run the same parser. `prefill` is what a handle of
an announced prefix knows, `answers` what a stream has said, `tag_codec` the text form of tags that
a client gave ahead of its calls.
"""
