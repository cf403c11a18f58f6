"""Four systems on one real vLLM: what it takes on a GPU, or, clearly labelled, on a CPU."""
