"""How long what nobody asks for is kept."""
