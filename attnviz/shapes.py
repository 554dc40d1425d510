"""Shapes and costs of attention, in one call: what ``attnviz shapes`` prints.

Nothing here imports torch, except to verify; matplotlib, NumPy and Pillow are imported only for
what needs them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from attnviz.attention.sizes import check_sizes
from attnviz.attention.spec import KINDS, AttentionSpec, Run, dtype_name, spec_of
from attnviz.errors import InputError, UsageError
from attnviz.render.shapes.report import Report

if TYPE_CHECKING:
    from attnviz.attention.configs import ModelSpec
    from attnviz.attention.numbers import NumericWalk
    from attnviz.attention.tiny import TinyInput
    from attnviz.attention.trace import Walk

DEFAULT_D_MODEL, DEFAULT_HEADS = 512, 8
FIGURES = ("svg", "png", "pdf")
ANIMATIONS = ("gif", "html")


class Request(NamedTuple):
    """Everything one can ask for; the fields are the options of ``attnviz shapes``.

    Sizes left None stay symbolic where that helps, or take a usual value. At most one view may be
    asked for: ``verify``, ``compare``, ``sweep``, ``presets``, ``numbers``, ``scaling``,
    ``diagram`` or ``animate``; without any it is the walk.
    """

    text: str | None = None
    d_model: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    kind: str | None = None
    latent: int | None = None
    rope_dim: int | None = None
    bias: bool | None = None
    causal: bool | None = None
    window: int | None = None
    batch: int | None = None
    seq: int | None = None
    context: int | None = None
    cache: int | None = None
    layers: int | None = None
    dtype: str = "float32"
    preset: str | None = None
    model: str | None = None
    why: bool = False
    verify: bool = False
    compare: bool = False
    memory: str | None = None
    sweep: str | None = None
    presets: bool = False
    numbers: bool = False
    input: Path | None = None
    example: str | None = None
    precision: int = 3
    scaling: bool = False
    seed: int = 0
    diagram: bool = False
    output: Path | None = None
    plot: Path | None = None
    animate: Path | None = None


_VIEWS = ("verify", "compare", "sweep", "presets", "numbers", "scaling", "diagram", "animate")
_LAYER = ("d_model", "heads", "kv_heads", "head_dim", "kind", "latent", "rope_dim", "bias")
_NOT_TINY = (
    *("head_dim", "latent", "rope_dim", "bias", "batch", "seq", "context", "cache", "layers"),
    *("dtype", "why"),
)
_BELONGS = {
    "memory": ("compare",),
    "plot": ("sweep", "scaling"),
    "output": ("diagram",),
    "input": ("numbers", "animate"),
    "example": ("numbers", "animate"),
    "text": ("numbers", "animate"),
}


def shapes(request: Request) -> Report:
    """Answer one request, writing the files it asks for.

    Raises:
        UsageError, SizeError: options or sizes that do not go together.
        ModelError: a config that cannot be read. InputError: numbers that cannot be read.
        OutputError: a file that cannot be written.
    """
    view = _view(request)
    if view == "presets":
        from attnviz.attention.presets import presets
        from attnviz.render.shapes.models import presets_report

        return presets_report(presets())
    if view == "scaling":
        return _scaling(request)
    if view in ("numbers", "animate"):
        return _numbers(request)
    model = _model(request)
    spec = model.main.spec if model else _spec(request)
    run = Run(
        batch=request.batch if request.batch is not None else 1,
        seq=request.seq,
        context=request.context,
        cache=request.cache,
        dtype=dtype_name(request.dtype),
    )
    if view == "sweep":
        return _sweep(request, run, spec)
    if view == "compare":
        from attnviz.attention.compare import compare, parse_memory
        from attnviz.render.shapes.costs import compare_report

        memory = parse_memory(request.memory) if request.memory is not None else None
        layers = _layers(request)
        return compare_report(compare(spec, run, layers=layers, model=model, memory=memory))
    if view == "verify":
        return _verify(request, run, spec, model)
    return _walk(request, run, spec, model)


def _view(request: Request) -> str:
    """The one view asked for.

    Raises:
        UsageError: two views, or an option of a view that was not asked for.
    """
    asked = [name for name in _VIEWS if getattr(request, name)]
    if len(asked) > 1:
        raise UsageError(f"--{asked[0]} and --{asked[1]} are two views; ask for one at a time")
    view = asked[0] if asked else "walk"
    for name, views in _BELONGS.items():
        if getattr(request, name) is not None and view not in views:
            shown = {"text": f"the text {request.text!r}", "output": "--output"}
            option = shown.get(name, f"--{name}")
            raise UsageError(f"{option} belongs to {' or '.join('--' + v for v in views)}; add it")
    if request.preset is not None and request.model is not None:
        raise UsageError("--preset and --model both name a model; keep one")
    fixed = request.preset or request.model
    allowed = {"presets", "scaling", "numbers", "animate"}
    if fixed and view in allowed:
        raise UsageError(f"--{view} does not take a model; leave {fixed!r} out")
    if not 0 <= request.precision <= 12:
        raise UsageError(f"--precision must be 0 to 12 digits, got {request.precision}")
    return view


def _given(request: Request, names: tuple[str, ...]) -> list[str]:
    unset = Request._field_defaults
    return [name for name in names if getattr(request, name) != unset[name]]


def _model(request: Request) -> ModelSpec | None:
    """The model asked for, by preset or by its config."""
    if request.preset is None and request.model is None:
        return None
    name = request.preset if request.preset is not None else str(request.model)
    extra = _given(request, (*_LAYER, "causal", "window", "layers"))
    if extra:
        option = extra[0].replace("_", "-")
        raise UsageError(f"--{option} is fixed by {name!r}; leave it out, or leave the model out")
    if request.preset is not None:
        from attnviz.attention.presets import preset

        return preset(request.preset).model
    from attnviz.attention.configs import read_config
    from attnviz.models.config_file import read_config_file

    config, folder = read_config_file(name)
    label = folder.resolve().name if folder is not None else name
    return read_config(config, label)


def _spec(request: Request) -> AttentionSpec:
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


def _layers(request: Request) -> int:
    layers = 1 if request.layers is None else request.layers
    if not 1 <= layers <= 1_000_000:
        raise UsageError(f"--layers must be 1 to 1,000,000, got {layers:,}")
    return layers


def _walk(request: Request, run: Run, spec: AttentionSpec, model: ModelSpec | None) -> Report:
    from attnviz.attention.trace import walk
    from attnviz.render.shapes.walk import walk_report

    if model is not None and spec.kind != "cross" and run.context is not None:
        run = replace(run, context=None)
    walked = walk(spec, run)
    report = walk_report(walked, why=request.why, layers=_layers(request))
    if model is not None:
        from attnviz.render.shapes.models import model_report

        report = model_report(model, run, report)
    return _diagram(request, walked, report) if request.diagram else report


def _diagram(request: Request, walked: Walk, report: Report) -> Report:
    if request.output is None:
        from attnviz.render.shapes.diagram_text import diagram_report

        return diagram_report(walked, report)
    kind = _suffix(request.output, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.output)
    from attnviz.render.shapes.diagram import diagram_figure

    write(request.output, diagram_figure(walked, kind))
    return _written(report, "diagram", request.output)


def _written(report: Report, view: str, path: Path) -> Report:
    return Report(view, f"wrote {path}", (), data={**report.data, "file": str(path)})


def _suffix(path: Path, known: tuple[str, ...]) -> str:
    """A file's format by its name.

    Raises:
        UsageError: an unknown one, with those that can be written.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in known:
        kinds = ", ".join("." + name for name in known)
        raise UsageError(f"cannot tell the format of {path.name!r}; end it in {kinds}")
    return suffix


