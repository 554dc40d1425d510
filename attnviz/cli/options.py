"""The options that commands share, defined once: what to run, on which model, which heads.

A command takes these dataclasses as parameters; see :mod:`attnviz.cli.flattening`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from attnviz.cli import console
from attnviz.cli.flattening import changed
from attnviz.cli.voice import option
from attnviz.errors import InputError, UsageError

if TYPE_CHECKING:
    from attnviz.captures.look import Look
    from attnviz.core.prompt import Prompt
    from attnviz.models.untrained import FreshConfig

INPUT, MODEL, FRESH = "Input", "Model", "Fresh layer (--model fresh)"


def _option(help: str, *names: str, panel: str | None = None, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


SPECIAL_TOKENS = _option(
    "Leave out the tokens that the tokenizer adds.",
    " /--no-special-tokens",
    panel=INPUT,
    show_default=False,
)
EVIDENCE = _option(
    "Add results of another command on these heads (its --json file); repeatable.",
    "--with",
    metavar="FILE",
)
RAY = _option(
    "Run on Ray: on this machine alone (local), or on the cluster at ADDRESS (ray://host:10001).",
    metavar="ADDRESS",
)
JOBS = _option("Processes.", "--jobs", "-j")
BATCH_TOKENS = _option("Largest number of tokens run at once.", show_default="by memory")


@dataclasses.dataclass(frozen=True)
class InputOptions:
    """What to look at: one text, one list of ids or recorded attention."""

    SOURCES: ClassVar[tuple[str, ...]] = ("text", "file", "ids", "recorded", "chat")
    SENSES: ClassVar[tuple[str, ...]] = ("image", "audio")

    text: Annotated[str | None, typer.Argument(help="The text to run.", show_default=False)] = None
    file: Annotated[
        str | None,
        _option(
            "Read the text from a file ([bold]-[/] is standard input).",
            "--file",
            "-f",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    pair: Annotated[
        str | None, _option("A second sentence, for models with segments (BERT).", panel=INPUT)
    ] = None
    context: Annotated[
        str | None, _option("The other sentence of a fresh cross-attention layer.", panel=INPUT)
    ] = None
    target: Annotated[
        str | None, _option("The decoder's text, for encoder-decoder models.", panel=INPUT)
    ] = None
    ids: Annotated[str | None, _option("Token ids instead of a text: 15496,995.", panel=INPUT)] = (
        None
    )
    image: Annotated[
        Path | None,
        _option(
            "A picture, for vision models; add a text if the model reads both.",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    audio: Annotated[
        Path | None, _option("A sound file, for audio models.", panel=INPUT, metavar="FILE")
    ] = None
    generate: Annotated[
        int | None,
        _option(
            "Let the model generate N tokens first; show prompt and output.",
            panel=INPUT,
            metavar="N",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        _option("Sampling temperature.", panel=INPUT, show_default="greedy"),
    ] = None
    top_p: Annotated[float | None, _option("Nucleus (top-p) mass to sample from.", panel=INPUT)] = (
        None
    )
    special_tokens: Annotated[bool, SPECIAL_TOKENS] = True
    truncate: Annotated[
        bool, _option("Truncate a text that is too long for the model.", "--truncate", panel=INPUT)
    ] = False
    max_tokens: Annotated[
        int | None,
        _option(
            "The most tokens to run.",
            panel=INPUT,
            metavar="N",
            show_default="as the model's configuration says",
        ),
    ] = None
    recorded: Annotated[
        Path | None,
        _option(
            "Attention recorded elsewhere instead of a text: .npz, .safetensors, .json, .pt, .npy "
            "or a folder; TransformerLens, nnsight and Inseq too (docs/recording.md).",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        _option(
            "The tokens of recorded attention that does not hold them: a JSON list, or one a line.",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    source_tokens: Annotated[
        Path | None,
        _option(
            "The same for the keys of cross-attention.",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    item: Annotated[
        int | None, _option("Which item of a recorded batch.", panel=INPUT, metavar="N")
    ] = None
    chat: Annotated[
        str | None,
        _option(
            "Messages, a JSON list of {role, content}, in the tokenizer's chat template "
            "([bold]-[/] is standard input).",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None
    system: Annotated[
        str | None, _option("A system message, before those of --chat or --user.", panel=INPUT)
    ] = None
    user: Annotated[str | None, _option("A user message, after those of --chat.", panel=INPUT)] = (
        None
    )
    span: Annotated[
        list[str] | None,
        _option(
            "Name a part of the text: NAME=TEXT, NAME=all:TEXT, NAME=#2:TEXT, NAME=regex:PATTERN, "
            "NAME=tokens:12-40 or NAME=chars:0-9; repeatable.",
            panel=INPUT,
            metavar="NAME=TEXT",
        ),
    ] = None
    spans: Annotated[
        Path | None,
        _option(
            "The same from a JSON file, an object of names.",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None

    def look(self, model: TrainedOptions, *, seed: int | None = None, quiet: bool = False) -> Look:
        """What a command looks at.

        Args:
            model: on which model; its seed is that of drawn tokens, where it has one.
            seed: of drawn tokens.
            quiet: no notes, and do not show a text that grows.

        Raises:
            UsageError: nothing, or options that make no sense together; InputError: unusable.
        """
        self._check_given(model)
        if self.recorded is not None:
            from attnviz.captures.files import read_any, read_tokens

            own, other = (
                None if path is None else read_tokens(path)
                for path in (self.tokens, self.source_tokens)
            )
            return read_any(self.recorded, own, source_tokens=other, item=self.item)
        ids = None if self.ids is None else _read_ids(self.ids)
        text = self.text if self.file is None else _read_text(self.file)
        say_file(self.text, quiet, *(name for name in ("file", "lines") if hasattr(self, name)))
        prompt = self._prompt(text, ids, seed=getattr(model, "seed", seed))
        if prompt.generate is None or quiet:
            return prompt
        growing = dataclasses.replace(prompt.generate, tell=console.growing())
        return dataclasses.replace(prompt, generate=growing)

    def asked(self, model: TrainedOptions, *, quiet: bool = False) -> tuple[Look, dict[str, Any]]:
        """What to look at, and on which model; see :meth:`look` and ``model.settings``."""
        look = self.look(model, quiet=quiet)
        writing = self.generate is not None
        return look, model.settings(context=self.context, writing=writing)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn, in place of the likeliest."""
        return self.temperature is not None or self.top_p is not None

    def given(self) -> bool:
        """Whether there is anything to look at."""
        names = (*self.SOURCES, *self.SENSES, "system", "user")
        return any(getattr(self, name) is not None for name in names)

    def _prompt(
        self, text: str | None, ids: tuple[int, ...] | None = None, *, seed: int | None = None
    ) -> Prompt:
        from attnviz.core.generation import Generation
        from attnviz.core.prompt import Prompt

        generate = None
        if self.generate is not None:
            generate = Generation(self.generate, self.temperature, self.top_p, seed)
        return Prompt(
            generate=generate,
            text=text,
            ids=ids,
            pair=self.pair,
            context=self.context,
            target=self.target,
            special_tokens=self.special_tokens,
            truncate=self.truncate,
            max_tokens=self.max_tokens,
            image=self.image,
            audio=self.audio,
            chat=self._chat(),
            spans=named_spans(self.span, self.spans),
        )

    def _chat(self) -> list[dict[str, Any]] | None:
        """The messages that were given."""
        if self.chat is None and self.system is None and self.user is None:
            return None
        from attnviz.cli.parts import read_chat

        return read_chat(self.chat, self.system, self.user)

    def _check_given(self, model: TrainedOptions) -> None:
        """Exactly one thing to look at, and nothing beside it that does not go with it."""
        given = [option(name) for name in self.SOURCES if getattr(self, name) is not None]
        said = [option(name) for name in ("system", "user") if getattr(self, name) is not None]
        if said and self.chat is None:
            given.append(said[0])
        if self.recorded is not None:
            model.for_recorded()
            extra = changed(self, but=("recorded", "item", "tokens", "source_tokens"))
            if extra:
                raise UsageError(f"--recorded brings its own tokens; leave out {', '.join(extra)}")
        elif len(given) > 1:
            raise UsageError(f"{' and '.join(given)} exclude each other; give one of them")
        elif not self.given():
            raise UsageError('nothing to look at; give a text such as "The cat sat"')
        elif self.generate is None and self.draws:
            drawn = option("top_p" if self.temperature is None else "temperature")
            raise UsageError(f"{drawn} is for generated text; add --generate N")
        elif self.item is not None:
            raise UsageError(f"--item {self.item} chooses from a --recorded batch; add that file")
        elif self.tokens is not None or self.source_tokens is not None:
            name = option("source_tokens" if self.tokens is None else "tokens")
            raise UsageError(f"{name} names the tokens of a --recorded file; add that file")


