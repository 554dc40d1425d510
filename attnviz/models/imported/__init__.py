"""Attention that other tools have recorded, in their own formats.

TransformerLens caches and nnsight traces are tensors by the names of modules (:mod:`.named`), Inseq
has a JSON of its own (:mod:`.inseq`), BertViz takes a list of layers, and NumPy users have folders
(:mod:`.sources` reads files of all of these). Each becomes an :class:`~.recording.Imported`, and
that a capture by the checks of :mod:`attnviz.models.arrays`.
"""
