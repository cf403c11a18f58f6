"""The life of a call, chat and prefill alike: identified, placed, opened, sent, relayed, closed."""
