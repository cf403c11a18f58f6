"""Row 5 of the alias table, lineage: whose call it is when no key says so, found from its text.

`canonical` brings every API's body into one form, `fingerprint` makes fingerprints of it, a `store`
remembers whose they are, `rules` decides (pure), and `tracker` is the one object to call.
"""
