"""The vLLM plugin: scheduler class, report channel, endpoints. `wire` needs no vLLM."""
