"""Which sentences of a reasoning trace later ones read, and which of them they need.

Sentence by sentence, after Thought Anchors (Bogdan et al. 2025, arXiv:2506.19143): how much every
head attends from one sentence to another, receiver heads, and what changes in later sentences where
attention to one of them is suppressed.
"""
