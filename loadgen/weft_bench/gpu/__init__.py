"""Four systems on one real vLLM, on a GPU or, clearly labelled, on a CPU."""
