"""Ways to copy KV blocks between device and host: `weft bench swap`."""
