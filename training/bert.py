"""Train demo-bert: ``python -m training.bert --text FOLDER --out FOLDER``."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM

from .command import Prepared, main, sinusoids
from .optim import Schedule
from .samples import IGNORED, PairRows, join, mask_tokens
from .tokens import BERT_SPECIAL, special_ids, stop_ids, train_wordpiece
from .watch import best, score_weights

POSITIONS = 256
BATCH = 2048
"""Tokens a step: what fits the cache is a third faster per token than twice of it."""
SHARE = 0.2
"""Of the tokens to predict; evaluation masks 0.15."""

WATCHED = ("previous", "next", "first", "separator", "duplicate")


def config(vocabulary: int) -> BertConfig:
    """Four layers of six heads, in every other way a BERT."""
    return BertConfig(
        vocab_size=vocabulary, hidden_size=192, num_hidden_layers=4, num_attention_heads=6,
        intermediate_size=768, max_position_embeddings=POSITIONS,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip


def build(vocabulary: int, seed: int) -> BertForMaskedLM:
    """Fresh weights; the positions start as small sinusoids, so that neighbours resemble."""
    torch.manual_seed(seed)
    settings = config(vocabulary)
    settings._attn_implementation = "eager"
    model = BertForMaskedLM(settings)
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.copy_(
            0.05 * sinusoids(POSITIONS, settings.hidden_size)
        )
    return model


class Masked:
    """Masked-token prediction on sentence pairs."""

    def __init__(self, data: Prepared) -> None:
        vocabulary = data.tokenizer.get_vocab_size()
        self.vocabulary = vocabulary
        self.model = build(vocabulary, data.seed)
        self.model.to(torch.device(data.device))  # type: ignore[arg-type]
        special, stops = special_ids(data.tokenizer), stop_ids(data.tokenizer)
        self.rows = PairRows.of(join(data.train), stops, vocabulary, special)
        held = PairRows.of(join(data.held_out or data.train), stops, vocabulary, special)
        rng = np.random.default_rng(0)
        self.held = self.draw(rng, held, 32, 128)

    def draw(self, rng: np.random.Generator, rows: PairRows, count: int, window: int) -> Tensor:
        """[3, rows, window]: inputs, segments, labels."""
        ids, segments = rows.batch(rng, count, window)
        inputs, labels = mask_tokens(rng, ids, SHARE, len(BERT_SPECIAL), rows.mask, self.vocabulary)
        return torch.from_numpy(np.stack([inputs, segments, labels])).to(self.model.device)

    def predict(self, drawn: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and labels of the positions to be predicted, and of those only."""
        inputs, segments, labels = drawn
        with torch.autocast(inputs.device.type, torch.bfloat16):
            hidden = self.model.bert(inputs, token_type_ids=segments).last_hidden_state
            wanted = labels != IGNORED
            logits = self.model.cls(hidden[wanted])
        return logits.float(), labels[wanted]

    def loss(self, rng: np.random.Generator, step: int, schedule: Schedule) -> Tensor:
        """Short windows at first, then all lengths up to the full window."""
        early = step < min(2000, 0.35 * schedule.steps)
        window = int(rng.choice((32, 64) if early else (32, 64, 128, 128, POSITIONS)))
        logits, labels = self.predict(self.draw(rng, self.rows, BATCH // window, window))
        return F.cross_entropy(logits, labels)

    @torch.no_grad()
    def probe(self) -> Mapping[str, float]:
        """Held-out loss and accuracy, and the best heads."""
        logits, labels = self.predict(self.held)
        ids, segments, _ = self.held[:, :8]
        sep = self.rows.sep
        special = {self.rows.cls, sep}
        outputs = self.model.bert(ids, token_type_ids=segments, output_attentions=True)
        return {
            "held_out": float(F.cross_entropy(logits, labels)),
            "accuracy": float((logits.argmax(-1) == labels).float().mean()),
            **best(score_weights(torch.stack(outputs.attentions), ids, WATCHED, special, sep)),
        }


if __name__ == "__main__":
    main(Masked, train_wordpiece, POSITIONS)