def _sweep(request: Request, run: Run, spec: AttentionSpec) -> Report:
    from attnviz.attention.sweep import sweep
    from attnviz.render.shapes.costs import sweep_report

    fixed = request.preset or request.model

    def spec_at(variable: str, value: int | None) -> AttentionSpec:
        if variable in ("seq", "context"):
            return spec
        if fixed:
            raise UsageError(f"--sweep {variable} contradicts {fixed!r}, which fixes it; sweep seq")
        name = variable.replace("-", "_")
        if _given(request, (name,)):
            raise UsageError(f"--{variable} and --sweep {variable} contradict each other")
        if name == "heads":
            return _spec(request._replace(heads=value))
        return _spec(request._replace(d_model=value))

    found = sweep(str(request.sweep), run, spec_at)
    report = sweep_report(found)
    if request.plot is None:
        return report
    kind = _suffix(request.plot, FIGURES)
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import sweep_figure

    write(request.plot, sweep_figure(found, kind))
    return report._replace(notes=(*report.notes, f"Wrote {request.plot}."))


def _scaling(request: Request) -> Report:
    from attnviz.attention.scaling import scaling
    from attnviz.render.shapes.costs import scaling_report

    if request.plot is not None:
        _suffix(request.plot, FIGURES)
    if request.seed < 0:
        raise UsageError(f"--seed must not be negative, got {request.seed}")
    found = scaling(request.seed)
    report = scaling_report(found)
    if request.plot is None:
        return report
    from attnviz.files import check_writable, write

    check_writable(request.plot)
    from attnviz.render.shapes.figures import scaling_figure

    write(request.plot, scaling_figure(found, _suffix(request.plot, FIGURES)))
    return report._replace(notes=(*report.notes, f"Wrote {request.plot}."))


