"""Tools started while the answer streams, on published shapes of requests: `weft bench overlap`."""
