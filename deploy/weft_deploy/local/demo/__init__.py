"""Parts of the demo model: training text, tokenizer and weights."""