@dataclasses.dataclass(frozen=True)
class TextsOptions(InputOptions):
    """What to look at: one of those, or the lines of a file."""

    SOURCES: ClassVar[tuple[str, ...]] = (*InputOptions.SOURCES, "lines")

    lines: Annotated[
        str | None,
        _option(
            "Read texts from a file, one per line ([bold]-[/] is standard input).",
            panel=INPUT,
            metavar="FILE",
        ),
    ] = None

    def looks(
        self, model: TrainedOptions, *, seed: int | None = None, quiet: bool = False
    ) -> Iterable[Look]:
        """Everything to look at, lines one by one; see :meth:`look`."""
        if self.lines is None:
            return [self.look(model, seed=seed, quiet=quiet)]
        self._check_given(model)
        return self._prompts(self.lines, getattr(model, "seed", seed))

    def fields(
        self, model: TrainedOptions, *, column: str | None = None, group: str | None = None
    ) -> tuple[list[Look], list[str | None]]:
        """Every text of a file with fields, and what it belongs to; see :func:`has_fields`.

        Args:
            model: on which model.
            column: the field that holds the text.
            group: the field that names what a text belongs to.

        Raises:
            InputError: a line that cannot be used, or no text; UsageError: no such field.
        """
        from attnviz.corpus import texts

        self._check_given(model)
        if self.generate is not None or self.pair is not None:
            raise UsageError(
                f"{self.lines} brings its own fields; leave out "
                f"{option('generate' if self.generate is not None else 'pair')}"
            )
        names = texts.resolve([self.lines or ""])
        good, _ = texts.parted(texts.read(names, column=column, group=group), strict=True)
        if not good:
            raise InputError(f"{self.lines} holds no text; give one per line")
        prompts: list[Look] = [
            dataclasses.replace(
                text.prompt,
                special_tokens=self.special_tokens,
                truncate=self.truncate,
                spans={**(text.prompt.spans or {}), **(named_spans(self.span, self.spans) or {})}
                or None,
            )
            for text in good
        ]
        return (
            prompts,
            [text.group for text in good],
        )

    def _prompts(self, name: str, seed: int | None) -> Iterator[Prompt]:
        from attnviz.corpus import lines

        number = 0
        for number, text in lines.lines(name):
            sound = lines.sound(text, f"{lines.shown(name)}:{number}")
            yield self._prompt(sound, seed=seed)
        if not number:
            raise InputError(f"{lines.shown(name)} holds no text; give one text per line")


