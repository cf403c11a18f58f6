"""Clients that attack a gateway, next to an honest one: `weft bench attack`.

`attacks` defines the attacks. `attacker` and `honest` are separate processes, so that neither
shares an interpreter with the measured or disturbed side. `command` starts and compares them.
"""
