"""Two causal models beside each other: ``python -m training.compare OLD NEW --text FOLDER``.

Both read the same pieces of the held-out books, whatever their tokenizers make of them, and answer
the same questions on documents made from these books. The circuit from previous-token to induction
heads is judged on repeated random tokens: heads are chosen on some prompts and measured on others
of the same length, which they are also filled from.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
import typer
from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

import attnviz as av
from attnviz.captures.loading import load
from attnviz.captures.trials import next_tokens
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Gates
from attnviz.features.ablation.fills import given
from attnviz.features.diff.run import paired
from attnviz.interventions.sweep import ablations
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.probe import probe_prompts, starts_with
from attnviz.scoring.select import Group
from attnviz.statistics.ratios import ratios

from .text import HELD_OUT, read_books
from .tokens import CAUSAL_SPECIAL, END, common_words, special_id
from .turns import KINDS, Kind, Turns, sheet

PIECE, PIECES = 600, 300
"""Characters of a piece, which 256 tokens hold, and how many pieces of the held-out books."""
HALF, PROBES = 48, 32
"""Random tokens before they repeat; prompts to choose heads on, and as many others to measure."""
QUESTIONS = 200
CLEAR = 0.4
"""So much of its weight a previous-token or induction head has there, where heads are chosen."""
METHODS = ("mean", "resample")

Sums = list[tuple[float, int]]
"""Of every text the sum over what counts, and how much counts."""
Ends = tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        name: what was measured.
        values: by model; heads by name.
        ends: of the 95 % intervals, None where there are none.
        change: the second model's value less the first's, on the same texts, and its interval.
    """

    name: str
    values: Sequence[float | str]
    ends: Sequence[Ends] = ()
    change: tuple[float, float | None, float | None] | None = None


def pieces(books: Sequence[str]) -> list[str]:
    """Stretches of about :data:`PIECE` characters from all over the books, of whole words."""
    words = " ".join(" ".join(book.split()) for book in books)
    starts = np.linspace(0, len(words) - 2 * PIECE, PIECES).astype(int)
    return [words[words.index(" ", n) + 1 :][:PIECE].rsplit(" ", 1)[0] for n in starts.tolist()]


@torch.no_grad()
def losses(model: PreTrainedModel, ids: Sequence[int]) -> Tensor:
    """[T - 1] losses of every id but the first."""
    row = torch.tensor([ids])
    return F.cross_entropy(model(row[:, :-1]).logits[0], row[0, 1:], reduction="none").double()


def per_byte(model: PreTrainedModel, tokenizer: Tokenizer, texts: Sequence[str]) -> Sums:
    """Of every text its loss in nats, and its bytes."""
    begin = special_id(tokenizer, END)
    return [
        (
            float(
                losses(model, [begin, *tokenizer.encode(text, add_special_tokens=False).ids]).sum()
            ),
            len(text.encode()),
        )
        for text in texts
    ]


@torch.no_grad()
def answered(model: PreTrainedModel, tokenizer: Tokenizer, prompts: Sequence[str]) -> Sums:
    """Of every prompt whether the whole answer behind ``Answer:`` is what the model would write."""
    found = []
    for prompt in prompts:
        ahead, answer = prompt.removesuffix(END).rsplit("Answer:", 1)
        first = [
            special_id(tokenizer, END),
            *tokenizer.encode(f"{ahead}Answer:", add_special_tokens=False).ids,
        ]
        last = tokenizer.encode(answer, add_special_tokens=False).ids
        logits = model(torch.tensor([[*first, *last]])).logits[0, len(first) - 1 : -1]
        found.append((float((logits.argmax(-1) == torch.tensor(last)).all()), 1))
    return found


def whole(tokenizer: Tokenizer, words: Sequence[str]) -> float:
    """Return the share of words that are one token after a space."""
    return float(np.mean([len(encoded) == 1 for encoded in _spaced(tokenizer, words)]))


def _spaced(tokenizer: Tokenizer, words: Sequence[str]) -> list[list[int]]:
    return [tokenizer.encode(f" {word}", add_special_tokens=False).ids for word in words]


@dataclass(frozen=True, slots=True)
class AblatedLoss:
    """What ablating some heads does, by one method, on the prompts that they were not chosen on.

    Attributes:
        heads: ``1.4`` or ``0.5+1.4``.
        method: ``mean`` or ``resample``.
        nats: more loss on the repeated tokens.
        low: of its interval, which holds together with those of all these heads and methods.
        high: the other end.
        share: ``nats`` over what the repetition tells, the loss on the first half less that on
            the repeated one.
        attention: the weight of the induction heads where they ought to look, for every prompt.
        before: the same with all heads.
    """

    heads: str
    method: str
    nats: float
    low: float | None
    high: float | None
    share: float
    attention: Sums
    before: Sums


