"""Why the lean road cannot be taken."""

from __future__ import annotations

from attnviz.errors import ModelError


class Unsupported(ModelError):
    """A model that the lean road does not know; the message says what, without naming the model.

    Private to ``models``: :func:`attnviz.models.pretrained.load` takes the tap instead.
    """
