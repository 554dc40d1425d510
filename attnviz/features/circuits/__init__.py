"""Circuits from weights alone: who can feed whom, what heads copy, where positions send them.

``fold`` takes normalizations into the matrices; ``compose``, ``copying`` and ``positions`` measure;
``run`` asks all of it about one model.
"""
