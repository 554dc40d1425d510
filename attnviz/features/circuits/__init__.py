"""Circuits from weights alone: who can feed whom, what heads copy, where positions send them.

``compose`` takes normalizations into the matrices and measures; ``copying`` does for tokens and
positions; ``function`` asks all of it about one model.
"""
