"""See what the attention heads of a transformer do."""

__version__ = "0.1.0"
