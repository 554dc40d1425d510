"""``attnviz.prune_heads``: the checkpoint with heads really removed, for any program to load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from attnviz.captures.loading import load
from attnviz.core.heads import Head
from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source
from attnviz.drawing.labels import counted
from attnviz.errors import ModelError, UsageError
from attnviz.files import wrote
from attnviz.models import pretrained
from attnviz.models.folder import Located, locate, located
from attnviz.models.pruned import checkpoint
from attnviz.scoring.select import select


@dataclass(frozen=True)
class Pruned:
    """A checkpoint without some heads, and that it does what it should."""

    folder: Path  # where it is; transformers loads it by this path
    heads: tuple[str, ...]  # the heads that are removed, by name
    cut: int  # of these, how many in each layer are taken out of the matrices
    # those whose weights are set to zero, since transformers could not load fewer heads
    zeroed: tuple[str, ...]
    parameters: tuple[int, int]  # of the checkpoint before and after
    size: tuple[int, int]  # bytes of its weights before and after
    # the largest difference of a logit (or of the last states) from the model whose heads are
    # gated, both in float32, on a text
    difference: float

    def __str__(self) -> str:
        """Return what was written, and how it was checked."""
        before, after = self.parameters
        small, large = (f"{size / 1e6:,.1f} MB" for size in (self.size[1], self.size[0]))
        lines = [f"{wrote(self.folder)} without {counted(len(self.heads), 'head')}"]
        if self.cut:
            lines.append(
                f"{self.cut} of each layer cut out: {after:,} of {before:,} parameters, "
                f"{small} of {large}"
            )
        if self.zeroed:
            reason = (
                "which is more than every layer loses" if self.cut
                else "since transformers loads no fewer heads here"
            )  # fmt: skip
            size = "" if self.cut else f" ({before:,} parameters, {small})"
            lines.append(
                f"{counted(len(self.zeroed), 'head')} set to zero and as large as before{size}, "
                f"{reason}"
            )
        lines.append(
            f"checked: differs from the model with these heads at zero by {self.difference:.1e} "
            "at most"
        )
        return "\n".join(lines)


TOLERANCE = 1e-4
"""Largest difference of a logit, relative to the largest, with which a checkpoint is kept."""
_LENGTH = 12  # tokens of the text on which it is checked


@interface
def prune_heads(
    model: str | Path, heads: str | Sequence[Head], folder: str | Path, *, device: str = "auto"
) -> Pruned:
    """Write a checkpoint with some heads removed, which plain transformers loads.

    Heads are cut out of W_Q, W_K, W_V and W_O, and the configuration says how many are left, as
    far as transformers can load that: models with a ``head_dim`` of their own (Llama and its kin),
    whole groups of query heads that share a key and value head, and as many in every layer. Other
    heads, and all of GPT-2, BERT and their kin, are set to zero: the same function, of the same
    size. The new checkpoint is loaded again and compared with the model whose heads are gated: it
    is built beside the folder, and takes its place in one step once that holds.

    Args:
        model: a bundled model's name, a folder or a hub id; single stacks.
        heads: which ones: a selection such as ``"2.4, 3.*"``, or heads.
        folder: where to write; it must not be there, or be empty.
        device: where to compare.

    Returns:
        What was removed and how, parameters and bytes before and after, and the largest difference.

    Raises:
        SelectionError: no such heads. UsageError: a model in memory, or an untrained one.
        ModelError: projections of an unknown kind, or a checkpoint that does not do what the gated
            model does. OutputError: something is in the folder, or it cannot be written.

    Source:
        Michel et al. 2019 (arXiv:1905.10650); groups: Ainslie et al. 2023 (arXiv:2305.13245).
    """
    if not isinstance(model, str | Path) or str(model) == "fresh":
        raise UsageError("only a checkpoint can be written without heads; name a folder or hub id")
    checkpoint = locate(str(model))
    if checkpoint.adapter is not None:
        raise UsageError(
            "{} is an adapter; merge it into its model, save that, and name it", str(model)
        )
    source = load(model, device=device, dtype="float32")
    removed = select(heads, source.layout) if isinstance(heads, str) else tuple(heads)
    if len(source.layout.kinds) != 1 or len(set(_counts(source))) != 1:
        raise ModelError("{} has layers of several kinds or sizes; heads are removed from a single "
                         "stack with as many in each layer", source.info.model)  # fmt: skip
    return write(source, checkpoint, removed, Path(folder), device)


def write(
    source: Source, model: Located, heads: Sequence[Head], folder: Path, device: str
) -> Pruned:
    """Write and check; cut heads where the result can be loaded, and zero them where it cannot."""
    removed: dict[int, list[int]] = {}
    for head in heads:
        removed.setdefault(head.layer, []).append(head.index)
    count = _counts(source)[0]
    expected = _outputs(source, {head.qualified: 0.0 for head in heads})
    checkpoint.check_free(folder)
    for cut in (True, False):
        with checkpoint.building(model, folder) as part:
            try:
                result = checkpoint.write(model, removed, count, part, cut=cut)
                difference = _difference(expected, part, device)
            except ModelError:
                if not cut:
                    raise
                continue
            if difference <= TOLERANCE * float(expected.abs().max()):
                checkpoint.keep(part, folder)
                break
    else:
        raise ModelError(
            "without these heads the checkpoint of {} gives logits that differ by {:.1e} from the "
            "gated model, so it is not kept",
            source.info.model,
            difference,
        )
    name = source.layout.name
    zeroed = tuple(name(h) for h in heads if h.index in result.removal.zeroed.get(h.layer, ()))
    lost = len(next(iter(result.removal.cut.values()), ()))
    return Pruned(
        folder, tuple(map(name, heads)), lost, zeroed, result.parameters, result.size, difference
    )


def _counts(source: Source) -> tuple[int, ...]:
    """Heads of each layer."""
    (first, *_) = source.layout.kinds
    return source.layout.heads[first]


def _difference(expected: torch.Tensor, folder: Path, device: str) -> float:
    """How far what was written is from what it should be."""
    checkpoint = located(folder, "the checkpoint without these heads")
    logits = _outputs(pretrained.load(checkpoint, device=device, dtype="float32"), {})
    if logits.shape != expected.shape:
        return float("inf")
    return float((logits - expected).abs().max())


def _outputs(source: Source, gates: dict[str, float]) -> torch.Tensor:
    """Logits on a text of a few tokens from all over the vocabulary; or the last states."""
    vocabulary = source.vocab_size or 0
    ids = tuple(2 + (7919 * n) % max(vocabulary - 2, 1) for n in range(_LENGTH))
    inputs = source.prepare(Prompt(ids=ids, special_tokens=False))
    request = ForwardRequest(logits=not source.no_logits)
    with source.gated(gates):
        output = source.forward([inputs], [], request)
    values = output.logits if output.logits is not None else output.hidden
    assert values is not None
    return values.detach().float().cpu()
