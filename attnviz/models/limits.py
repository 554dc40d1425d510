"""What every pretrained model checks in a prompt, with the same words on both backends."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from attnviz.core.prompt import Generation, Prompt
from attnviz.core.spans import span_query
from attnviz.core.threads import group_files
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, Message, Setting, UsageError
from attnviz.files import human_bytes

SENSES: Mapping[str, str] = {"image": "pictures", "audio": "sound"}
"""The parameters that name a file to look at or to listen to, and what is in it."""
KINDS: Mapping[str, str] = {"image": "vision", "audio": "audio"}
"""By the same parameters: what models that take them are called."""


def check_prompt(prompt: Prompt, *, decoder: bool, reads: Collection[str] = ("text",)) -> None:
    """Refuse what a pretrained model cannot take; that there is anything is checked before."""
    named = [SENSES.get(kind, kind) for kind in reads]
    for name in SENSES:
        if getattr(prompt, name) is not None and name not in reads:
            raise UsageError(
                "this model reads {}; {} is for {} models: name one with {model}",
                " and ".join(named),
                Setting(name),
                KINDS[name],
                model=...,
            )
    if "text" not in reads:
        beside = any(getattr(prompt, kind) is not None for kind in reads)
        for name in ("text", "ids", "pair", "chat"):
            if getattr(prompt, name) is not None and beside:
                raise UsageError(
                    "this model reads no text together with {}; leave out the {}",
                    " and ".join(named),
                    name,
                )
            if getattr(prompt, name) is not None:
                raise UsageError(
                    "this model reads {}, not text; give it a file with {}",
                    " and ".join(named),
                    Setting(next(iter(reads))),
                )
    _check_spans(prompt)
    if prompt.chat is not None and prompt.pair is not None:
        raise UsageError("{pair} goes with a text, not with a chat; leave it out", pair=...)
    if prompt.ids is not None and prompt.pair is not None:
        raise UsageError(
            "{pair} goes with a text, not with {ids}; give both sentences as ids", pair=..., ids=...
        )
    if prompt.target is not None and not decoder:
        raise UsageError(
            "{target} needs an encoder-decoder model; this one has a single stack", target=...
        )


def segment_notes(tokens: Tokens) -> tuple[str, ...]:
    """Say that ids of two sentences are read as one by a model that sets them apart."""
    if sum(tokens.separators) < 2:
        return ()
    return (
        Message(
            "Ids have no segment numbers: all are of segment 0, as of one; {pair} tells two.",
            pair=...,
        ),
    )


def _check_spans(prompt: Prompt) -> None:
    """Refuse parts of a sound, and parts of a text where there is a picture alone."""
    if prompt.spans and prompt.audio is not None:
        raise UsageError("spans are parts of a text or a picture, not of a sound; leave them out")
    if prompt.image is not None and prompt.text is None:
        for name, spec in (prompt.spans or {}).items():
            if span_query(name, spec).kind not in ("box", "tokens"):
                raise UsageError(
                    "span {!r} is looked for in a text, and there is none; name a box of the "
                    "picture, as box:10,20,80,90",
                    name,
                )


def check_ids(ids: Sequence[int], vocab_size: int) -> None:
    """Refuse ids that the model has no embedding for."""
    for token_id in ids:
        if not 0 <= token_id < vocab_size:
            raise InputError(
                f"token id {token_id} is not in the model's vocabulary; ids go from 0 to "
                f"{vocab_size - 1}"
            )


def longest(prompt: Prompt, limit: int | None, table: int | None) -> int | None:
    """Return the most tokens that may run: as the prompt asks, else as the model's config says."""
    requested = prompt.max_tokens
    if requested is None:
        return limit
    if requested < 1:
        raise UsageError("{max_tokens} must be at least 1", max_tokens=requested)
    if table is not None and requested > table:
        raise UsageError(
            "{max_tokens} is more than the {:,} positions that the model has learned vectors for",
            table,
            max_tokens=requested,
        )
    return requested


def check_length(length: int, limit: int | None, *, truncate: bool, label: str = "the text") -> str:
    """Refuse a sequence that is too long for the model, or say that it is cut."""
    if limit is None or length <= limit:
        return ""
    if not truncate:
        raise InputError(
            "{} has {:,} tokens, the model takes at most {:,}",
            label,
            length,
            limit,
            remedy="shorten it or add {truncate}",
            truncate=True,
        )
    name = label[0].upper() + label[1:]
    return (
        f"{name} was truncated to the model's {limit:,} tokens; {length - limit:,} were left out."
    )


