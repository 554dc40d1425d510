"""An attention module made and called as its signatures ask, in float64, without dropout.

What rotary positions do to queries, keys and values, told from a call on equal tokens.

Where all tokens are equal, a number of a query that is not rotated is the same at every position,
and one that is turns as s(t) = a·cos(f·t + φ), so that s(t + 1) + s(t - 1) = 2·cos f · s(t): that
gives its frequency f, however pairs are laid out. A query and a key of the same position must meet
with the product that they have without rotation. A wrong base is named only where the module says
which base is meant.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from attnviz.drawing.labels import counted
from attnviz.errors import InputError, UsageError
from attnviz.features.check.anatomy import Attention, as_batch, back_to_projection, is_rotated
from attnviz.features.check.result import Bug
from attnviz.features.check.trace import Node, Recorded, in_double
from attnviz.files import packaged

BATCH, LENGTH, SOURCE_LENGTH = 2, 7, 9  # B, T and S

NAMES = packaged(__file__, "names.toml")
_CAUSAL = re.compile(r"causal|autoregressive", re.IGNORECASE)
_MASKED = re.compile(r"masked_?(self|multi|attention|head)", re.IGNORECASE)


def load_class(path_and_class: str) -> type[nn.Module]:
    """Return the class that ``file.py:Class`` names; its file is run."""
    name, _, class_name = path_and_class.rpartition(":")
    path = Path(name)
    if not path.is_file():
        raise InputError(f"no such file: {name}")
    spec = importlib.util.spec_from_file_location(f"_attnviz_checked_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise InputError(f"{name} cannot be run: {one_line(error)}") from error
    finally:
        sys.path.remove(folder)
    cls = getattr(module, class_name, None)
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        classes = [
            key for key, value in vars(module).items()
            if isinstance(value, type) and issubclass(value, nn.Module)
            and value.__module__ == spec.name
        ]  # fmt: skip
        choose = f"; it has {', '.join(classes)}" if classes else ""
        raise InputError(f"{name} has no torch module called {class_name or '(nothing)'}{choose}")
    return cls


def build(
    cls: type[nn.Module], d_model: int, heads: int, kv_heads: int | None, extra: Mapping[str, Any]
) -> nn.Module:
    """Return the module, with the sizes under the names that its constructor has for them."""
    values = _sizes(d_model, heads, kv_heads)
    sizes = {n for kind in ("width", "heads", "kv_heads", "length") for n in NAMES[kind]}
    keywords: dict[str, Any] = {}
    missing: list[str] = []
    for name, parameter in list(inspect.signature(cls.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name in extra:
            keywords[name] = extra[name]
        elif name in values and (name in sizes or parameter.default is parameter.empty):
            if values[name] is not None:
                keywords[name] = values[name]
        elif name in NAMES["config"]:
            keywords[name] = SimpleNamespace(**{**values, **extra})
        elif "drop" in name and parameter.default is parameter.empty:
            keywords[name] = 0.0
        elif parameter.default is parameter.empty:
            missing.append(name)
    unknown = set(extra) - set(keywords)
    if unknown and not any(isinstance(v, SimpleNamespace) for v in keywords.values()):
        raise UsageError(f"{cls.__name__} takes no {', '.join(sorted(unknown))}")
    if missing:
        raise UsageError(
            f"{cls.__name__} needs {', '.join(missing)}, whose value is not known; give it a "
            f"default, or in Python av.check(..., settings={{'{missing[0]}': ...}})"
        )
    torch.manual_seed(0)
    try:
        return cls(**keywords)
    except Exception as error:
        raise InputError(f"{cls.__name__} cannot be made: {one_line(error)}") from error


def takes_heads(cls: type[nn.Module]) -> bool:
    """Whether the constructor of a class has a name for the number of heads."""
    return any(name in NAMES["heads"] for name in inspect.signature(cls.__init__).parameters)


def _sizes(d_model: int, heads: int, kv_heads: int | None) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for kind, size in (
        ("width", d_model), ("heads", heads), ("kv_heads", heads if kv_heads is None else kv_heads),
        ("head_width", d_model // heads), ("length", 2 * SOURCE_LENGTH),
    ):  # fmt: skip
        values |= dict.fromkeys(NAMES[kind], size)
    return values | NAMES["usual"] | {"max_batch_size": BATCH}


@dataclass(eq=False)
class Subject:
    """A module and how it is called."""

    module: nn.Module  # in float64 and in eval mode
    inputs: list[Tensor]  # [B, T, D] each, which tokens are moved in
    # calls it with such inputs, and a mask or None
    call: Callable[[Sequence[Tensor], Mapping[str, Any]], Tensor]
    mask: str = ""  # the name of its parameter for masks; empty without one
    padding: str = ""  # the name of its parameter for padding; empty without one
    needs_mask: bool = False  # whether it cannot be called without
    cross: bool = False  # whether keys come from another input
    causal: bool = False  # whether its name, its settings or a buffer say that it is causal
    notes: list[str] = field(default_factory=list)  # how it was called, where that is not plain


def subject_of(
    module: nn.Module, x: Any = None, context: Any = None, width: int | None = None
) -> Subject:
    """Tell from parameters and ``forward`` how to call a module, on ``x`` [B, T, D] and context."""
    import copy

    module = copy.deepcopy(module).cpu().double().eval()
    widths: list[int | None] = [width] if width else []
    widths += [] if x is not None else [size for size in _widths(module) if size != width]
    subjects = [_subject(module, x, context, size) for size in widths or [None]]
    return next((size for size in subjects if _runs(size)), subjects[0])


def _runs(subject: Subject) -> bool:
    """Whether a module takes what it is called with."""
    if subject.needs_mask:
        return True
    try:
        with torch.no_grad():
            subject.call(subject.inputs, {})
    except (Exception, SystemExit):
        return False
    return True


def _subject(module: nn.Module, x: Any, context: Any, width: int | None) -> Subject:
    """How a module is to be called with tokens of a width."""
    generator = torch.Generator().manual_seed(0)
    values = tuple(x) if isinstance(x, list | tuple) else (() if x is None else (x,))
    values = tuple(_doubled(value) for value in values)
    if not values and width is None:
        raise UsageError(
            "the width of {} cannot be told; {x}", type(module).__name__, x="[B, T, D]"
        )

    def draw(length: int) -> Tensor:
        """Draw [B, T, D], with another T where it divides D: no size of a call is H or d."""
        size = width or 0
        length = next(n for n in (length, length + 4, length + 6) if size % n or n > length + 4)
        return torch.randn(BATCH, length, size, generator=generator, dtype=torch.float64)

    sequence_first = getattr(module, "batch_first", True) is False
    notes = ["called with [T, B, D], since batch_first is False"] if sequence_first else []
    names, kinds = _parameters(module)
    mask = next((n for n in names if "mask" in n and "pad" not in n and not n.startswith(
        ("use_", "need", "is_"))), "")  # fmt: skip
    padding = next((n for n in names if "mask" in n and "pad" in n), "")
    inputs, order, constants = _arguments(module, names, kinds, values, context, draw)
    cross = len({id(inputs[number]) for number in order.values()}) > 1 if order else False
    needs = bool(mask) and kinds[mask].default is inspect.Parameter.empty

    def call(current: Sequence[Tensor], extra: Mapping[str, Any]) -> Tensor:
        arguments = dict(constants)
        for name, number in order.items():
            value = current[number]
            arguments[name] = value.transpose(0, 1) if sequence_first else value
        arguments |= extra
        positional = {name: arguments.pop(name) for name in names if name in arguments
                      and kinds[name].kind is inspect.Parameter.POSITIONAL_ONLY}  # fmt: skip
        first = current[next(iter(order.values()), 0)].shape
        with in_double():
            result = module(*positional.values(), **arguments)
        result = _output_of(result, (first[1], first[0], first[2]) if sequence_first else first)
        return result.transpose(0, 1) if sequence_first else result

    return Subject(
        module, inputs, call, mask, padding, needs, cross, _says_causal(module, mask), notes
    )


def _parameters(module: nn.Module) -> tuple[list[str], dict[str, inspect.Parameter]]:
    parameters = inspect.signature(module.forward).parameters
    named = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    if not named:
        named = {"x": inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)}
    return list(named), named


def _arguments(
    module: nn.Module, names: list[str], kinds: Mapping[str, inspect.Parameter],
    values: tuple[Any, ...], context: Any, draw: Callable[[int], Tensor],
) -> tuple[list[Tensor], dict[str, int], dict[str, Any]]:  # fmt: skip
    """Return the inputs, which of them each argument takes, and the arguments that stay."""
    inputs: list[Tensor] = []
    order: dict[str, int] = {}
    constants: dict[str, Any] = {}

    def take(value: Tensor) -> int:
        for number, tensor in enumerate(inputs):
            if tensor is value or (tensor.shape == value.shape and bool((tensor == value).all())):
                return number
        inputs.append(value)
        return len(inputs) - 1

    if len(values) > 1:  # the arguments themselves
        for name, value in zip(names, values, strict=False):
            moves = isinstance(value, Tensor) and value.is_floating_point() and value.ndim == 3
            if moves and "mask" not in name and len(inputs) < 3:
                order[name] = take(value)
            else:
                constants[name] = value
        return inputs, order, constants
    x = values[0] if values else draw(LENGTH)
    if not isinstance(x, Tensor) or x.ndim != 3:
        raise UsageError("{x} is a tensor [B, T, D]", x=...)
    first = next((name for name in names if name.lower() in NAMES["queries"]), names[0])
    order[first] = take(x)
    source = None if context is None else _doubled(context)
    for name in names:
        if name == first:
            continue
        plain, empty = name.lower(), kinds[name].default is inspect.Parameter.empty
        if "mask" in plain or plain.startswith(("need", "use_", "return", "output_")):
            continue
        if plain in NAMES["keys"] + NAMES["values"] and (
            empty or first.lower() in NAMES["queries"]
        ):
            order[name] = take(x if source is None else source)
        elif plain in NAMES["others"] and (empty or source is not None):
            order[name] = take(draw(SOURCE_LENGTH) if source is None else source)
        elif plain in ("valid_lens", "valid_len", "lengths"):
            constants[name] = None
        elif empty:
            raise UsageError(
                "{}.forward needs {}, which is not known; give all of its arguments, {x}",
                type(module).__name__, name, x="(x, ...)",
            )  # fmt: skip
    return inputs, order, constants


def _doubled(value: Any) -> Any:
    if hasattr(value, "detach"):
        value = value.detach()
        return value.cpu().double() if value.is_floating_point() else value
    return value


def _widths(module: nn.Module) -> list[int]:
    """Return what D may be: what the module says itself, then what its matrices take and give."""
    named = [getattr(module, name, None) for name in NAMES["width"] if len(name) > 1]
    linear = [part for part in module.modules() if isinstance(part, nn.Linear)]
    matrices = [p for p in module.parameters() if p.ndim == 2]
    widths = [value for value in named if type(value) is int]
    widths += [part.in_features for part in linear] + [part.out_features for part in linear]
    widths += [int(size) for matrix in matrices for size in matrix.shape]
    return list(dict.fromkeys(widths))


def _output_of(result: Any, shape: Sequence[int]) -> Tensor:
    """Find what a module gives: of several tensors the one shaped like its input, no weights."""
    if isinstance(result, Tensor):
        return result
    if isinstance(result, Mapping):
        result = list(result.values())
    tensors = [
        value
        for value in (result if isinstance(result, list | tuple) else ())
        if isinstance(value, Tensor) and value.ndim == 3 and value.is_floating_point()
    ]
    if not tensors:
        raise UsageError("the module returns no tensor [B, T, D]")
    return next((value for value in tensors if tuple(value.shape) == tuple(shape)), tensors[0])


def _says_causal(module: nn.Module, mask: str) -> bool:
    name = type(module).__name__
    if _CAUSAL.search(name) or (not mask and _MASKED.search(name)):
        return True
    flags = [getattr(module, name, None) for name in ("causal", "is_causal")]
    if any(flag is True for flag in flags):
        return True
    return any(_is_triangle(buffer) for _, buffer in module.named_buffers())


def _is_triangle(buffer: Tensor) -> bool:
    """Whether a buffer is a causal mask, of either sign."""
    if buffer.ndim < 2 or buffer.shape[-1] != buffer.shape[-2] or buffer.shape[-1] < 2:
        return False
    square = buffer.reshape(-1, *buffer.shape[-2:])[0].cpu().double()
    values = torch.unique(square)
    if len(values) != 2:
        return False
    high = (square == values[-1]).long()
    size = len(square)
    lower = torch.ones(size, size, dtype=torch.long).tril()
    near = [lower, 1 - lower, lower.tril(-1), 1 - lower.tril(-1),
            torch.ones(size, size, dtype=torch.long).tril(1)]  # fmt: skip
    return any(bool((high == triangle).all()) for triangle in near)


def mask_forms(batch: int, queries: int, keys: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Causal masks in every form that modules take: its name, itself, and what it allows."""
    allowed = torch.ones(queries, keys, dtype=torch.bool).tril()
    added = torch.zeros(queries, keys, dtype=torch.float64).masked_fill(~allowed, -torch.inf)
    numbers = allowed.to(torch.float64)
    for shape in ((queries, keys), (1, 1, queries, keys), (batch, queries, keys),
                  (batch, 1, queries, keys)):  # fmt: skip
        form = f"[{', '.join(map(str, shape))}]"
        for word, mask in (
            ("True = allowed", allowed), ("0 and 1", numbers), ("added, 0 and -inf", added),
            ("True = blocked", ~allowed),
        ):  # fmt: skip
            yield f"{form}, {word}", mask.expand(shape).clone(), allowed


