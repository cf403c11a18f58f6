"""Compares virtual time with emulated engines on the same programs: `weft bench agreement`."""
