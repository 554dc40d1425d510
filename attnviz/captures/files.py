"""Recorded attention as files: ours as .npz, .safetensors and .json, and those of other tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.captures.captured import Captured, captured
from attnviz.captures.in_memory import axes_of, with_picture
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt, Reply
from attnviz.core.provenance import Made
from attnviz.corpus import texts
from attnviz.errors import InputError, Setting, UsageError
from attnviz.models import recorded
from attnviz.models.recorded import arrays, other_tools
from attnviz.models.recorded.arrays import ArrayOptions
from attnviz.models.recorded.other_tools import Imported, Sequences
from attnviz.models.recorded.reading import Stored
from attnviz.models.recorded.validator import refuse

_PLAIN = ArrayOptions()


def read_recorded(recording: Any, tokens: Any = None, options: ArrayOptions = _PLAIN) -> Captured:
    """Attention that any tool has recorded; arguments and errors as for :func:`attnviz.read`.

    ``recording`` may be a file that is open already, see :func:`other_tools.open_recording`.
    """
    capture = recording if isinstance(recording, Capture) else _recorded(recording, tokens, options)
    return captured(with_picture(capture, options.picture, options.grid))


def _recorded(source: Any, tokens: Any, options: ArrayOptions) -> Capture:
    """:func:`read_recorded` without a picture."""
    queries, keys, axes = axes_of(tokens, options)
    if isinstance(source, str | Path):
        source = other_tools.open_recording(Path(source))
    if isinstance(source, Stored):
        if queries is not None or keys is not None or axes.kind is not None:
            raise UsageError(
                "{} is a recording, which has its own tokens; leave out {tokens}",
                source.path, tokens=...,
            )  # fmt: skip
        for name in ("layout", "mask", "attention_mask", "decoder_attention_mask"):
            if getattr(axes, name) is not None:
                raise UsageError(
                    "{} is a recording, whose fields say this (docs/recording.md); leave out {}",
                    source.path, Setting(name),
                )  # fmt: skip
        return source.capture(axes.item, sinks=axes.sinks)
    if hasattr(source, "sequence_attributions"):
        raise UsageError("attributions are read from files; save them with Inseq's save()")
    if isinstance(source, Mapping) and any(source.get(name) is not None for name in arrays.NAMES):
        if queries is None:
            raise UsageError("a model's output does not hold its tokens; add {tokens}", tokens=...)
        return arrays.from_arrays(source, queries, keys, options=axes)
    if not isinstance(source, Imported | Sequences):
        source = other_tools.imported(source)
    sequence = source.sequence(axes.item)
    return sequence.capture(tokens=queries, source_tokens=keys, options=axes)


def read_items(path: Path) -> Iterator[Capture | InputError]:
    """Every item of recorded attention, ours or another tool's, one at a time."""
    try:
        source = other_tools.open_recording(path)
        count = source.items
        if isinstance(source, Stored):  # what is wrong with all of its items is said once
            refuse(source.problems, str(path))
    except InputError as error:
        yield error
        return
    for item in range(count):
        try:
            yield read_recorded(source, options=ArrayOptions(item=item if count > 1 else None))
        except InputError as error:
            yield error


@interface
def write_capture(capture: Capture, path: str | Path) -> Path:
    """Write a capture of all layers, for :func:`attnviz.read` and ``--recorded``.

    Args:
        capture: of all layers; of some for a file to read.
        path: .npz or .safetensors; or, for other tools, .csv, a row for each weight, or .json.

    Raises:
        OutputError: it cannot be written, or not in that format.
    """
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".json"):
        files.write(path, recorded.dump(capture.finite(), path.suffix.lower()))
        return path
    from attnviz.drawing.tables import maps_bytes

    inputs = capture.inputs
    about = {
        "model": capture.source.model,
        "texts": list(inputs.texts),
        "mean": capture.layout.mean or None,
        "notes": list(inputs.notes),
    }
    data = maps_bytes(
        path.suffix.lower(),
        captured(capture.finite()).named_maps(),
        capture.layout,
        quantity=capture.quantity.removesuffix("s"),
        about=about,
        made=Made.now(capture.source.model),
    )
    files.write(path, data)
    return path


@interface
def read_texts(
    paths: str | Path | Sequence[str | Path], *, column: str | None = None, limit: int | None = None
) -> list[str]:
    """Read the texts of files, for functions that take several texts: one per line, or a column.

    Args:
        paths: files or patterns (``data/*.txt``); .jsonl, .csv, .tsv, .parquet have fields.
        column: the field that holds the text.
        limit: how many to take at most, from the first on.

    Raises:
        InputError: no such file, or one that holds something else; UsageError: no such column.
    """
    names = texts.resolve(files.listed(paths))
    listed, _ = texts.separated(texts.read(names, column=column), strict=True)
    return [text.prompt.texts[0] for text in listed[:limit]]


OUTPUT = "output"
"""The span that the server wrote, where it is no message of a chat."""
_UNLIKELY = -9999.0  # what servers write in place of the logarithm of next to nothing


