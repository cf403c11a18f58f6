"""The life of a call, chat or prefill: identify, place, open, send, relay, close."""
