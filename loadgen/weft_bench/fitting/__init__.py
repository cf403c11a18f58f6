"""The simulator's costs of a step and a swap, measured on an engine: `weft bench fit`."""
