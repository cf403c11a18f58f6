"""A simulator in virtual time in which the code of production decides: vLLM's scheduler with our
plugin, the gateway's router and its process table. Only the model is replaced, by what it costs."""
