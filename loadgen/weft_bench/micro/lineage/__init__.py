"""Accuracy of the gateway's lineage for calls without a program key: `weft bench lineage`."""
