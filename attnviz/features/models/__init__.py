"""Which models can be used right now."""
