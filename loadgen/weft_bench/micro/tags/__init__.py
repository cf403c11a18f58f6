"""How well a gateway's tags meet the tokens that an engine makes of a prompt: `weft bench tags`."""