class Circuit:
    """Previous-token and induction heads of a model, and what the second get from the first.

    Attributes:
        previous: heads that look at the token before, chosen on other prompts than are measured.
        induction: heads that look at what followed last time, likewise.
    """

    def __init__(self, folder: Path) -> None:
        self.source = load(str(folder))
        start, _ = starts_with(self.source)
        begin = 0 if start is None else 1
        again = f"tokens:{HALF + begin + 1}-{2 * HALF + begin - 1}"
        self.prompts = [
            Prompt(ids=ids, special_tokens=False, spans={"again": again})
            for seed in range(2 * PROBES)
            for ids in probe_prompts(
                self.source.vocab_size or 0,
                lengths=[HALF],
                seed=seed,
                bos=start,
                avoid=range(len(CAUSAL_SPECIAL)),
            )
        ]
        texts = [self.source.prepare(prompt) for prompt in self.prompts]
        self._chosen_on, self._texts = texts[:PROBES], texts[PROBES:]
        self.previous = self._clear("previous")
        self.induction = self._clear("induction")

    def _clear(self, score: str) -> tuple[Head, ...]:
        scores = self._scores(self._chosen_on, score, {})
        return tuple(head for head, value in scores.items() if value >= CLEAR)

    def _scores(self, texts: Sequence[Inputs], score: str, gates: Gates) -> dict[Head, float]:
        observer = ScoreObserver(texts, self.source.layout, [score])
        self.source.forward(texts, [observer], ForwardRequest(gates=gates, hidden=False))
        return {head.head: head.scores[score].mean or 0.0 for head in observer.result()}

    def name(self, heads: Sequence[Head]) -> str:
        """``0.5+1.4``; empty for none."""
        return "+".join(self.source.layout.name(head) for head in heads)

    def attention(self, without: Sequence[Head] = (), method: str = "mean") -> Sums:
        """Of every prompt the mean score of the induction heads, without some heads."""
        reference = given(
            self.source, self._chosen_on, len(self._texts), "positions", "other prompts"
        )
        sums = []
        for number, text in enumerate(self._texts):
            gates: Gates = {}
            if without:
                trials = next_tokens(number, text)
                fills = (
                    reference.means(trials)
                    if method == "mean"
                    else reference.resampled(self.source, trials, 0, 0)
                )
                group = Group(self.name(without), tuple(without))
                gates = ablations(self.source, [group], 1, fills)[0].part().gates
            scores = self._scores([text], "induction", gates)
            sums.append((sum(scores[head] for head in self.induction), len(self.induction)))
        return sums

    def lost(self) -> list[AblatedLoss]:
        """Without the previous-token heads, together and each alone, by mean and by resampling."""
        if not self.previous or not self.induction:
            return []
        several = [self.previous] if len(self.previous) > 1 else []
        groups = [*several, *((head,) for head in self.previous)]
        measured = av.ablate(
            self.prompts[PROBES:],
            model=self.source,
            select=", ".join(self.name(group) for group in groups),
            method=", ".join(METHODS),
            reference=self.prompts[:PROBES],
            position="span:again",
        )
        told = self.once() - measured.base
        before = self.attention()
        return [
            AblatedLoss(
                effect.name, change.method, change.change, change.joint_low, change.joint_high,
                change.change / told, self.attention(group, change.method), before,
            )
            for group, effect in zip(groups, measured.effects, strict=True)
            for change in effect.by
        ]  # fmt: skip

    def once(self) -> float:
        """Return the loss on the first half of the prompts, where nothing repeats."""
        ids = torch.tensor([prompt.ids for prompt in self.prompts[PROBES:]])[:, :-HALF]
        output = self.source.forward(self._texts, request=ForwardRequest(hidden=False, logits=True))
        assert output.logits is not None
        logits = output.logits[:, : ids.shape[1] - 1]
        return float(F.cross_entropy(logits.transpose(1, 2), ids[:, 1:]))


def ratio(sums: Sums) -> tuple[float, float, float]:
    """Σa / Σb over texts, and the ends of its 95 % interval."""
    a, b = np.array(sums, np.float64).T
    found = ratios(a[:, None], b, [str(n) for n in range(len(sums))], joint=False)
    return float(found.value[0]), float(found.low[0]), float(found.high[0])


