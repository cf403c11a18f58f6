"""The time of a scheduler step, Weft's and vLLM's: `weft bench scheduler`."""
