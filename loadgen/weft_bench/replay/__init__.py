"""Plays programs over HTTP against a gateway: `weft bench replay`."""
