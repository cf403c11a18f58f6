"""Methods of copying KV blocks between device and host: `weft bench swap`."""
