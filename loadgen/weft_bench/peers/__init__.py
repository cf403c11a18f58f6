"""The comparison with the peers: real proxies, one after the other, in front of the same replicas.

Agents' programs are played closed loop over HTTP, the same ones at the same times for every front.
What is told of a call comes from the replicas, so that it is measured alike whatever is in front.
"""
