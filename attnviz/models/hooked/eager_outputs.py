"""W_O of models that compute their attention in code of their own, found while they run.

The product of weights and values is recorded where the model makes it
(:mod:`attnviz.models.hooked.qk_hook`); the linear layer that takes it, number for number, is W_O,
as of hooked models (:mod:`attnviz.models.hooked.projection`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from attnviz.core.heads import Layout, Site
from attnviz.core.weights import OutputProjection
from attnviz.models.hooked.eager import returned
from attnviz.models.hooked.network import HookedModel, Item
from attnviz.models.hooked.projection import Projections
from attnviz.models.hooked.qk_hook import QKHook
from attnviz.models.hooked.unsplit import why_unsplit

_UNSEEN = "no product of the weights that it returns with values was seen"


@dataclass(frozen=True)
class EagerOutputs:
    """What was found.

    Attributes:
        projections: W_O of every layer that attends, or why it is not known.
        plan: the linear layer that is W_O, by its ``id``, and the layer; of all layers or of none.
    """

    projections: Mapping[Site, OutputProjection] = field(default_factory=dict)
    plan: tuple[tuple[int, Site], ...] = ()


def find_outputs(network: HookedModel, layout: Layout, items: Sequence[Item]) -> EagerOutputs:
    """Try with a few tokens which linear layer takes the outputs of every layer's heads.

    Args:
        network: a decoder with eager attention.
        layout: its heads.
        items: the tokens.
    """
    projections = Projections()
    batch = len(items)

    def attended(z: Tensor) -> None:
        whole = z.reshape(batch, -1, *z.shape[-2:]) if z.shape[0] % batch == 0 else z[None]
        projections.attended(whole.transpose(1, 2))

    hook = QKHook(attended)
    try:
        with torch.no_grad(), hook, projections.watching(network.body):
            output = network.run(items, weights=True)
    except Exception:  # whatever a model's own code raises when it is listened to
        return EagerOutputs()
    heard = hook.values(returned(output, "decoder"))
    unseen = OutputProjection(None, None, _UNSEEN)
    outputs = {
        site: projections.seen[heard[site][0]] if site in heard else unseen
        for site in layout.sites
        if layout.heads[site.kind][site.layer]
    }
    if any(out.weight is None for out in outputs.values()):
        why = {site: replace(out, reason=why_unsplit(network.family, out.reason))
               for site, out in outputs.items() if out.weight is None}  # fmt: skip
        return EagerOutputs(outputs | why)
    modules = {
        weight.data_ptr(): id(module)
        for module in network.body.modules()
        if isinstance(weight := getattr(module, "weight", None), nn.Parameter)
    }
    plan = tuple((modules[out.weight.data_ptr()], site) for site, out in outputs.items()
                 if out.weight is not None)  # fmt: skip
    return EagerOutputs(outputs, plan)
