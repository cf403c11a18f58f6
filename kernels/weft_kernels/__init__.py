"""KV block swap: layouts, the public copy functions and their Triton and torch forms."""
