"""The layer or model that a request is about."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnviz.answers.request import LAYER, Request, given
from attnviz.attention.sizes import check_sizes
from attnviz.errors import Setting, UsageError
from attnviz.shapes.configs.keys import MAX_LAYERS
from attnviz.shapes.spec import KINDS, AttentionSpec, RunSizes, dtype_name, spec_of

if TYPE_CHECKING:
    from attnviz.shapes.configs.model import ModelSpec

DEFAULT_D_MODEL, DEFAULT_HEADS = 512, 8


def model_of(request: Request) -> ModelSpec | None:
    """The model asked for, by preset or by its config."""
    if request.preset is None and request.model is None:
        return None
    name = request.preset if request.preset is not None else str(request.model)
    extra = given(request, (*LAYER, "causal", "window", "layers"))
    if extra:
        raise UsageError(
            "{} is fixed by {!r}; leave it out, or leave the model out", Setting(extra[0]), name
        )
    if request.preset is not None:
        from attnviz.shapes.configs.presets import preset

        return preset(request.preset).model
    from attnviz.models.folder import locate_config
    from attnviz.shapes.configs.model import read_config

    config, folder = locate_config(name)
    return read_config(config, folder.resolve().name if Path(name).exists() else name)


def spec_asked(request: Request) -> AttentionSpec:
    """The fresh layer asked for; D = 512 and 8 heads unless told otherwise."""
    kind = request.kind.lower() if request.kind is not None else None
    if kind is not None and kind not in KINDS:
        raise UsageError(f"unknown kind {request.kind!r}; there are {', '.join(KINDS)}")
    heads = DEFAULT_HEADS if request.heads is None else request.heads
    d_model = DEFAULT_D_MODEL if request.d_model is None else request.d_model
    if kind is None:
        kind = "mha"
        if request.kv_heads is not None and request.kv_heads != heads:
            kind = "mqa" if request.kv_heads == 1 else "gqa"
    sizes = check_sizes(
        d_model,
        heads,
        kind=kind,
        kv_heads=request.kv_heads,
        head_dim=request.head_dim,
        latent=request.latent,
        rope_dim=request.rope_dim,
    )
    return spec_of(
        sizes,
        bias=request.bias is not False,
        causal=bool(request.causal),
        window=request.window,
    )


def layers_of(request: Request) -> int:
    """How many layers; UsageError where that is no number of layers."""
    layers = 1 if request.layers is None else request.layers
    if not 1 <= layers <= MAX_LAYERS:
        raise UsageError("{layers} must be 1 to {:,}, got {:,}", MAX_LAYERS, layers, layers=...)
    return layers


def run_of(request: Request) -> RunSizes:
    """What goes through the layer; one sequence unless told otherwise."""
    return RunSizes(
        batch=request.batch if request.batch is not None else 1,
        seq=request.seq,
        context=request.context,
        cache=request.cache,
        dtype=dtype_name(request.dtype),
    )
