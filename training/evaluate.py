"""The card's figures: ``python -m training.evaluate FOLDER --text FOLDER``.

Everything is measured on the held-out books, on the folder as transformers loads it (half
precision on disk, float32 here). Heads are scored by attnviz itself, so its definitions hold: no
special token's row counts, and position 0 is a target of the sink score only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM, PreTrainedModel

from attnviz.captures.loading import load
from attnviz.core.prompt import Prompt
from attnviz.core.source import Source
from attnviz.scoring.probe import probe_prompts

from .ngrams import Trigram, likeliest_after
from .samples import IGNORED, PairRows, join, mask_tokens
from .text import HELD_OUT, read_books
from .tokens import BERT_SPECIAL, END, Ids, encode, special_id, special_ids, stop_ids
from .watch import score_prompts

SEED = 20
MASKED = 0.15
PROBED = 48
"""Rows of text on which heads are scored: 12,000 query rows for the GPT-2, 6,000 for the BERT."""
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
    """Return the best of [layers, heads], as a figure that names it ``layer.head``."""
    known = scores.nan_to_num(0.0)
    layer, head = divmod(int(known.argmax()), known.shape[1])
    return Figure(name, float(known.max()), f"{layer}.{head}", bar)


def mean_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """[B, T] losses of ``targets``."""
    return F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


def windows(stream: Ids, length: int, begin: int) -> Tensor:
    """Return the whole stream in rows of ``length`` tokens, each after the begin-of-text token."""
    count = len(stream) // length
    rows = torch.from_numpy(stream[: count * length].reshape(count, length))
    return F.pad(rows, (1, 0), value=begin)


def spread(rows: Tensor) -> list[Prompt]:
    """Up to :data:`PROBED` rows from all over the held-out books, as prompts."""
    chosen = rows[:: max(1, len(rows) // PROBED)][:PROBED]
    return [Prompt(ids=tuple(row)) for row in chosen.tolist()]


def probes(vocabulary: int, begin: int | None, length: int) -> list[Prompt]:
    """Sixteen prompts of random tokens twice over, after the begin-of-text token if given."""
    drawn = [
        probe_prompts(vocabulary, lengths=[length], seed=seed, bos=begin, avoid=[0])
        for seed in range(16)
    ]
    return [Prompt(ids=ids) for (ids,) in drawn]


@torch.no_grad()
def causal_losses(model: PreTrainedModel, rows: Tensor) -> Tensor:
    """[B, T - 1] losses of every token of ``rows`` but the first."""
    parts = [mean_losses(model(part[:, :-1]).logits, part[:, 1:]) for part in torch.split(rows, 8)]
    return torch.cat(parts).double()


def causal_figures(model: PreTrainedModel, source: Source, corpus: Corpus) -> list[Figure]:
    """Heads on held-out text and on repeated random tokens; losses against the trigram."""
    positions, vocabulary = model.config.n_positions, corpus.vocabulary
    begin = special_id(corpus.tokenizer, END)
    rows = windows(corpus.held_out, positions - 1, begin)
    names = ("previous", "first", "duplicate")
    text = score_prompts(source, spread(rows), names)
    shorter = windows(corpus.held_out, positions // 2 - 1, begin)
    short = score_prompts(source, spread(shorter), names)
    loss = float(causal_losses(model, rows).mean())
    scored = rows.shape[0] * (positions - 1)
    baseline = float(Trigram.of(corpus.train, vocabulary).losses(corpus.held_out[:scored]).mean())

    half = (positions - 1) // 2
    long = probes(vocabulary, begin, half)
    again = score_prompts(source, long, ("induction", "duplicate"))
    bare = score_prompts(source, probes(vocabulary, None, 32), ("induction",))
    repeated = causal_losses(model, torch.tensor([prompt.ids for prompt in long]))
    once, twice = (float(repeated[:, :half].mean()), float(repeated[:, half + 1 :].mean()))
    return [
        best_head(f"previous token, rows of {positions}", text["previous"], 0.75),
        best_head(f"first token, rows of {positions // 2}", short["first"], 0.80),
        best_head(f"first token, rows of {positions}", text["first"]),
        best_head(f"induction, {half} random tokens twice", again["induction"], 0.80),
        best_head("induction, 32 random tokens twice, no begin token", bare["induction"]),
        best_head(f"duplicate token, rows of {positions}", text["duplicate"]),
        best_head(f"duplicate token, rows of {positions // 2}", short["duplicate"]),
        best_head("duplicate token, random tokens twice", again["duplicate"]),
        Figure("held-out loss per token", loss),
        Figure("held-out loss, Kneser-Ney trigram", baseline),
        Figure("lower than the trigram by", baseline - loss, bar=0.15),
        Figure("loss, random tokens", once),
        Figure("loss, the same again", twice),
        Figure("second over first", twice / once, bar=0.05, below=True),
    ]


def accuracies(model: PreTrainedModel, corpus: Corpus, rows: PairRows) -> tuple[float, list[float]]:
    """Loss on masked tokens, and how often these guess them right.

    The model, always the commonest token of the held-out books themselves, the likeliest token
    after the left neighbour, and before the right one. The neighbours are the true ones even
    where the model sees a mask.
    """
    vocabulary, rng = corpus.vocabulary, np.random.default_rng(SEED)
    before = likeliest_after(corpus.train, vocabulary)
    after = likeliest_after(corpus.train[::-1], vocabulary)
    commonest = int(np.bincount(corpus.held_out).argmax())
    losses, hits = [], []
    for _ in range(PAIRED):
        ids, segments = rows.batch(rng, 8, 128)
        inputs, labels = mask_tokens(rng, ids, MASKED, len(BERT_SPECIAL), rows.mask, vocabulary)
        chosen = labels != IGNORED
        with torch.no_grad():
            given = torch.from_numpy(segments)
            logits = model(torch.from_numpy(inputs), token_type_ids=given).logits[chosen]
        truth = ids[chosen]
        left, right = np.roll(ids, 1, 1)[chosen], np.roll(ids, -1, 1)[chosen]
        guesses = (logits.argmax(-1).numpy(), commonest, before[left], after[right])
        hits.append(np.stack([guess == truth for guess in guesses]))
        losses.append(F.cross_entropy(logits, torch.from_numpy(truth), reduction="none"))
    return float(torch.cat(losses).mean()), np.concatenate(hits, axis=1).mean(1).tolist()


def masked_figures(model: PreTrainedModel, source: Source, corpus: Corpus) -> list[Figure]:
    """Heads on pairs of held-out segments; accuracy on masked tokens against simple guesses."""
    tokenizer = corpus.tokenizer
    rows = PairRows.of(
        corpus.held_out, stop_ids(tokenizer), corpus.vocabulary, special_ids(tokenizer)
    ).plain()
    drawn, _ = rows.batch(np.random.default_rng(SEED), PROBED, 128)
    heads = score_prompts(
        source,
        [Prompt(ids=tuple(row)) for row in drawn.tolist()],
        ("previous", "next", "first", "separator", "duplicate"),
    )
    loss, (accuracy, floor, left_only, right_only) = accuracies(model, corpus, rows)
    return [
        best_head("previous token", heads["previous"], 0.50),
        best_head("next token", heads["next"], 0.50),
        best_head("[CLS] or [SEP]", torch.maximum(heads["first"], heads["separator"]), 0.60),
        best_head("[CLS]", heads["first"]),
        best_head("[SEP]", heads["separator"]),
        best_head("duplicate token", heads["duplicate"]),
        Figure("masked-token loss", loss),
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
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    return (causal_figures if causal else masked_figures)(model, load(str(folder)), corpus)


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
