"""A guided tour of a minute."""
