"""Attention knockout: what is lost when some tokens may not attend to others.

The weights from the queries of one part of a text to the keys of another are cut, in all heads, in
some, or in a window of layers (Geva et al. 2023, arXiv:2304.14767), and the same rows lose as much
weight to random keys beside it.
"""
