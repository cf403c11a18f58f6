"""Cost of a proxy in front of an engine for each call: `weft bench overhead`."""
