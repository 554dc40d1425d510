"""The card's figures: ``python -m training.evaluate FOLDER --text FOLDER``.

Everything is measured on the held-out books, on the folder as transformers loads it (half
precision on disk, float32 here).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from . import watch
from .ngrams import Trigram, likeliest_after
from .samples import IGNORED, PairRows, join, mask_tokens, random_tokens
from .text import HELD_OUT, read_books
from .tokens import BERT_SPECIAL, END, Ids, encode, special_id, special_ids, stop_ids

SEED = 20
MASKED = 0.15
PROBED = 10
"""Batches of eight rows on which heads are scored: 20,000 rows of weights for the GPT-2."""
PAIRED = 64
"""Batches of eight sentence pairs on which the BERT guesses masked tokens."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table: what, where it was found, and the bar it has to reach."""

    name: str
    value: float
    head: str = ""
    bar: float | None = None
    below: bool = False
    """The bar is an upper one."""

    @property
    def met(self) -> bool:
        """Whether the bar is reached (True where there is none)."""
        return self.bar is None or (
            self.value <= self.bar if self.below else self.value >= self.bar
        )


@dataclass(frozen=True)
class Corpus:
    """The training stream and the held-out one, as the folder's tokenizer reads them."""

    tokenizer: Tokenizer
    train: Ids
    held_out: Ids

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return int(self.tokenizer.get_vocab_size())


def best_head(name: str, scores: Tensor, bar: float | None = None) -> Figure:
    """The best of [layers, heads], as a figure that names it ``layer.head``."""
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    return Figure(name, float(scores.max()), f"{layer}.{head}", bar)


