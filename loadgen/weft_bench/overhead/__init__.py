"""What a proxy in front of an engine costs a call: `weft bench overhead`."""
