"""Effects of taking heads away, on the terminal, as tables for programs and as figures."""
