"""Tools started while the answer streams, on requests of a published shape: `weft bench overlap`."""