def padding_forms(batch: int, queries: int, keys: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """Yield padding masks in every form, and what they allow [B, T, S]: item 1 lacks two keys."""
    real = torch.ones(batch, keys, dtype=torch.bool)
    real[1, -2:] = False
    allowed = real[:, None].expand(batch, queries, keys)
    added = torch.zeros(batch, keys, dtype=torch.float64).masked_fill(~real, -1e9)
    for shape in ((batch, keys), (batch, 1, 1, keys), (batch, 1, keys)):
        form = f"[{', '.join(map(str, shape))}]"
        for word, mask in (
            ("True = padding", ~real), ("True = a real key", real), ("0 and 1", 1.0 * real),
            ("added, 0 and -1e9", added),
        ):  # fmt: skip
            yield f"{form}, {word}", mask.reshape(shape), allowed


def unused(subject: Subject, extra: Mapping[str, Any]) -> list[str]:
    """Return the matrices of a module that take no part in what it gives."""
    with torch.enable_grad():
        parameters = [(n, p) for n, p in subject.module.named_parameters() if p.requires_grad]
        subject.module.zero_grad(set_to_none=True)
        output = subject.call(subject.inputs, extra)
        if not output.requires_grad:
            return []
        output.nan_to_num().square().sum().backward()  # type: ignore[no-untyped-call]
        names = [n for n, p in parameters if p.ndim >= 2 and p.grad is None]
        subject.module.zero_grad(set_to_none=True)
    return names


def one_line(error: BaseException) -> str:
    """Return an error's kind and text, without its line breaks."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_EXACT = 1e-7


def named_base(module: nn.Module) -> float | None:
    """Return a module's base of rotary positions; None for none, several, or scaled ones."""
    bases = set()
    for part in module.modules():
        rotary = any(word in type(part).__name__.lower() for word in ("rotary", "rope"))
        for holder in (part, getattr(part, "config", None), getattr(part, "args", None)):
            for name, value in vars(holder).items() if hasattr(holder, "__dict__") else ():
                lower = name.lower()
                number = isinstance(value, int | float) and not isinstance(value, bool)
                plain = value is None or value is False or (number and value <= 1)  # of scores
                if any(word in lower for word in NAMES["changed"]) and not plain:
                    return None
                bases_named = NAMES["bases"] + (NAMES["bases_of_rotary"] if rotary else [])
                if number and lower in bases_named:
                    bases.add(float(value))
    return bases.pop() if len(bases) == 1 else None


def find_rotary_bugs(
    call: Recorded, attention: Attention, base: float | None, *, cross: bool
) -> Iterator[Bug]:
    """Find what is wrong with the rotation of queries, keys and values; nothing where none is."""
    nodes, _ = call.run(inputs=[i[:, :1].expand_as(i).clone() for i in call.inputs])
    speeds, rotated = [], []
    for factor in (attention.queries, attention.keys, attention.values):
        vectors = nodes[factor.product.number].args[factor.slot]
        vectors = vectors.transpose(-1, -2) if factor.turned else vectors
        turns = _frequencies(as_batch(vectors))
        speeds.append(turns)
        moving = is_rotated(call, factor.source) if turns is None else bool((turns > 0).any())
        rotated.append(moving)
    q, k, v = rotated
    fast, slow, _ = speeds
    if v and (q or k):
        yield Bug.of("rotary/values")
    elif q != k:
        yield Bug.of("rotary/side", side="queries" if q else "keys")
    elif (
        q and not cross and len(call.inputs) == 1
        and fast is not None and slow is not None and fast.shape == slow.shape
    ):  # fmt: skip
        lag = _lag(nodes, attention, nodes[attention.product.number])
        yield from _of_pairs(fast, slow, lag, base)


def _of_pairs(fast: Tensor, slow: Tensor, lag: int, base: float | None) -> Iterator[Bug]:
    """Compare what turns a query's numbers with what turns a key's."""
    if not torch.equal(fast > 0, slow > 0):
        split = ((fast > 0) != (slow > 0)).nonzero().flatten().tolist()
        yield Bug.of("split", first=split[0], last=split[-1])
        return
    speeds = sorted({round(f, 6) for f in fast.tolist() if f > 0}, reverse=True)
    if not torch.allclose(fast, slow, rtol=1e-4, atol=1e-6):
        swap = torch.allclose(fast.sort()[0], slow.sort()[0], rtol=1e-4, atol=1e-6)
        speeds_bug = Bug.of("rotary base/speeds", fast=_listed(fast), slow=_listed(slow))
        yield Bug.of("rotary/pairs") if swap else speeds_bug
        return
    if lag:
        distance = f"{counted(abs(lag), 'position')} {'later' if lag > 0 else 'earlier'}"
        yield Bug.of("rotary offset", distance=distance)
    pairs = int((fast > 0).sum()) // 2
    if base is None or len(speeds) < 2 or pairs < 2 or not math.isclose(speeds[0], 1, rel_tol=1e-5):
        return
    expected = base ** (-1 / pairs)
    geometric = all(
        math.isclose(f, speeds[1] ** i, rel_tol=1e-3) for i, f in enumerate(speeds) if f > 1e-3
    )
    if len(speeds) == pairs and geometric and not math.isclose(speeds[1], expected, rel_tol=1e-4):
        measured = speeds[1] ** -pairs
        yield Bug.of("rotary base/named", found=measured, base=base, numbers=2 * pairs)


def _frequencies(part: Tensor) -> Tensor | None:
    """Tell radians a position of each number, [width], 0 where it stays; None if not rotated."""
    preceding, current, following = part[:, :-2], part[:, 1:-1], part[:, 2:]
    weight = (current**2).sum((0, 1))
    cosine = ((preceding + following) * current).sum((0, 1)) / (2 * weight).clamp_min(1e-300)
    residual = (preceding + following - 2 * cosine * current).abs().amax((0, 1))
    size = part.abs().amax((0, 1))
    if bool((residual > _EXACT * size).any()):
        return None
    moving = (part - part[:, :1]).abs().amax((0, 1)) > 1e-12 * size
    return torch.where(moving, cosine.clamp(-1, 1).arccos(), torch.zeros_like(cosine))


def _lag(nodes: list[Node], attention: Attention, product: Node) -> int:
    """Find by how much rotation shifts keys against queries; 0 also where that cannot be told."""
    call, width = attention.call, attention.width
    plain, scale = [], 1.0
    for side in attention.sides:
        if side.source is None:
            return 0
        projection, factor, _ = back_to_projection(call, side.source)
        if projection is None:
            return 0
        value = nodes[projection.number].value
        plain.append(value.reshape(-1, value.shape[-1])[0])
        scale *= factor
    left, right = (part.reshape(-1, width) if part.numel() % width == 0 else part for part in plain)
    maps = as_batch(product.value)
    heads = len(maps) // call.inputs[0].shape[0]
    if left.ndim != 2 or right.ndim != 2 or heads % len(left) or heads % len(right):
        return 0
    left, right = (part.repeat_interleave(heads // len(part), 0) for part in (left, right))
    expected = scale * (left * right).sum(-1)
    tokens = maps.shape[-1]
    for lag in sorted(range(1 - tokens, tokens), key=abs):
        line = maps[:heads].diagonal(lag, -2, -1)
        if bool(((line - expected[:, None]).abs() < 1e-9 * (1 + expected.abs()[:, None])).all()):
            return lag if attention.keys_are_left else -lag
    return 0


def _listed(speeds: Tensor) -> str:
    several = sorted({round(f, 4) for f in speeds.tolist() if f > 0}, reverse=True)
    return ", ".join(f"{f:.4g}" for f in several[:3])
