"""Transcripts: what the gateway has read of a program's messages, so that the next call pays only
for what is new in it.

The next body of a program begins with the bytes of the last one, up to the end of its messages.
`grid` compares bodies by digests of their beginnings, `transcript` holds what was read of their
messages, and `reading` takes the rest of a body. `weft_gateway.programs.transcripts` keeps them.
"""
