"""Compares the simulator with a real engine on the same programs: `weft bench truth`."""
