"""A score, a role, a metric and a fill of one's own; docs/plugins.md goes through them."""

import torch

import attnviz as av

ARTICLES = ("the", "a", "an")


@av.role("articles", mean=0.4, lift=1.5, code="art", short="ar")
@av.score("articles", formula="sum of w[j] over articles", targets=True)
def articles(block: av.ScoreBlock) -> torch.Tensor:
    """The weight on the tokens the, a and an."""
    return block.on([text.strip().lower() in ARTICLES for text in block.key_texts])


@av.metric("accuracy", unit="share", worse=-1)
def accuracy(seen: av.Predictions) -> torch.Tensor:
    """1 where the likeliest token is the one that follows."""
    return (seen.logits.argmax(-1) == seen.targets).double()


@av.fill("halved")
def halved(seen: av.Outputs) -> torch.Tensor:
    """Half of what a head gives."""
    return seen.outputs / 2
