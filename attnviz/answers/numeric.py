"""The numeric walk and its film."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.answers.request import ANIMATIONS, Request, given, suffix_of
from attnviz.attention.sizes import check_sizes
from attnviz.errors import InputError, Setting, UsageError
from attnviz.render.shapes.answer import Answer

if TYPE_CHECKING:
    from attnviz.shapes.worked.by_hand import NumericWalk
    from attnviz.shapes.worked.tiny import TinyInput

_NOT_TINY = (
    *("head_dim", "latent", "rope_dim", "bias", "batch", "seq", "context", "cache", "layers"),
    *("dtype", "why"),
)


def numbers_view(request: Request) -> Answer:
    """A tiny layer in numbers, as a table or, with ``animate``, as a film in a file."""
    from attnviz.shapes.worked.by_hand import compute

    walked = compute(_tiny(request))
    if request.animate is not None:
        return _animate(request.animate, walked)
    from attnviz.render.shapes.by_hand import numbers_answer

    return numbers_answer(walked, request.precision)


def _tiny(request: Request) -> TinyInput:
    """The numeric walk's input: a text, a file, or an example (cat sat on mat)."""
    from attnviz.shapes.worked import tiny_json
    from attnviz.shapes.worked.tiny import EMBEDDINGS, from_text

    sources = given(request, ("text", "input", "example"))
    if len(sources) > 1:
        raise UsageError(
            "a text, {input} and {example} are three inputs; give one", input=..., example=...
        )
    unused = given(request, _NOT_TINY)
    if unused:
        raise UsageError("{} does not apply to a numeric walk; leave it out", Setting(unused[0]))
    if request.input is not None:
        settings = given(request, ("d_model", "heads", "kv_heads", "causal", "window"))
        if settings:
            raise UsageError(
                "{} belongs into the file {}; leave it out here",
                Setting(settings[0]),
                request.input,
            )
        return tiny_json.read_json(_read(request.input), str(request.input))
    if request.example is not None and request.example not in tiny_json.EXAMPLES:
        raise UsageError(
            f"unknown example {request.example!r}; there are {' and '.join(tiny_json.EXAMPLES)}"
        )
    if request.example == "causal":
        return tiny_json.causal_example()
    if request.window is not None and request.window < 1:
        raise UsageError(f"window must be at least 1 position, got {request.window}")
    heads = 2 if request.heads is None else request.heads
    kv_heads = request.kv_heads
    if request.kind is not None and request.kind.lower() not in ("mha", "gqa", "mqa"):
        raise UsageError(
            "{kind} has no numeric walk; it shows mha, gqa and mqa (and cross-attention from an "
            "{input} file with a context)",
            kind=request.kind,
            input=...,
        )
    if request.kind is not None:
        width = 4 if request.d_model is None else request.d_model
        sizes = check_sizes(width, heads, kind=request.kind.lower(), kv_heads=kv_heads)
        kv_heads = sizes.kv_heads
    return from_text(
        " ".join(EMBEDDINGS) if request.text is None else request.text,
        d_model=request.d_model,
        heads=heads,
        kv_heads=kv_heads,
        causal=bool(request.causal),
        window=request.window,
        seed=request.seed,
    )


def _read(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise InputError("{} is a folder; {input} takes a JSON file", path, input=...)
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _animate(path: Path, walked: NumericWalk) -> Answer:
    suffix_of(path, ANIMATIONS)
    from attnviz.files import check_writable, write

    check_writable(path)
    from attnviz.render.shapes.film import film_page

    data = film_page(walked)
    write(path, data)
    return Answer("animate", f"wrote {path}", (), data={"file": str(path), "bytes": len(data)})
