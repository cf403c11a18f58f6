"""Comparison with the peers: real proxies in front of the same replicas, one after another.

The bench plays the same agent programs at the same times through every front, closed loop over
HTTP. The figures of a call come from the replicas, so that they are measured alike for all fronts.
"""