@torch.no_grad()
def run(model: Any, ids: Tensor, **inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Attention weights [L, B, H, T, T] and logits."""
    outputs = model(ids, output_attentions=True, **inputs)
    return torch.stack(outputs.attentions), outputs.logits


def mean_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """[B, T] losses of ``targets``."""
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


def windows(stream: Ids, length: int, begin: int) -> Tensor:
    """The whole stream in rows of ``length`` tokens, each after the begin-of-text token."""
    count = len(stream) // length
    rows = torch.from_numpy(stream[: count * length].reshape(count, length))
    return F.pad(rows, (1, 0), value=begin)


def repeated_tokens(positions: int, vocabulary: int, begin: int) -> Tensor:
    """Rows of random tokens twice over, as many as fit after the begin-of-text token."""
    rng = np.random.default_rng(SEED)
    half = (positions - 1) // 2
    rows = [np.tile(random_tokens(rng, half, vocabulary, begin + 1), 2) for _ in range(32)]
    return windows(np.concatenate(rows), 2 * half, begin)


def mean_scores(parts: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of equally large parts, score by score."""
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


def causal_figures(model: Any, corpus: Corpus) -> list[Figure]:
    """Heads on held-out text and on repeated random tokens; losses against the trigram."""
    positions, vocabulary = model.config.n_positions, corpus.vocabulary
    begin = special_id(corpus.tokenizer, END)
    rows = windows(corpus.held_out, positions - 1, begin)
    losses, scores = [], []
    repeat = repeated_tokens(positions, vocabulary, begin)
    again, repeat_logits = run(model, repeat)
    for at, part in enumerate(torch.split(rows, 8)):
        weights, logits = run(model, part)
        if at < PROBED:
            scores.append(watch.causal_scores(weights, part, again, repeat))
        losses.append(mean_losses(logits[:, :-1], part[:, 1:]))
    best = mean_scores(scores)
    loss = torch.cat(losses).double().mean().item()
    trigram = Trigram.of(corpus.train, vocabulary)
    scored = rows.shape[0] * (positions - 1)
    baseline = float(trigram.losses(corpus.held_out[:scored]).mean())

    repeated = mean_losses(repeat_logits[:, :-1], repeat[:, 1:])
    half = repeated.shape[1] // 2
    halves = [float(part.mean()) for part in (repeated[:, :half], repeated[:, half + 1 :])]
    return [
        best_head("previous token", best["previous"], 0.75),
        best_head("first token", best["first"], 0.80),
        best_head("induction, repeated random tokens", best["induction"], 0.80),
        best_head("duplicate token, text", best["duplicate"]),
        best_head("duplicate token, random tokens", best["duplicate_random"]),
        Figure("held-out loss per token", loss),
        Figure("held-out loss, Kneser-Ney trigram", baseline),
        Figure("lower than the trigram by", baseline - loss, bar=0.15),
        Figure("loss, random tokens", halves[0]),
        Figure("loss, the same again", halves[1]),
        Figure("second over first", halves[1] / halves[0], bar=0.05, below=True),
    ]


def masked_figures(model: Any, corpus: Corpus) -> list[Figure]:
    """Heads on pairs of held-out segments; accuracy on masked tokens against simple guesses."""
    tokenizer, vocabulary = corpus.tokenizer, corpus.vocabulary
    source = PairRows.of(
        corpus.held_out, stop_ids(tokenizer), vocabulary, special_ids(tokenizer)
    ).plain()
    rng = np.random.default_rng(SEED)
    before = likeliest_after(corpus.train, vocabulary)
    after = likeliest_after(corpus.train[::-1], vocabulary)
    commonest = int(np.bincount(corpus.train).argmax())
    hits: list[np.ndarray[Any, Any]] = []
    scores = []
    losses = []
    for at in range(PAIRED):
        ids, segments = source.batch(rng, 8, 128)
        inputs, labels = mask_tokens(rng, ids, MASKED, len(BERT_SPECIAL), source.mask, vocabulary)
        segments_in = torch.from_numpy(segments)
        with torch.no_grad():
            logits = model(torch.from_numpy(inputs), token_type_ids=segments_in).logits
        chosen = labels != IGNORED
        truth = ids[chosen]
        left, right = np.roll(ids, 1, 1)[chosen], np.roll(ids, -1, 1)[chosen]
        guesses = logits.argmax(-1).numpy()[chosen]
        hits.append(
            np.stack([guesses, np.full_like(truth, commonest), before[left], after[right]]) == truth
        )
        losses.append(F.cross_entropy(logits[torch.from_numpy(chosen)], torch.from_numpy(truth)))
        if at < PROBED:
            whole = torch.from_numpy(ids)
            weights, _ = run(model, whole, token_type_ids=segments_in)
            scores.append(watch.masked_scores(weights, whole, source.cls, source.sep))
    accuracy, floor, left_only, right_only = np.concatenate(hits, axis=1).mean(1)
    best = mean_scores(scores)
    return [
        best_head("previous token", best["previous"], 0.50),
        best_head("next token", best["next"], 0.50),
        best_head("[CLS] or [SEP]", torch.maximum(best["cls"], best["sep"]), 0.60),
        best_head("[CLS]", best["cls"]),
        best_head("[SEP]", best["sep"]),
        best_head("duplicate token", best["duplicate"]),
        Figure("masked-token loss", float(torch.stack(losses).mean())),
        Figure("masked-token accuracy", accuracy),
        Figure("accuracy, always the commonest token", floor),
        Figure("times the commonest token", accuracy / floor, bar=3.0),
        Figure("accuracy, bigram from the left", left_only),
        Figure("accuracy, bigram from the right", right_only),
        Figure("over the better bigram", accuracy - max(left_only, right_only), bar=0.0),
    ]


def figures(folder: Path, text: Path, held_out: tuple[str, ...] = HELD_OUT) -> list[Figure]:
    """All figures of one model folder."""
    books = read_books(text, held_out)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    corpus = Corpus(
        tokenizer, join(encode(tokenizer, books.train)), join(encode(tokenizer, books.held_out))
    )
    causal = AutoConfig.from_pretrained(folder).model_type == "gpt2"
    kind = AutoModelForCausalLM if causal else AutoModelForMaskedLM
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    return (causal_figures if causal else masked_figures)(model, corpus)


def main(
    folder: Annotated[Path, typer.Argument(help="a trained model folder")],
    text: Annotated[Path, typer.Option(help="folder of plain-text books (*.txt)")],
    held_out: Annotated[
        str, typer.Option(help="books never trained on, comma-separated")
    ] = ",".join(HELD_OUT),
    threads: Annotated[int, typer.Option(help="torch threads, 0: all cores")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="figures as JSON")] = False,
) -> None:
    """Print the figures of a trained model on held-out books, beside their bars."""
    if threads:
        torch.set_num_threads(threads)
    names = tuple(name.strip() for name in held_out.split(",") if name.strip())
    found = figures(folder, text, names)
    if as_json:
        rows: list[Mapping[str, Any]] = [
            {
                "name": f.name,
                "value": float(f.value),
                "head": f.head,
                "bar": f.bar,
                "met": bool(f.met),
            }
            for f in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("figure", "value", "head", "bar", "met", title=folder.name)
    for f in found:
        sign = "≤" if f.below else "≥"
        bar = "" if f.bar is None else f"{sign} {f.bar:g}"
        met = "" if f.bar is None else ("yes" if f.met else "NO")
        table.add_row(f.name, f"{f.value:.4f}", f.head, bar, met)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