def _verify(request: Request, run: Run, spec: AttentionSpec, model: ModelSpec | None) -> Report:
    from attnviz.attention.verify import verify, verify_model
    from attnviz.render.shapes.models import verify_report

    if model is None:
        from attnviz.attention.trace import walk
        from attnviz.attention.verify import DEFAULT_S, DEFAULT_T

        if run.cache is None:
            run = replace(run, seq=run.seq or DEFAULT_T)
        if spec.kind == "cross":
            run = replace(run, context=run.context or DEFAULT_S)
        return verify_report(verify(walk(spec, run)))
    from attnviz.models.counted import count_checkpoint, count_config

    if request.preset is not None:
        from attnviz.attention.presets import preset

        chosen = preset(request.preset)
        if not chosen.counted_as:
            raise UsageError(
                f"{chosen.title} has no published weights and no transformers class to count; "
                "--preset without --verify shows the closed forms"
            )
        counted = count_config(chosen.config, chosen.counted_as)
    else:
        from attnviz.models.config_file import read_config_file

        folder = read_config_file(str(request.model))[1]
        found = count_checkpoint(folder) if folder is not None else None
        if found is None:
            raise InputError(
                f"{request.model} has no safetensors weights here to count; --verify needs a "
                "folder that holds them"
            )
        counted = found
    report = verify_report(verify_model(model, dict(counted.layers), counted.origin))
    share = counted.attention / counted.whole if counted.whole else 0
    note = (
        f"{counted.attention:,} of the model's {counted.whole:,} parameters are attention "
        f"({100 * share:.1f} %)."
    )
    return report._replace(notes=(*report.notes, note))


def _numbers(request: Request) -> Report:
    from attnviz.attention.numbers import compute

    walked = compute(_tiny(request))
    if request.animate is not None:
        return _animate(request.animate, walked)
    from attnviz.render.shapes.numbers import numbers_report

    return numbers_report(walked, request.precision)


def _tiny(request: Request) -> TinyInput:
    """The numeric walk's input: a text, a file, or an example (cat sat on mat)."""
    from attnviz.attention import tiny_json
    from attnviz.attention.tiny import EMBEDDINGS, from_text

    sources = _given(request, ("text", "input", "example"))
    if len(sources) > 1:
        raise UsageError("a text, --input and --example are three inputs; give one")
    unused = _given(request, _NOT_TINY)
    if unused:
        option = unused[0].replace("_", "-")
        raise UsageError(f"--{option} does not apply to a numeric walk; leave it out")
    if request.input is not None:
        settings = _given(request, ("d_model", "heads", "kv_heads", "causal", "window"))
        if settings:
            option = settings[0].replace("_", "-")
            raise UsageError(f"--{option} belongs into the file {request.input}; leave it out here")
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
            f"--kind {request.kind} has no numeric walk; it shows mha, gqa and mqa (and "
            "cross-attention from an --input file with a context)"
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
            raise InputError(f"{path} is a folder; --input takes a JSON file")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _animate(path: Path, walked: NumericWalk) -> Report:
    kind = _suffix(path, ANIMATIONS)
    from attnviz.files import check_writable, write

    check_writable(path)
    if kind == "gif":
        from attnviz.render.shapes.animation_gif import animation_gif as animated
    else:
        from attnviz.render.shapes.animation_html import animation_html as animated
    data = animated(walked)
    write(path, data)
    return Report("animate", f"wrote {path}", (), data={"file": str(path), "bytes": len(data)})