@dataclasses.dataclass(frozen=True)
class TrainedOptions:
    """Which model to run it on, and where."""

    model: Annotated[
        str | None,
        _option(
            "demo-gpt2, demo-bert, fresh, a model folder, or a hub id such as gpt2.",
            "--model",
            "-m",
            panel=MODEL,
            metavar="MODEL",
        ),
    ] = None
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1 or mps.", panel=MODEL)] = "auto"
    dtype: Annotated[str, _option("auto, float32, bfloat16 or float16.", panel=MODEL)] = "auto"
    load_in: Annotated[
        str | None,
        _option("Quantize the weights: 8bit or 4bit (needs bitsandbytes).", panel=MODEL),
    ] = None
    device_map: Annotated[
        str | None,
        _option(
            "Divide the layers among all devices: auto, balanced or sequential (needs accelerate).",
            panel=MODEL,
        ),
    ] = None

    def for_recorded(self) -> None:
        """Nothing here applies to recorded attention; UsageError names what was given."""
        given = changed(self)
        if given:
            raise UsageError(f"--recorded needs no model; leave out {', '.join(given)}")

    def settings(self, *, context: str | None = None, writing: bool = False) -> dict[str, Any]:
        """Model, device and dtype, as the functions of the api take them; see :meth:`choose`.

        Raises:
            UsageError: fresh-layer options together with another model.
        """
        model = self.choose(context=context, writing=writing)
        given: dict[str, Any] = {"device": self.device, "dtype": self.dtype}
        if self.load_in is None and self.device_map is None:
            return {"model": model, **given}
        from attnviz.captures.look import load

        loaded = load(model, **given, load_in=self.load_in, device_map=self.device_map)
        return {"model": loaded, "device": "auto", "dtype": "auto"}

    def choose(self, *, context: str | None = None, writing: bool = False) -> str | FreshConfig:
        """The model to load.

        Args:
            context: the other sequence, which makes a fresh layer cross-attention.
            writing: the model writes, and a seed is that of drawn tokens, not of fresh weights.
        """
        from attnviz.captures.look import DEFAULT_MODEL

        return self.model or DEFAULT_MODEL


