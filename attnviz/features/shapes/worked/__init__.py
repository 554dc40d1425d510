"""Attention in numbers that one can follow by hand."""
