"""Shapes and costs of attention: one function a view of ``attnviz shapes``, each with one answer.

>>> from attnviz import answers
>>> found = answers.compare(answers.Model(preset="llama3-70b"), memory="80GB")
>>> found.data["variants"][0]["cache_bytes_per_token"]
5242880

Nothing here imports torch, except to verify; matplotlib and NumPy are imported only for what
needs them.
"""

from attnviz.answers.costs import compare, presets, sweep
from attnviz.answers.subject import Layer, Model
from attnviz.answers.walks import diagram, verify, walk
from attnviz.answers.worked import Example, animate, numbers, scaling
from attnviz.render.shapes.answer import Answer
from attnviz.shapes.spec import RunSizes

__all__ = [
    "Answer",
    "Example",
    "Layer",
    "Model",
    "RunSizes",
    "animate",
    "compare",
    "diagram",
    "numbers",
    "presets",
    "scaling",
    "sweep",
    "verify",
    "walk",
]
