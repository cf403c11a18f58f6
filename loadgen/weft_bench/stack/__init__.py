"""Processes of benches: stacks, proxies, and the cores that they run on."""
