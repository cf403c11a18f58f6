"""Overlaps tools, decoding and prefill (Sutradhara 3.2, 4.1, 4.2). Sans-I/O.

A tool call can be dispatched when its last brace arrives, long before the answer ends. `json_end`
finds the end of a value, `tool_calls` assembles calls from any API's chunks, `text_calls` finds
them in plain text, `events` splits a stream into events, and `dispatch` inserts `event:
tool_call_dispatch` between the frames; `whole` finds the calls of a non-streamed answer. `prefill`
holds the data of a prefill handle, `answers` reads the message of a stream, `tag_codec` is the text
form of tags that a client sets ahead of its calls.
"""
