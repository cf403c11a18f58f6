"""Clients that attack a gateway, next to an honest one: `weft bench attack`.

`attacks` holds the attacks, `attacker` and `honest` are processes of their own, so that neither
shares an interpreter with what it measures or disturbs, and `command` starts and compares them.
"""
