"""Processes of benches: stacks and proxies."""
