"""Train demo-gpt2: ``python -m training.gpt2 --text FOLDER --out FOLDER``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

from .command import Prepared, main, sinusoids
from .head import head_loss
from .optim import Rates, Schedule
from .samples import CausalRows, join, random_tokens
from .tokens import CAUSAL_SPECIAL, END, special_id, train_bpe
from .transplant import transplant
from .turns import Turns
from .watch import best, score_weights

POSITIONS = 256
VOCABULARY = 8192
BATCH = 2048
"""Tokens a step: what fits the cache is a third faster per token than twice of it."""
TURNS = 1000
"""The first step with questions on documents; before, text and repeats alone."""

RATES = Rates(late_positions=3.0)
"""Late positions see little of the early, short windows, and catch up while other rates fall."""


def config(vocabulary: int) -> GPT2Config:
    """Four layers of six heads, in every other way a GPT-2."""
    return GPT2Config(
        vocab_size=vocabulary, n_positions=POSITIONS, n_embd=192, n_layer=4, n_head=6,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip


def build(vocabulary: int, seed: int) -> GPT2LMHeadModel:
    """Fresh weights; the positions start as small sinusoids, so that neighbours resemble."""
    torch.manual_seed(seed)
    settings = config(vocabulary)
    settings._attn_implementation = "sdpa"
    settings.activation_function = "gelu_pytorch_tanh"
    model = GPT2LMHeadModel(settings)
    settings.activation_function = "gelu_new"  # the same function, in one fast operation above
    with torch.no_grad():
        model.transformer.wpe.weight.copy_(0.05 * sinusoids(POSITIONS, settings.n_embd))
    return model


class Causal:
    """Next-token prediction on text and repeated sequences."""

    def __init__(self, data: Prepared) -> None:
        self.model = build(data.tokenizer.get_vocab_size(), data.seed)
        if data.start is not None:
            transplant(self.model, data.tokenizer, data.start)
        self.model.to(torch.device(data.device))  # type: ignore[arg-type]
        vocabulary = data.tokenizer.get_vocab_size()
        special = len(CAUSAL_SPECIAL)
        self.rows = CausalRows(
            join(data.train), vocabulary, special_id(data.tokenizer, END), special,
            Turns.of(data.books, data.tokenizer),
        )  # fmt: skip
        rng = np.random.default_rng(0)
        held = CausalRows(join(data.held_out or data.train), vocabulary)
        self.text = torch.from_numpy(held.batch(rng, 16, POSITIONS, 0.0)).to(
            torch.device(data.device)
        )
        self.fresh = data.start is None
        half = [random_tokens(rng, POSITIONS // 2, vocabulary, special) for _ in range(4)]
        self.repeat = torch.from_numpy(np.stack([np.concatenate([part, part]) for part in half]))
        self.repeat = F.pad(self.repeat, (1, 0)).to(torch.device(data.device))

    def mean_loss(self, ids: Tensor) -> Tensor:
        """Mean loss of the next token over every position."""
        hidden = self.model.transformer(ids[:, :-1], use_cache=False).last_hidden_state
        return head_loss(hidden.flatten(0, 1), self.model.lm_head.weight, ids[:, 1:].flatten())

    def loss(self, rng: np.random.Generator, step: int, schedule: Schedule) -> Tensor:
        """Most windows half as long at first; once the rates fall, fewer and later repeats.

        Of what is no plain text, a quarter is questions on documents from :data:`TURNS` on, and
        half of it in the end. A model that goes on from another knows how to repeat: see
        :meth:`again`.
        """
        if not self.fresh:
            return self.again(rng, schedule.fallen(step))
        early = step < min(3000, 0.5 * schedule.steps)
        window = POSITIONS // 2 if early and rng.random() < 0.75 else POSITIONS
        repeats = 0.4 - 0.25 * min(1.0, 1.25 * schedule.fallen(step))
        lead = 0.5 if schedule.fallen(step) else 0.0
        turns = min(0.1, repeats / 2) if step >= TURNS else 0.0
        return self.drawn(rng, window, repeats, lead, turns)

    def again(self, rng: np.random.Generator, fallen: float) -> Tensor:
        """Long windows, late repeats and questions from the first step on.

        Repeats are fewer and fewer while the rates fall, and more again for the last steps: without
        them the induction heads blur.
        """
        repeats = 0.3 - 0.15 * min(1.0, 1.25 * fallen)
        turns = min(0.1, repeats / 2)
        if fallen >= 0.6:
            repeats, turns = 0.25, 0.08
        return self.drawn(rng, POSITIONS, repeats, 0.5, turns)

    def drawn(
        self, rng: np.random.Generator, window: int, repeats: float, lead: float, turns: float
    ) -> Tensor:
        """Return the loss of a batch of such a mix, see :meth:`CausalRows.batch`."""
        ids = self.rows.batch(rng, BATCH // window, window, repeats, lead, turns)
        return self.mean_loss(torch.from_numpy(ids).to(self.model.device))

    @torch.no_grad()
    def probe(self) -> Mapping[str, float]:
        """Held-out loss, loss on repeated random tokens, and the best heads."""
        model = self.model
        model.set_attn_implementation("eager")
        repeat = model(self.repeat[:, :-1], output_attentions=True)
        losses = F.cross_entropy(
            repeat.logits.transpose(1, 2), self.repeat[:, 1:], reduction="none"
        )
        half = POSITIONS // 2
        some = self.text[:4, :128]
        text = model(some, output_attentions=True)
        model.set_attn_implementation("sdpa")
        seen = torch.stack(text.attentions), torch.stack(repeat.attentions)
        begin = {self.rows.begin}
        scores = score_weights(seen[0], some, ("previous", "first", "duplicate"), begin)
        scores |= score_weights(seen[1], self.repeat[:, :-1], ("induction",), begin)
        return {
            "held_out": float(self.mean_loss(self.text)),
            "repeat_first": float(losses[:, :half].mean()),
            "repeat_second": float(losses[:, half + 1 :].mean()),
            **best(scores),
        }


if __name__ == "__main__":
    main(Causal, train_bpe, POSITIONS, RATES, VOCABULARY)
