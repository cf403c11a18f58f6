"""Features that look on while a call is served (`weft_gateway.calls.observers`)."""
