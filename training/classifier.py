"""A tiny classifier of made-up reviews, in seconds on a CPU: ``python -m training.classifier DIR``.

A review praises or blames a thing, and *not* in front of the word that does so turns it over, which
a bag of words cannot tell: *the film was not good* is negative. The model is a BERT with two layers
and a label head, saved as transformers saves it, so that every command that takes a label reads it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.nn import functional
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
THINGS = ("film", "movie", "book", "song", "play", "dinner", "hotel", "room")
GOOD = ("good", "great", "lovely", "brilliant", "pleasant")
BAD = ("bad", "awful", "dull", "terrible", "boring")
OPENINGS = ("the", "this", "that", "our")
LINKS = ("was", "is", "seemed")
ENDINGS = ("", "today", "again", "to me")
NAMES = ("negative", "positive")
SEED, STEPS, BATCH, LENGTH = 1, 200, 32, 10


def review(generator: torch.Generator) -> tuple[str, int]:
    """Return a review and its label, 1 for praise."""

    def one(words: tuple[str, ...]) -> str:
        return words[int(torch.randint(len(words), (), generator=generator))]

    praises, turned = (int(torch.randint(2, (), generator=generator)) for _ in range(2))
    word = one(GOOD if praises else BAD)
    said = f"not {word}" if turned else word
    text = f"{one(OPENINGS)} {one(THINGS)} {one(LINKS)} {said} {one(ENDINGS)}".strip()
    return text, praises ^ turned


def tokenizer() -> PreTrainedTokenizerFast:
    """One token a word."""
    words = [*OPENINGS, *THINGS, *LINKS, "not", *GOOD, *BAD, *" ".join(ENDINGS).split()]
    pieces = list(dict.fromkeys([*SPECIAL, *words, *NAMES]))
    model = models.WordLevel({piece: n for n, piece in enumerate(pieces)}, unk_token="[UNK]")
    made = Tokenizer(model)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[(name, pieces.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def train(steps: int = STEPS) -> tuple[BertForSequenceClassification, float]:
    """Train the classifier; the model and its accuracy on 500 other draws."""
    torch.set_num_threads(1)  # threads of so small a model wait for each other
    torch.manual_seed(SEED)
    read, draws = tokenizer(), torch.Generator().manual_seed(SEED)
    config = BertConfig(
        vocab_size=len(read),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=32,
        pad_token_id=0,
        id2label=dict(enumerate(NAMES)),
        label2id={name: n for n, name in enumerate(NAMES)},
    )
    model = BertForSequenceClassification(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def batch(count: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        texts, labels = zip(*(review(draws) for _ in range(count)), strict=True)
        padded = read(list(texts), padding="max_length", max_length=LENGTH, return_tensors="pt")
        return dict(padded), torch.tensor(labels)

    model.train()
    for _ in range(steps):
        given, labels = batch(BATCH)
        loss = functional.cross_entropy(model(**given).logits, labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    model.eval()
    given, labels = batch(500)
    with torch.no_grad():
        right = (model(**given).logits.argmax(-1) == labels).float().mean()
    return model, float(right)


def main() -> None:
    """Train it and save it into a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the model goes")
    folder = parser.parse_args().folder
    model, accuracy = train()
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    print(f"accuracy on 500 other reviews: {accuracy:.3f}")


if __name__ == "__main__":
    main()
