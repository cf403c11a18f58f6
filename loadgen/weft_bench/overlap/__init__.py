"""Tools that start during the answer, on published shapes of requests: `weft bench overlap`."""
