"""The parts of the demo model: its text, its tokenizer, its weights."""
