"""The vLLM plugin: scheduler class, report channel, endpoints. Only `wire` may be imported without vLLM."""
