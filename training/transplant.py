"""Weights of a trained model under another tokenizer, to train on from there."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from .tokens import CAUSAL_SPECIAL, END, special_id


def embeddings(weights: Tensor, old: Tokenizer, new: Tokenizer) -> Tensor:
    """Return [new vocabulary, width]: of every token the mean of what it was cut into before.

    Both are byte-level BPE, so that every token is a sequence of tokens of the other. Special
    tokens that the old one lacks begin where ``<|endoftext|>`` is.

    Args:
        weights: [old vocabulary, width].
        old: the tokenizer of ``weights``.
        new: the tokenizer to come.
    """
    rows = []
    for token in range(new.get_vocab_size()):
        name = new.id_to_token(token)
        pieces = [old.token_to_id(name if old.token_to_id(name) is not None else END)]
        if name not in CAUSAL_SPECIAL:
            pieces = [piece.id for piece in old.model.tokenize(name)]
        rows.append(weights[pieces].mean(0))
    return torch.stack(rows)


def transplant(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path) -> None:
    """Give ``model`` the weights in ``folder``, which has another tokenizer.

    Raises:
        SystemExit: the two differ in more than the vocabulary.
    """
    before = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    old = Tokenizer.from_file(str(folder / "tokenizer.json"))
    special_id(old, END)
    state = before.state_dict()
    for name, value in model.state_dict().items():
        if name not in state or state[name].shape[1:] != value.shape[1:]:
            raise SystemExit(f"{folder} is of another shape than what is trained, at {name}")
    rows = embeddings(before.get_input_embeddings().weight.detach(), old, tokenizer)
    joint = {name for name in state if state[name].shape[0] == old.get_vocab_size()}
    model.load_state_dict({name: rows if name in joint else state[name] for name in state})
