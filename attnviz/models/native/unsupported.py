"""Why the native backend cannot be taken."""

from __future__ import annotations

from attnviz.errors import ModelError


class Unsupported(ModelError):
    """A model that the native backend does not know; the message does not name the model.

    Private to ``models``: :func:`attnviz.models.pretrained.load` takes the hooks instead.
    """
