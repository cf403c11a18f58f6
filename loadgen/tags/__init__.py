"""How well a gateway's tags meet the tokens that the engine makes of a prompt: `weft bench tags`."""
