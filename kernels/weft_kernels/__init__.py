"""KV block swap: layouts, public copy functions, and their Triton and torch implementations."""
