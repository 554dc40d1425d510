"""How far a server's log probabilities of what it wrote are from those of the model here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import doubles, on_numpy
from attnviz.core.prompt import Inputs, Reply
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.tokens import Tokens

AGREE = 0.1
"""Natural logarithms that half precision may be off by."""
_CAUSES = "another quantization, another chat template, or logarithms taken after a temperature"


def compared(source: Source, inputs: Inputs, reply: Reply) -> Inputs:
    """The same inputs with a note on how the reply's log probabilities compare."""
    ((kind, sides),) = inputs.sides.items()
    tokens = sides.queries
    span = next((span for span in tokens.spans if span.name == reply.span), None)
    if span is None:
        return inputs
    places = [place for place in span.positions if place > 0]
    written = replace(tokens, written=len(tokens) - places[0]) if places else tokens
    note = _note(source, inputs, written, places, reply)
    return replace(
        inputs, sides={kind: replace(sides, queries=written, keys=written)},
        notes=(*inputs.notes, note),
    )  # fmt: skip


def _note(source: Source, inputs: Inputs, tokens: Tokens, places: list[int], reply: Reply) -> str:
    count = len(reply.log_probs)
    if not count:
        return (
            "The server's response has no log probabilities to compare; ask it for them (logprobs)."
        )
    texts = [tokens.texts[place] for place in places]
    if count == len(places) + 1 and reply.texts:
        count -= 1  # the token that ends an answer, which is none of its text
    if count != len(places) or not all(map(_alike, reply.texts, texts)):
        return (
            f"The tokenizer here reads the {len(reply.log_probs)} tokens that the server wrote as "
            f"{len(places)} others: it has another tokenizer, or adds other tokens. Their log "
            "probabilities are not compared."
        )
    if source.no_logits:
        return f"Log probabilities are not compared: {source.no_logits}."
    here = _log_probs(source, inputs, tokens, places)
    known = [n for n in range(count) if reply.log_probs[n] is not None]
    if not known:
        return "The server's response has no log probabilities to compare."
    there = np.array([reply.log_probs[n] for n in known], np.float64)
    apart = np.abs(here[known] - there)
    worst = int(apart.argmax())
    which = f"log probabilities of {len(known)} tokens"
    if apart[worst] <= AGREE:
        return f"The server's {which} and those of the model here agree to {apart[worst]:.2g}."
    return (
        f"The server's {which} and those of the model here are up to {apart[worst]:.2g} apart, at "
        f"{texts[known[worst]]!r} ({there[worst]:.2f} there, "
        f"{here[known][worst]:.2f} here): {_CAUSES}."
    )


def _alike(there: str, here: str) -> bool:
    """Whether two spellings may be of one token; some have no blanks, some are half a letter."""
    odd = "\N{REPLACEMENT CHARACTER}" in there + here or there.startswith(("bytes:", "token_id:"))
    return odd or there.strip() == here.strip()


def _log_probs(
    source: Source, inputs: Inputs, tokens: Tokens, places: list[int]
) -> NDArray[np.float64]:
    """Of the tokens at some places, from the rows before them."""
    logits = source.forward([inputs], request=ForwardRequest(hidden=False, logits=True)).logits
    assert logits is not None
    rows = on_numpy.log_softmax(doubles(logits[0, [place - 1 for place in places]]))
    ids = [tokens.ids[place] for place in places]
    chosen: NDArray[np.float64] = rows[np.arange(len(places)), ids]
    return chosen
