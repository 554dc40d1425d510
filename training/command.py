"""The command line of both training scripts, and what they prepare before the loop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedModel

from .loop import PEAKS, Settings, Task, run
from .optim import Rates
from .text import HELD_OUT, passages, read_books
from .tokens import Ids, encode, save_tokenizer

AGAIN = 0.6
"""What all rates are multiplied by where a trained model is trained on."""
TEXTS, LENGTH = 64, 700
"""Passages of held-out books for ``attnviz film``, and the characters of each at least."""


@dataclass(frozen=True)
class Prepared:
    """Tokenizer and encoded books, ready to train on."""

    tokenizer: Tokenizer
    train: Mapping[str, Ids]
    held_out: Mapping[str, Ids]
    seed: int
    device: str = "cpu"
    books: Mapping[str, str] = field(default_factory=dict)
    """The text of those to train on."""
    start: Path | None = None
    """A model folder whose weights are trained on."""


def sinusoids(positions: int, width: int) -> Tensor:
    """[positions, width]: sines and cosines of falling frequency (Vaswani et al. 2017)."""
    angles = np.arange(positions)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(positions, width)
    return torch.from_numpy(waves).float()


def prepare(
    text: Path,
    out: Path,
    held_out: Iterable[str],
    train_tokenizer: Callable[[Iterable[str], int], Tokenizer],
    vocabulary: int,
    positions: int,
    seed: int,
    device: str = "cpu",
    start: Path | None = None,
) -> Prepared:
    """Read the books; train the tokenizer on them, unless ``out`` holds one already.

    ``out`` also gets ``texts.txt``, passages of the held-out books, one a line.
    """
    books = read_books(text, tuple(held_out))
    path = out / "tokenizer.json"
    if path.exists():
        tokenizer = Tokenizer.from_file(str(path))
    else:
        tokenizer = train_tokenizer(books.train.values(), vocabulary)
    save_tokenizer(tokenizer, out, positions)
    lines = passages(books.held_out.values(), TEXTS, LENGTH)
    (out / "texts.txt").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    train, held = encode(tokenizer, books.train), encode(tokenizer, books.held_out)
    return Prepared(tokenizer, train, held, seed, device, books.train, start)


def export(model: PreTrainedModel, out: Path) -> None:
    """config.json and model.safetensors, in half precision."""
    half = copy.deepcopy(model).cpu().to(torch.float16)  # type: ignore[arg-type]
    half.config.dtype = torch.float16
    half.save_pretrained(out)
    (out / "generation_config.json").unlink(missing_ok=True)
    (out / "model.safetensors").chmod(0o644)


def main(
    task: Callable[[Prepared], Task],
    train_tokenizer: Callable[[Iterable[str], int], Tokenizer],
    positions: int,
    rates: Rates = PEAKS,
    tokens: int = 4096,
) -> None:
    """Parse the command line, train, write the model folder."""

    def command(
        text: Annotated[Path, typer.Option(help="folder of plain-text books (*.txt)")],
        out: Annotated[Path, typer.Option(help="folder for the model; resumed if it has a state")],
        steps: Annotated[int, typer.Option(min=1, help="optimizer steps in all")] = 10_000,
        fall: Annotated[
            float, typer.Option(help="share of the steps, at the end, with falling rates")
        ] = 0.4,
        minutes: Annotated[
            float | None, typer.Option(help="stop and save after so long; rerun to go on")
        ] = None,
        seed: Annotated[int, typer.Option(help="of the weights and of the data")] = 1,
        threads: Annotated[int, typer.Option(min=0, help="torch threads, 0: all cores")] = 0,
        vocabulary: Annotated[int, typer.Option(help="tokens of the tokenizer")] = tokens,
        checkpoints: Annotated[
            int, typer.Option(min=0, help="also write a folder step-… every so many steps")
        ] = 0,
        held_out: Annotated[
            str, typer.Option(help="books never trained on, comma-separated")
        ] = ",".join(HELD_OUT),
        start: Annotated[
            Path | None, typer.Option(help="model folder to start from, of any vocabulary")
        ] = None,
    ) -> None:
        if threads:
            torch.set_num_threads(threads)
        names = [name.strip() for name in held_out.split(",") if name.strip()]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        data = prepare(
            text, out, names, train_tokenizer, vocabulary, positions, seed, device, start
        )
        job = task(data)

        def checkpoint(step: int) -> None:
            folder = out / f"step-{step:06}"
            export(job.model, folder)
            save_tokenizer(data.tokenizer, folder, positions)

        settings = Settings(
            out=out, steps=steps, fall=fall, seed=seed, minutes=minutes, checkpoint=checkpoint,
            checkpoint_every=checkpoints,
        )  # fmt: skip
        done = run(job, settings, rates if start is None else rates.scaled(AGAIN))
        if done < steps:
            typer.echo(f"stopped at step {done} of {steps}; the same command goes on")
            return
        export(job.model, out)
        typer.echo(f"wrote {out}")

    typer.run(command)