def cut(ids: Sequence[int], special: Sequence[bool], limit: int) -> tuple[int, ...]:
    """Give ids of a sequence that is too long, cut to ``limit``; special ones at the end stay."""
    end = len(ids)
    while len(ids) - end < limit and special[end - 1]:
        end -= 1
    return (*ids[: limit - (len(ids) - end)], *ids[end:])


def check_generation(generation: Generation, length: int, limit: int | None) -> None:
    """Refuse what a model cannot write."""
    settings = generation
    if settings.tokens < 1:
        raise UsageError("{generate} must be at least 1 token", generate=settings.tokens)
    if settings.temperature is not None and not 0 <= settings.temperature < math.inf:
        raise UsageError("{temperature} must be 0 or above", temperature=settings.temperature)
    if settings.top_p is not None and not 0 < settings.top_p <= 1:
        raise UsageError("{top_p} must be above 0 and at most 1", top_p=settings.top_p)
    if settings.top_p is not None and settings.temperature == 0:
        raise UsageError(
            "{temperature} always takes the most probable token, so {top_p} has no "
            "effect; leave one out",
            temperature=0,
            top_p=settings.top_p,
        )
    if settings.seed is not None and settings.seed < 0:
        raise UsageError("{seed} must not be negative", seed=settings.seed)
    if settings.seed is not None and settings.greedy:
        raise UsageError(
            "{seed} only matters when tokens are sampled; add {temperature}",
            seed=settings.seed,
            temperature=1,
        )
    if limit is not None and length + settings.tokens > limit:
        raise InputError(
            "{generate} and the text's {:,} tokens are more than the {:,} that the model takes; "
            "generate at most {:,}",
            length,
            limit,
            max(limit - length, 0),
            generate=settings.tokens,
        )


def no_writer(generation: Generation, reason: str) -> UsageError:
    """Return what to say of a model that cannot go on with a text."""
    return UsageError(
        "{generate} needs a model that generates text: {}; take a decoder such as gpt2",
        reason,
        generate=generation.tokens,
    )


@contextmanager
def telling(
    generation: Generation, prompt: Tokens | None, text: Callable[[int], str]
) -> Iterator[Callable[[int], None]]:
    """Tell whoever watches a text grow, inside the ``with`` block."""
    if prompt is not None:
        pairs = zip(prompt.texts, prompt.special, strict=True)
        generation.say("".join(piece for piece, special in pairs if not special))
    yield lambda token: generation.say(text(token))
    generation.say("")


def written(tokens: Tokens, generation: Generation) -> str:
    """Return a sentence for the report: what a model wrote, how, and which rows chose it."""
    output = "".join(tokens.texts[len(tokens) - tokens.written :])
    count = f"{tokens.written} token" + ("s" if tokens.written != 1 else "")
    ended = "" if tokens.written == generation.tokens else ", and ended the text there"
    return (
        f"The model generated {count} {generation.manner}{ended}: “{output}”. "
        "The row of a token chose the one after it."
    )


_PARTS = {2: "half", 4: "a quarter"}


def physical_memory() -> int:
    """Bytes that this process may have: the machine's, or its control group's where that is less.

    A machine that does not tell counts for 16 GiB.
    """
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        machine = 16 << 30
    return min([machine, *group_limits()])


def memory_of(device: str) -> int:
    """Bytes that there are where a model runs: on a GPU those that are free."""
    if device == "cpu":
        return physical_memory()
    import torch

    from attnviz.core.arrays.on_torch import free_memory

    free = free_memory(torch.device(device))
    return physical_memory() if free is None else free


def batch_factor(device: str) -> int:
    """How many times as many texts as on a CPU run together, by a GPU's memory, free or not."""
    if not device.startswith("cuda"):
        return 1
    import torch

    return max(1, min(16, torch.cuda.mem_get_info(device)[1] >> 32))


def beyond(needed: float, part: int = 2, device: str = "cpu") -> str:
    """``more than half of this machine's 16.8 GB``; empty where something takes less.

    ``needed``: bytes that it takes on a device.
    """
    memory = memory_of(device)
    if needed <= memory // part:
        return ""
    of = "this machine's" if device == "cpu" else f"the free memory of {device},"
    return f"more than {_PARTS[part]} of {of} {human_bytes(memory)}"


def group_limits(*places: Path) -> Iterator[int]:
    """Yield the memory limits of the control groups that this process is in."""
    for file in group_files("memory", ("memory.max", "memory.limit_in_bytes"), *places):
        with suppress(OSError, ValueError):  # ``max`` is no number
            yield int(file.read_text("ascii"))
