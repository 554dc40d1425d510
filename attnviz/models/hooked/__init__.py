"""The hooks: attention from any transformers model, block by block, through :func:`attend`.

The one door into transformers. ``checkpoint.py`` loads a model and ``network.py`` runs it;
``interface.py`` is our attention function inside it, ``survey.py`` decides on first use whether
that shows what the model's own eager attention returns, and ``eager.py`` hands out the latter where
it does not. ``trace.py`` takes in what modules did; of that ``projection.py`` finds W_O,
``residual.py`` what stands around attention and the layers at which a pass can begin.
``tokenizer.py`` reads text and ``source.py`` puts it together; ``processors.py`` and ``loading.py``
do so for pictures and sound, ``vision_language.py`` for a picture with a text.

Written for transformers 4.56 and later, which is imported inside functions: that takes seconds.
"""

from attnviz.models.hooked.loading import foresee, load
from attnviz.models.hooked.source import Hooked
from attnviz.models.hooked.wrapped_model import borrow

__all__ = ["Hooked", "borrow", "foresee", "load"]
