"""The simulator beside a real engine, on the same programs: `weft bench truth`."""
