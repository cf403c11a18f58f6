"""Journals of gateways: `weft record` writes them to files, `weft advise` plays a file with other
orders, replicas and caches, and `weft tune` chooses alpha of the balancer `work` by a replay.
"""
