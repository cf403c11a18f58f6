"""Processes that benches start: stacks, proxies, and the cores that they run on."""
