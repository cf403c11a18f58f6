"""Features that observe calls (`weft_gateway.calls.observers`)."""
