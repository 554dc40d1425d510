"""The records of options that commands share: what to run.

Each is made into options by :mod:`attnviz.cli.declared`. What functions take as well is declared
where they are (:mod:`attnviz.captures.settings`); here stands what only the command line has.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attnviz import files
from attnviz.captures.settings import INPUT, ModelSettings
from attnviz.cli import console
from attnviz.cli.declared import SAID, changed, default_model, option
from attnviz.core.settings import Settings, like, setting
from attnviz.errors import InputError, UsageError

if TYPE_CHECKING:
    from attnviz.captures.inputs import Input
    from attnviz.core.prompt import Prompt
    from attnviz.models.controls import FreshConfig


@dataclasses.dataclass(frozen=True)
class InputOptions(Settings, panel=INPUT):
    """What to look at: one text, one list of ids or recorded attention."""

    SOURCES: ClassVar[tuple[str, ...]] = ("text", "file", "ids", "recorded", "chat")
    MEDIA: ClassVar[tuple[str, ...]] = ("image", "audio")

    text: str | None = setting(
        None, "The text to run; [bold]-[/] is standard input.", argument=True
    )
    file: str | None = setting(
        None,
        "Read the text from a file ([bold]-[/] is standard input).",
        short="f",
        metavar="FILE",
        common=True,
    )
    pair: str | None = setting(
        None,
        "A second sentence, for models with segments (BERT) and fresh cross-attention.",
        metavar="TEXT",
    )
    target: str | None = setting(
        None, "The decoder's text, for encoder-decoder models.", metavar="TEXT"
    )
    ids: str | None = setting(
        None,
        "Token ids instead of a text: 15496,995; or the .json that an inference server sent: what "
        "it read and wrote is run (docs/recording.md).",
        metavar="IDS|FILE",
    )
    image: tuple[Path, ...] | None = setting(
        None, "A picture, for vision models; add a text if the model reads both; repeatable."
    )
    audio: Path | None = setting(None, "A sound file, for audio models.")
    generate: int | None = setting(
        None, "Let the model generate N tokens first; show prompt and output."
    )
    temperature: float | None = setting(None, "Sampling temperature.", metavar="T", shown="greedy")
    top_p: float | None = setting(None, "Nucleus (top-p) mass to sample from.", metavar="P")
    special_tokens: bool = setting(True, "Leave out the tokens that the tokenizer adds.", shown="")
    truncate: bool = setting(False, "Truncate a text that is too long for the model.")
    max_tokens: int | None = setting(
        None, "Maximum number of tokens to run.", shown="as the model's configuration says"
    )
    recorded: Path | None = setting(
        None,
        "Attention recorded elsewhere instead of a text: .npz, .safetensors, .json, .pt, .npy or "
        "a folder; TransformerLens, nnsight and Inseq too (docs/recording.md).",
    )
    tokens: tuple[Path, ...] | None = setting(
        None,
        "The tokens of recorded attention that does not hold them: a JSON list, or one a line; a "
        "second file for the keys of cross-attention.",
    )
    item: int | None = setting(
        None, "Which item of a recorded batch, or of a server's several choices."
    )
    chat: tuple[str, ...] | None = setting(
        None,
        "Messages, in the tokenizer's chat template. A JSON list of {role, content} ([bold]-[/] is "
        "standard input), or one such as 'user: Where are the keys?'; repeatable.",
        metavar="FILE|ROLE: TEXT",
    )
    span: tuple[str, ...] | None = setting(
        None,
        "Name a part of the text: NAME=TEXT, NAME=all:TEXT, NAME=#2:TEXT, NAME=regex:PATTERN, "
        "NAME=tokens:12-40 or NAME=chars:0-9; NAME=box:10,20,80,90 names pixels of a picture "
        "(left, top, right, bottom; box2: of the second); or @FILE, a JSON object of such; "
        "repeatable.",
        metavar="NAME=TEXT",
    )

    def read(self, model: ModelSettings, *, seed: int | None = None, quiet: bool = False) -> Input:
        """Return what a command looks at."""
        self._check_given(model)
        if self.recorded is not None:
            from attnviz.captures.files import read_recorded
            from attnviz.models.recorded.arrays import ArrayOptions
            from attnviz.models.recorded.other_tools import read_tokens

            files = self.tokens or ()
            if len(files) > 2:
                raise UsageError("--tokens takes two files at most: of the queries, of the keys")
            queries, keys, *_ = *map(read_tokens, files), None, None
            pictures = getattr(self, "image", None) or (None,)
            if len(pictures) > 1:
                raise UsageError("--recorded takes one --image, that its patches are of")
            options = ArrayOptions(source_tokens=keys, item=self.item, picture=pictures[0])
            return read_recorded(self.recorded, queries, options)
        if self.ids is not None and self.ids.endswith(".json"):
            return self._served(self.ids)
        ids = None if self.ids is None else _read_ids(self.ids)
        file = "-" if self.text == "-" else self.file
        text = self.text if file is None else _read_text(file)
        say_file(self.text, quiet, *(name for name in ("file", "texts") if hasattr(self, name)))
        prompt = self._prompt(text, ids, seed=getattr(model, "seed", seed))
        if prompt.generate is None or quiet:
            return prompt
        growing = dataclasses.replace(prompt.generate, tell=console.growing())
        return dataclasses.replace(prompt, generate=growing)

    @property
    def draws(self) -> bool:
        """Whether tokens are drawn, in place of the likeliest."""
        return self.temperature is not None or self.top_p is not None

    def drawn(self, seed: int) -> int | None:
        """Say by which seed tokens are drawn, where any are."""
        return seed if self.draws else None

    def given(self) -> bool:
        """Whether there is anything to look at."""
        names = (*self.SOURCES, *self.MEDIA)
        return any(getattr(self, name) is not None for name in names)

    def _prompt(
        self, text: str | None, ids: tuple[int, ...] | None = None, *, seed: int | None = None
    ) -> Prompt:
        from attnviz.core.prompt import Generation, Prompt

        names = [field.name for field in dataclasses.fields(Prompt)]
        fields: dict[str, Any] = {name: getattr(self, name, None) for name in names}
        if self.generate is not None:
            fields["generate"] = Generation(self.generate, self.temperature, self.top_p, seed)
        chat = None if self.chat is None else read_chat(self.chat)
        fields |= {"text": text, "ids": ids, "chat": chat, "spans": named_spans(self.span)}
        return Prompt(**fields)

    def _served(self, file: str) -> Prompt:
        """Return what a server read and wrote."""
        from attnviz.captures.files import from_response

        if extra := changed(self, but=("ids", "item", "span", "truncate", "max_tokens")):
            raise UsageError(f"{file} has its own tokens; leave out {', '.join(extra)}")
        prompt: Prompt = from_response(read_json(file), item=self.item)
        spans = named_spans(self.span) or {}
        if written := [name for name in spans if name in (prompt.spans or {})]:
            raise UsageError(f"--span {written[0]} is what the server wrote; name it otherwise")
        how: dict[str, Any] = {"truncate": self.truncate, "max_tokens": self.max_tokens}
        return dataclasses.replace(prompt, **how).with_spans(spans)

    def _check_given(self, model: ModelSettings) -> None:
        """Exactly one thing to look at, and nothing beside it that does not go with it."""
        sources = [option(name) for name in self.SOURCES if getattr(self, name) is not None]
        if self.recorded is not None:
            if extra := changed(model):
                raise UsageError(f"--recorded needs no model; leave out {', '.join(extra)}")
            extra = changed(self, but=("recorded", "item", "tokens", "image"))
            if extra:
                raise UsageError(f"--recorded brings its own tokens; leave out {', '.join(extra)}")
        elif len(sources) > 1:
            raise UsageError(f"{' and '.join(sources)} exclude each other; give one of them")
        elif not self.given():
            raise UsageError('nothing to look at; give a text such as "The cat sat"')
        elif self.generate is None and self.draws:
            flag = option("top_p" if self.temperature is None else "temperature")
            raise UsageError(f"{flag} is for generated text; add --generate N")
        elif self.item is not None and not (self.ids or "").endswith(".json"):
            raise UsageError(f"--item {self.item} chooses from a --recorded batch; add that file")
        elif self.tokens is not None:
            raise UsageError("--tokens names the tokens of a --recorded file; add that file")


@dataclasses.dataclass(frozen=True)
class TextsOptions(InputOptions, panel=INPUT):
    """What to look at: one of those, or the texts of a file."""

    SOURCES: ClassVar[tuple[str, ...]] = (*InputOptions.SOURCES, "texts")

    texts: str | None = setting(
        None,
        "Read many texts from a file: one a line, .jsonl, .csv, .tsv or .parquet ([bold]-[/] is "
        "standard input).",
        metavar="FILE",
        common=True,
    )
    column: str | None = setting(
        None, "The column or field of {texts} that holds the text.", metavar="NAME"
    )
    limit: int | None = setting(None, "Take at most the first N texts.", least=1)

    def read_all(
        self, model: ModelSettings, *, seed: int | None = None, quiet: bool = False
    ) -> Iterable[Input]:
        """Everything to look at, one by one; see :meth:`read`."""
        if self.texts is None:
            if extra := [option(name) for name in ("column", "limit") if getattr(self, name)]:
                raise UsageError(f"{extra[0]} is for a file of texts; add --texts FILE")
            return [self.read(model, seed=seed, quiet=quiet)]
        if files.has_fields(self.texts):
            return self.grouped(model, None)[0]
        if self.column is not None:
            raise UsageError(f"{self.texts} has no columns; leave out --column {self.column}")
        self._check_given(model)
        return islice(self._prompts(self.texts, getattr(model, "seed", seed)), self.limit)

    def parts(self, model: ModelSettings, split: str) -> list[str] | None:
        """Which part of the data each text is of, where a field says so; None where none does."""
        from attnviz.core.split import field_of

        field = field_of(split)
        if not field:
            return None
        if self.texts is None or not files.has_fields(self.texts):
            raise _no_field("split", split)
        return [str(part) for part in self.grouped(model, field)[1] or ()]

    def grouped(
        self, model: ModelSettings, group: str | None
    ) -> tuple[Sequence[Input], list[str | None] | None]:
        """Every text, and what each belongs to where a file has fields (.jsonl, .csv, ...)."""
        from attnviz.corpus import texts

        if self.texts is None or not files.has_fields(self.texts):
            if group is not None:
                raise _no_field("group", group)
            return list(self.read_all(model)), None
        self._check_given(model)
        fields = ("generate", "pair", "target", *self.MEDIA)
        if extra := [option(name) for name in fields if getattr(self, name, None) is not None]:
            raise UsageError(f"{self.texts} brings its own fields; leave out {', '.join(extra)}")
        names = texts.resolve([self.texts])
        good, _ = texts.separated(texts.read(names, column=self.column, group=group), strict=True)
        if not good:
            raise InputError(f"{self.texts} holds no text; give one per line")
        good = good[: self.limit]
        shared = ("special_tokens", "truncate", "max_tokens")
        how: dict[str, Any] = {name: getattr(self, name) for name in shared}
        spans = named_spans(self.span)
        prompts = [dataclasses.replace(text.prompt, **how).with_spans(spans) for text in good]
        return prompts, [text.group for text in good]

    def _prompts(self, name: str, seed: int | None) -> Iterator[Prompt]:
        from attnviz.corpus import lines

        number = 0
        for number, text in lines.lines(name):
            sound = lines.sound(text, f"{lines.shown(name)}:{number}")
            yield self._prompt(sound, seed=seed)
        if not number:
            raise InputError(f"{lines.shown(name)} holds no text; give one text per line")


def _no_field(name: str, value: str) -> UsageError:
    return UsageError(
        f"--{name} {value} is a field of texts; add --texts FILE, a .csv, .tsv, .jsonl or .parquet "
        "file"
    )


def texts_or_samples(names: Iterable[str] | None, quiet: bool) -> list[str]:
    """Give the files of texts that were named; where none was, the one that comes with attnviz."""
    if names:
        return list(names)
    from attnviz.corpus.texts import sample_texts

    console.note(
        ["no texts were named: these are 40 plain sentences that come with attnviz"], quiet
    )
    return [sample_texts()]


@dataclasses.dataclass(frozen=True)
class FilesOptions(Settings):
    """What a command about a corpus or a gold file reads."""

    files: tuple[str, ...] = setting(
        ..., "Files, patterns, - for stdin.", argument=True, metavar="FILE..."
    )


@dataclasses.dataclass(frozen=True)
class Quiet(Settings):
    """How much to say."""

    quiet: bool = setting(False, "Only results: no progress, no notes.", short="q", common=True)


def say_file(text: str | None, quiet: bool, *options: str) -> None:
    """Note that a text is the name of a file, which other options read."""
    if text is None or not files.like_a_file(text):
        return
    ways = [f"{option(name, text)}{' (one text per line)' * (name == 'texts')}" for name in options]
    message = f"{text} is taken as the text itself; "
    if os.path.isfile(text):
        message += f"to read the file of that name: {' or '.join(ways)}"
    else:
        message += "there is no file of that name"
    console.note([message], quiet)


def _read_text(name: str) -> str:
    """Return a file's text, or standard input's; InputError where it cannot be read as UTF-8."""
    from attnviz.corpus import lines

    return lines.text(name).strip("\r\n")


def _read_ids(text: str) -> tuple[int, ...]:
    parts = [part for part in text.replace(",", " ").split() if part]
    for part in parts:
        if not (part.isascii() and part.isdigit() and len(part) < 12):
            raise UsageError(f"--ids takes whole numbers with commas, not {part[:20]!r}")
    return tuple(map(int, parts))


def read_json(name: str) -> Any:
    """Return what a JSON file holds; InputError where it cannot be read."""
    from attnviz.core.record import parsed
    from attnviz.corpus import lines

    return parsed(lines.text(name), lines.shown(name))


_MESSAGE = re.compile(r"(system|user|assistant):\s*(.*)", re.DOTALL)
"""A message that is written out."""


def read_chat(items: Iterable[str]) -> list[dict[str, Any]]:
    """Return the messages of a chat: of files, and such as ``user: TEXT``, in their order."""
    messages: list[dict[str, Any]] = []
    for item in items:
        message = _MESSAGE.fullmatch(item)
        messages += (
            _messages(item) if message is None else [{"role": message[1], "content": message[2]}]
        )
    if all(message.get("role") == "system" for message in messages):
        raise UsageError(f"a system message alone is no chat; add {option('chat', 'user: TEXT')}")
    return messages


def _messages(name: str) -> list[dict[str, Any]]:
    """Return the messages of a file."""
    chat = read_json(name)
    if isinstance(chat, dict):
        chat = chat.get("messages")
    if not isinstance(chat, list) or not all(isinstance(message, dict) for message in chat):
        raise InputError(
            f'{name} holds no list of messages; write [{{"role": "user", "content": "..."}}]'
        )
    return chat


def named_spans(items: Iterable[str] | None) -> dict[str, str] | None:
    """Named parts of a text, of options and of files (``@FILE``); None where none was named."""
    if not items:
        return None
    spans: dict[str, str] = {}
    for item in items:
        for title, text in _named(item).items():
            if title in spans:
                raise UsageError(
                    f"two spans have the name {title[:40]!r}; name one of them otherwise"
                )
            spans[title] = text
    return spans


def _named(item: str) -> dict[str, str]:
    """Return the spans that one option names."""
    if not item.startswith("@"):
        title, is_one, text = item.partition("=")
        if not is_one:
            raise UsageError(f"--span takes NAME=TEXT or @FILE, not {item[:40]!r}")
        return {title: text}
    listed = read_json(item[1:])
    if isinstance(listed, dict) and all(isinstance(text, str) for text in listed.values()):
        return listed
    raise InputError(f'{item[1:]} holds no spans; write {{"document": "regex:Paris.*?river"}}')


FRESH = "Fresh layer (--model fresh)"


@dataclasses.dataclass(frozen=True)
class FreshOptions(ModelSettings, panel=FRESH):
    """Which model; the sizes of a fresh layer may be said beside it."""

    model: str | None = like(
        ModelSettings,
        "model",
        default=None,
        help=f"demo-gpt2, demo-bert, fresh, a model folder, or a hub id such as gpt2. {SAID}",
    )
    kind: str | None = setting(None, "mha, gqa, mqa, mla or cross.", metavar="KIND", shown="mha")
    d_model: int | None = setting(None, "Model width D.", metavar="D", shown="128")
    heads: int | None = setting(None, "Query heads H.", metavar="H", shown="8")
    kv_heads: int | None = setting(None, "Key/value heads G, for gqa.", metavar="G")
    layers: int | None = setting(None, "Stacked layers.", shown="1")
    causal: bool | None = setting(
        None, "Let a query see only keys up to its own position.", shown="no-causal"
    )
    bias: bool | None = setting(None, "Biases in the projections.", shown="bias")

    def chosen(self, *, pair: str | None = None, seed: int | None = None) -> ModelSettings:
        """Name the model, as functions take it: by its name, or the options of a fresh layer."""
        return ModelSettings(self._model(pair, seed), self.device, self.dtype)

    def _model(self, pair: str | None, seed: int | None) -> str | FreshConfig:
        names = [field.name for field in dataclasses.fields(FreshOptions)]
        common = [field.name for field in dataclasses.fields(ModelSettings)]
        flags = changed(self, but=(*common, "seed"))
        if self.model is None and not flags:
            return default_model()
        if self.model != "fresh" and flags:
            shape = f"{', '.join(flags)} shape{'s' if len(flags) == 1 else ''} a fresh layer"
            if self.model is not None:
                raise UsageError(f"{shape}; leave out --model {self.model}")
            choice = "; heads of a model are chosen by --select" if self.heads is not None else ""
            raise UsageError(f"{shape}; add --model fresh{choice}")
        if self.model not in (None, "fresh"):
            return str(self.model)
        from attnviz.models.controls import FreshConfig

        sizes = {name: getattr(self, name) for name in names if name not in common} | {"seed": seed}
        fresh = {name: value for name, value in sizes.items() if value is not None}
        if pair is not None:
            fresh.setdefault("kind", "cross")
        return FreshConfig(**fresh)


@dataclasses.dataclass(frozen=True)
class ModelOptions(FreshOptions):
    """The same with a seed, for commands where nothing else has one."""

    seed: int | None = setting(None, "Seed of all that is drawn at random.", shown="0")

    def _model(self, pair: str | None, seed: int | None) -> str | FreshConfig:
        return super()._model(pair, self.seed if seed is None else seed)