@dataclasses.dataclass(frozen=True)
class ModelOptions(TrainedOptions):
    """The same, and the shape of fresh layers."""

    kind: Annotated[
        str | None, _option("mha, gqa, mqa, mla or cross.", panel=FRESH, show_default="mha")
    ] = None
    d_model: Annotated[int | None, _option("Model width D.", panel=FRESH, show_default="128")] = (
        None
    )
    heads: Annotated[int | None, _option("Query heads H.", panel=FRESH, show_default="8")] = None
    kv_heads: Annotated[int | None, _option("Key/value heads G, for gqa.", panel=FRESH)] = None
    layers: Annotated[int | None, _option("Stacked layers.", panel=FRESH, show_default="1")] = None
    causal: Annotated[
        bool | None,
        _option(
            "Let a query see only keys up to its own position.",
            "--causal/--no-causal",
            panel=FRESH,
            show_default="no-causal",
        ),
    ] = None
    bias: Annotated[
        bool | None,
        _option("Biases in the projections.", "--bias/--no-bias", panel=FRESH, show_default="bias"),
    ] = None
    seed: Annotated[
        int | None,
        _option(
            "Seed of its weights and embeddings; with --generate, of sampling.",
            panel=FRESH,
            show_default="0",
        ),
    ] = None

    def choose(self, *, context: str | None = None, writing: bool = False) -> str | FreshConfig:
        """The model to load: a name, or the options of a fresh layer; see :class:`TrainedOptions`.

        Raises:
            UsageError: options of a fresh layer together with a trained model.
        """
        named = ("model", "device", "dtype", "load_in", "device_map", *("seed",) * writing)
        flags = changed(self, but=named)
        if self.model is None and not flags and context is None:
            from attnviz.captures.look import DEFAULT_MODEL

            return DEFAULT_MODEL
        if self.model != "fresh" and flags:
            shape = f"{', '.join(flags)} shape{'s' if len(flags) == 1 else ''} a fresh layer"
            if self.model is not None:
                raise UsageError(f"{shape}; leave out --model {self.model}")
            choice = "; heads of a model are chosen by --select" if self.heads is not None else ""
            raise UsageError(f"{shape}; add --model fresh{choice}")
        if self.model not in (None, "fresh"):
            if context is not None:
                raise UsageError("--context is for a fresh layer; models take --pair or --target")
            return str(self.model)
        from attnviz.models.untrained import FreshConfig

        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fresh = {k: value for k, value in given.items() if value is not None and k not in named}
        if context is not None:
            fresh.setdefault("kind", "cross")
        return FreshConfig(**fresh)


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """How much to say."""

    quiet: Annotated[bool, _option("Only results: no progress, no notes.", "--quiet", "-q")] = False


WITHOUT_HELP = "Ablate these heads first: 2.4, role:first; see attnviz ablate."
WEIGHTS = "weights"
"""What maps show unless something else is asked for."""
WEIGH_HELP = (
    "weights; norm, of what heads write (‖αf(x)‖); norm-residual or norm-residual-ln, of layers."
)
SELECT_HELP = (
    "Heads: 4.11, L4H11, 5.*, *.3, 0-3.*, or a comma-separated list; enc:, dec: or cross: "
    "goes in front."
)


def named_spans(given: list[str] | None, file: Path | None) -> dict[str, str] | None:
    """The parts of a text that were named; None where none was."""
    if not given and file is None:
        return None
    from attnviz.cli.parts import read_spans

    return read_spans(given or (), file)


def has_fields(name: str) -> bool:
    """Whether a file of texts has fields (.jsonl, .csv, ...) and not lines of text.

    Raises:
        UsageError: one JSON document, which is neither.
    """
    suffix = Path(name).suffix.lower()
    if suffix == ".json":
        raise UsageError(
            f"{name} is JSON, not lines of text; name it .jsonl if every line is an object with a "
            "text"
        )
    return suffix in (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def say_file(text: str | None, quiet: bool, *options: str) -> None:
    """Note that a text is the name of a file, which other options read."""
    if text is not None and os.path.isfile(text):
        ways = [
            f"{option(name, text)}{' (one text per line)' * (name == 'lines')}" for name in options
        ]
        said = f"{text} is taken as the text itself; to read the file of that name: "
        console.note([said + " or ".join(ways)], quiet)


def _read_text(name: str) -> str:
    """A file's text, or standard input's; InputError where it cannot be read as UTF-8."""
    from attnviz.corpus import lines

    return lines.text(name).strip("\r\n")


def _read_ids(text: str) -> tuple[int, ...]:
    parts = [part for part in text.replace(",", " ").split() if part]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 12):
            raise UsageError(f"--ids takes whole numbers with commas, not {part[:20]!r}")
    return tuple(map(int, parts))
