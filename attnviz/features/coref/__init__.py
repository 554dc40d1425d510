"""Which heads find what pronouns and mentions refer to."""
