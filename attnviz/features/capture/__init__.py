"""Attention weights into a file."""
