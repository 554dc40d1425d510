"""Whether a file of recorded attention is what the format asks for."""