def compare(folders: Sequence[Path], text: Path, held_out: Sequence[str] = HELD_OUT) -> list[Row]:
    """All rows of the table, for one model or for several."""
    books = read_books(text, held_out)
    words = common_words(list(books.train.values()))
    held = [books.held_out[name] for name in sorted(books.held_out)]
    tokenizers = [Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in folders]
    models = [AutoModelForCausalLM.from_pretrained(f, dtype=torch.float32) for f in folders]
    both = list(zip(models, tokenizers, strict=True))
    turns = Turns.of(books.held_out, tokenizers[0])

    rows = [
        Row(f"of the commonest {n:,} words whole", [whole(t, words[:n]) for t in tokenizers])
        for n in (1000, 5000)
    ]
    stretches = pieces(held)
    size = sum(map(len, stretches))
    rows.append(Row("characters a token", [size / _tokens(t, stretches) for t in tokenizers]))
    rows.append(_row("loss per byte, nats", [per_byte(m, t, stretches) for m, t in both]))
    for kind in KINDS:
        asked = questions(turns, kind)
        name = f"answered from four documents, {kind}"
        rows.append(_row(name, [answered(m, t, asked) for m, t in both]))
    return rows + circuits([Circuit(folder) for folder in folders])


def questions(turns: Turns, kind: Kind) -> list[str]:
    """Sheets of four documents of one kind, one of them asked about in turn."""
    prompts = []
    for seed in range(QUESTIONS):
        facts = turns.alike(np.random.default_rng([5, seed]), kind, 4)
        prompts.append(sheet(facts, facts[seed % len(facts)]))
    return prompts


def circuits(models: Sequence[Circuit]) -> list[Row]:
    """From previous-token to induction heads, by both methods."""
    several = [model.lost() for model in models]
    rows = [
        Row("previous-token heads", [model.name(model.previous) for model in models]),
        Row("induction heads", [model.name(model.induction) for model in models]),
    ]
    if not all(several):
        return rows
    told = [losses[0] for losses in several]
    rows.append(_row("induction heads look right", [lost.before for lost in told]))
    for number, method in enumerate(METHODS):
        ablated = [losses[number] for losses in several]
        rows += [
            _row(f"the same without previous, {method}", [lost.attention for lost in ablated]),
            Row(
                f"what repetition tells, lost by {method}",
                [lost.share for lost in ablated],
                [_ends(lost) for lost in ablated],
            ),
        ]
    return rows


def _ends(lost: AblatedLoss) -> Ends:
    if lost.low is None or lost.high is None:
        return None
    scale = lost.share / lost.nats
    return lost.low * scale, lost.high * scale


def _row(name: str, sums: Sequence[Sums]) -> Row:
    ratios_of = [ratio(some) for some in sums]
    change = _change(*sums) if len(sums) == 2 else None
    return Row(name, [r[0] for r in ratios_of], [(r[1], r[2]) for r in ratios_of], change)


def _change(before: Sums, after: Sums) -> tuple[float, float | None, float | None]:
    runs = [tuple(np.array(run, np.float64).T[:, :, None]) for run in (before, after)]
    _, change = paired(runs, [a.sum(0) / b.sum(0) for a, b in runs])
    ends = (float(change.low[0]), float(change.high[0]))
    known = all(map(math.isfinite, ends))
    return float(change.value[0]), *(ends if known else (None, None))


def _tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> int:
    return sum(len(tokenizer.encode(text, add_special_tokens=False).ids) for text in texts)


def _words(value: float | str, ends: Ends) -> str:
    if isinstance(value, str):
        return value or "none"
    known = ends is not None and all(math.isfinite(end) for end in ends)
    return f"{value:.3f}" + (f" [{ends[0]:.3f}, {ends[1]:.3f}]" if known and ends else "")


def main(
    folders: Annotated[list[Path], typer.Argument(help="one or two causal models")],
    text: Annotated[Path, typer.Option(help="folder of plain-text books (*.txt)")],
    held_out: Annotated[
        str, typer.Option(help="books never trained on, comma-separated")
    ] = ",".join(HELD_OUT),
    threads: Annotated[int, typer.Option(help="torch threads, 0: all cores")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="rows as JSON")] = False,
) -> None:
    """Print two models beside each other; intervals are 95 % over texts."""
    if threads:
        torch.set_num_threads(threads)
    names = [name.strip() for name in held_out.split(",") if name.strip()]
    rows = compare(folders, text, names)
    if as_json:
        typer.echo(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table("", *(folder.name for folder in folders), "change")
    for row in rows:
        ends = row.ends or [None] * len(row.values)
        cells = [_words(value, pair) for value, pair in zip(row.values, ends, strict=True)]
        change = ""
        if row.change is not None:
            value, low, high = row.change
            change = _words(value, None if low is None or high is None else (low, high))
        table.add_row(row.name, *cells, change)
    Console().print(table)


if __name__ == "__main__":
    typer.run(main)
