"""Simulator in virtual time.

vLLM's scheduler with Weft's plugin, the gateway's router and its process table run unchanged. A
cost model replaces the model.
"""
