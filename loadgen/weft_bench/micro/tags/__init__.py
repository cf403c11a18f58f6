"""Accuracy of the gateway's tags on the engine's tokens: `weft bench tags`."""
