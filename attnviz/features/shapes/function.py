"""Shapes and costs of attention: one function a view of ``attnviz shapes``, each with one answer.

An answer is a typed record (:mod:`attnviz.features.shapes.result`) with ``to_dict``, ``to_json``,
``from_dict`` and ``from_json``; ``Answer.from_json`` and ``attnviz.read`` read any of them.

>>> from attnviz import answers
>>> comparison = answers.compare(answers.Model(model="llama3-70b"), memory="80GB")
>>> comparison.variants[0].cache_bytes_per_token
5242880

Nothing here imports torch, except to verify; matplotlib and NumPy are imported only for what
needs them.
"""

from attnviz.attention.spec import RunSizes
from attnviz.features.shapes import models, verified  # noqa: F401 - Answer reads their views
from attnviz.features.shapes.answers.costs import compare, presets, sweep
from attnviz.features.shapes.answers.subject import Layer, Model
from attnviz.features.shapes.answers.walks import diagram, verify, walk
from attnviz.features.shapes.answers.worked import Example, animate, numbers, scaling
from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.worked import result  # noqa: F401 - likewise

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
