"""Why heads of some families cannot be told apart: what is known of their code, in words.

That no one matrix takes the outputs of a layer's heads is found on the model itself, for any family
(:mod:`attnviz.models.hooked.projection`, :mod:`attnviz.models.hooked.eager_outputs`); this says of
some of them what stands there instead.
"""

from __future__ import annotations

from collections.abc import Mapping

_WHY: Mapping[str, str] = {
    "diffllama": "its attention is differential (Ye et al. 2024, arXiv:2410.05258): the outputs of "
    "one half of the heads, less λ times the other's, are normalized before W_O",
    "jetmoe": "a router chooses for each token which expert's W_O takes its heads' outputs "
    "(mixture of attention heads)",
    "prophetnet": "one W_O takes the outputs of several streams, one for each token ahead, in code "
    "of its own",
    "inkling2_text": "its code gives every query a sink of its own, computed from the token",
    "inkling2_loop_text": "its code gives every query a sink of its own, computed from the token",
}


def why_unsplit(family: str, reason: str) -> str:
    """The reason, as the end of a sentence: what is known of the family, or what was found."""
    return _WHY.get(family, reason)
