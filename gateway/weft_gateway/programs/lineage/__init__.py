"""Lineage: finds the program of a call that names none from its text.

`canonical` converts the bodies of all APIs to one form, `fingerprint` computes fingerprints of it,
a `store` maps fingerprints to programs, `rules` decides (pure), and `tracker` is the interface for
callers.
"""