@interface
def from_response(response: Any, *, request: Any = None, item: int | None = None) -> Prompt:
    """Return what a server read and wrote, as a prompt for the same model here.

    The prompt's ids are taken where the response has them; else the request's messages go through
    the chat template of the model, with the answer as the last of them, or its text through the
    tokenizer. When it is run, the server's log probabilities are compared with those of the model
    here, and a note of the result says how far they are apart.

    Args:
        response: what the server sent, as JSON holds it; or ``{"request": ..., "response": ...}``.
        request: what it was sent, for a response without the ids of its prompt.
        item: which of several choices, from 0.

    Raises:
        InputError: no response, one without text, or one whose prompt is nowhere; UsageError: a
            choice that is not there, or several and none chosen.
    """
    if isinstance(response, Mapping) and isinstance(response.get("response"), Mapping):
        request = response.get("request") if request is None else request
        response = response["response"]
    if not isinstance(response, Mapping) or not isinstance(response.get("choices"), Sequence):
        raise InputError(
            "no response of a server: it has no choices; give the JSON that the server sent, or "
            '{"request": ..., "response": ...}'
        )
    chosen = _chosen(response["choices"], item)
    request = request if isinstance(request, Mapping) else {}
    prompt_ids = _ids(chosen.get("prompt_token_ids")) or _ids(response.get("prompt_token_ids"))
    prompt_ids = prompt_ids or _ids(request.get("prompt"))
    output_ids = _ids(chosen.get("token_ids"))
    texts, log_probs, offsets = _logprobs(chosen.get("logprobs"))
    if prompt_ids and output_ids:
        ends = len(prompt_ids), len(prompt_ids) + len(output_ids) - 1
        return Prompt(
            ids=(*prompt_ids, *output_ids),
            special_tokens=False,
            spans={OUTPUT: f"tokens:{ends[0]}-{ends[1]}"},
            reply=Reply(OUTPUT, log_probs=log_probs),
        )
    message = chosen.get("message")
    if isinstance(message, Mapping):
        return _of_chat(request, message, texts, log_probs)
    return _of_text(request, chosen.get("text"), texts, log_probs, offsets)


def _chosen(choices: Sequence[Any], item: int | None) -> Mapping[str, Any]:
    """One of the choices."""
    if not choices:
        raise InputError("the server's response has no choices: nothing was written")
    count = f"{len(choices)} choice{'s' * (len(choices) != 1)}"
    if item is None and len(choices) > 1:
        raise UsageError(
            "the server's response has {}; take one of them with {item}", count, item=0
        )
    number = item or 0
    if not 0 <= number < len(choices) or not isinstance(choices[number], Mapping):
        raise UsageError("the server's response has {}; there is no {item}", count, item=number)
    return choices[number]


def _ids(value: Any) -> tuple[int, ...]:
    """Return a list of ids; none where it is something else."""
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        return ()
    return tuple(value)


def _logprobs(value: Any) -> tuple[tuple[str, ...], tuple[float | None, ...], tuple[int, ...]]:
    """Tokens, their log probabilities, and the character that each begins with, where given."""
    if not isinstance(value, Mapping):
        return (), (), ()
    listed = value.get("content")
    offsets: tuple[int, ...] = ()
    if isinstance(listed, list) and all(isinstance(token, Mapping) for token in listed):
        texts = [token.get("token") for token in listed]
        numbers = [token.get("logprob") for token in listed]
    else:
        texts, numbers = value.get("tokens") or [], value.get("token_logprobs") or []
        offsets = _ids(value.get("text_offset"))
    if not isinstance(texts, list) or not isinstance(numbers, list) or len(texts) != len(numbers):
        raise InputError(
            "the response's logprobs are none: it has no log probability for each token"
        )
    return tuple(map(str, texts)), tuple(map(_number, numbers)), offsets


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > _UNLIKELY:
        return None
    return float(value)


def _of_chat(
    request: Mapping[str, Any],
    message: Mapping[str, Any],
    texts: tuple[str, ...],
    log_probs: tuple[float | None, ...],
) -> Prompt:
    """Return the messages of the request and the answer to them."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise InputError(
            "the response does not hold what it answers; ask the server for the ids "
            '(return_token_ids), or give {"request": {"messages": [...]}, "response": ...}'
        )
    answer, role = message.get("content"), str(message.get("role") or "assistant")
    if not isinstance(answer, str) or not answer.strip():
        raise InputError("the response's message has no text; only text can be run again")
    earlier = sum(m.get("role") == role and bool(m.get("content")) for m in messages)
    name = role if not earlier else f"{role} {earlier + 1}"
    chat = (*messages, {"role": role, "content": answer})
    return Prompt(chat=chat, reply=Reply(name, texts, log_probs))


def _of_text(
    request: Mapping[str, Any],
    text: Any,
    texts: tuple[str, ...],
    log_probs: tuple[float | None, ...],
    offsets: tuple[int, ...],
) -> Prompt:
    """Return the request's text and what was written after it."""
    prompt = request.get("prompt")
    if not isinstance(text, str) or not text:
        raise InputError("the response's choice has no text; only text can be run again")
    if not isinstance(prompt, str):
        raise InputError(
            "the response does not hold what it goes on with; ask the server for the ids "
            '(return_token_ids), or give {"request": {"prompt": ...}, "response": ...}'
        )
    if text.startswith(prompt) and offsets and offsets[0] == 0:  # echoed, prompt and all
        new = [n for n, offset in enumerate(offsets) if offset >= len(prompt)]
        texts = tuple(texts[n] for n in new)
        log_probs = tuple(log_probs[n] for n in new)
        text = text.removeprefix(prompt)
    complete = prompt + text
    return Prompt(
        complete,
        spans={OUTPUT: f"chars:{len(prompt)}-{len(complete) - 1}"},
        reply=Reply(OUTPUT, texts, log_probs),
    )
