"""Tool calls recognised while they stream, so that tools run while the model still speaks.

Sutradhara (3.2, 4.2): a tool call can be dispatched when its last brace is there, long before the
answer ends. Everything here is sans-I/O and of the standard library, since the gateway and the
Python client run the same parser: `json_end` finds where a value ends, `tool_calls` puts calls
together from any API's chunks, `text_calls` finds them in plain text, `events` frames bytes, and
`dispatch` puts `event: tool_call_dispatch` between the frames of a stream.
"""
