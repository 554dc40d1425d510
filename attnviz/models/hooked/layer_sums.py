"""What a layer adds to the residual stream: modules of a hooked model found by their sum.

Modules are not known by name. With x what enters a layer and y what leaves it, y is
r x + a A + Σ f p + b for A what W_O gave, and p what one or two other modules gave; r, a and f are
1, numbers, or numbers for each channel, the same for every token, and then there may be a bias b.
They are fitted to a few tokens, and y must follow to rounding. A part that gives later tokens the
same whatever the first one is works token by token (feed-forward); any other is a mixer of tokens
without attention: a convolution, a layer with a state.

Layers that normalize the whole stream, not only what they read, are such sums as well: going back
from what left one, every state is what a normalization gave, or r s + a A + f p of an earlier state
s; the first is what entered the layer. Post-norm layers give norm(norm(x + A) + p) (Vaswani et al.
2017, arXiv:1706.03762), MiniMax's r norm(r norm(x) + a A) + f p.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor, nn

from attnviz.core.arrays import exact
from attnviz.core.weights import Normalization, StreamNorms
from attnviz.models.hooked.trace import ModuleCall, close, first_of, is_low, normalization

Factor = float | Tensor
"""A number, or one for each channel, [D]."""

_MOST = 2
"""Modules beside attention whose outputs a layer adds; and a mixer where it has no attention."""


class Form(NamedTuple):
    """What factors may be: of each channel another, and a bias beside them."""

    channels: bool
    bias: bool


FORMS = (Form(False, False), Form(True, False), Form(True, True))
"""The simplest first."""
_AT_ONCE = 1 << 22
"""Numbers of systems of equations that are solved together."""
_REST, _REST_LOW = 1e-7, 2e-5
"""Squares that a sum may leave, of those of what left the layer; in half precision by rounding."""
_NEAR = 0.05
"""How far fitted factors may be from round numbers that stand in their place."""
_ALIKE = 1e-11
"""Squares that a sum with round numbers may leave, of those of what left the layer, in any case."""
_DEPENDENT = 1e-9
"""Smallest eigenvalue, of the largest, of tensors that are no combinations of each other."""


Attended = list[tuple[Normalization | None, Tensor]]
"""What W_O gave, and that behind normalizations."""


@dataclass(frozen=True, eq=False)
class LayerPart:
    """A module whose output a layer adds."""

    module: nn.Module  # it
    factor: Factor = 1.0  # what its output is multiplied with
    # what it is, where it mixes tokens without attention; empty for feed-forward parts
    mixer: str = ""


@dataclass(frozen=True, eq=False)
class LayerSum:
    """What a layer's output is the sum of."""

    parts: tuple[LayerPart, ...]  # modules beside attention
    residual: Factor = 1.0  # what the stream that enters is multiplied with
    attention: Factor = 1.0  # the same of what W_O gives
    norm: Normalization | None = None  # what W_O's output goes through first, or None
    bias: Tensor | None = None  # what is added beside, the same for every token, [D], or None
    # the modules that normalize the whole stream, in order, which no sum alone explains
    over: tuple[nn.Module, ...] = ()
    # the same as :class:`~attnviz.core.weights.StreamNorms`; None where there are none.
    places: StreamNorms | None = None


@dataclass(frozen=True, eq=False)
class _LayerRun:
    """A layer in a pass of a few tokens: what ran in it for the first item."""

    layer: nn.Module  # it
    inside: Sequence[ModuleCall]  # its modules' calls, in the order of the modules
    order: Mapping[int, int]  # when a call came among all, by the ``id`` of its module
    attended: Attended  # none where it does not attend
    entered: Tensor  # [T, D]
    output: Tensor  # [T, D]

    def distinct(self, excluded: Iterable[Tensor]) -> list[ModuleCall]:
        """Return the calls that gave other states, the outermost of those that gave the same."""
        calls, states = list[ModuleCall](), list(excluded)
        for call in self.inside:
            same_shape = call.output.shape == self.output.shape
            if same_shape and not any(torch.equal(call.output, state) for state in states):
                calls.append(call)
                states.append(call.output)
        return calls


def explained(
    layer: nn.Module,
    projection: Tensor | None,
    ran: Mapping[int, ModuleCall],
    entered: Tensor,
    output: Tensor,
) -> LayerSum | None:
    """Give what the output of a layer is made of, ``entered``, ``output`` [T, D]; None for no sum.

    A plain sum, where that is one. In half precision a normalization that changes little passes for
    none, and one of the stream for a part beside it: what ends with one, or takes one for a part,
    is none.
    """
    inside = [call for module in layer.modules() if module is not layer
              and (call := ran.get(id(module))) is not None]  # fmt: skip
    attended = [] if projection is None else _attended(inside, projection)
    if projection is not None and (not attended or attended[0][1].shape != output.shape):
        return None
    order = {module: number for number, module in enumerate(ran)}
    run = _LayerRun(layer, inside, order, attended, entered, output)
    plain = _plain_sum(run)
    if plain is not None and not is_low(output.dtype):
        return plain
    normed = _normed_sum(run)
    if plain is None or normed is None:
        return plain or normed
    assert normed.places is not None
    ends = len(normed.over) > max(normed.places.heads, normed.places.mlp)
    return normed if ends or any(part.module in normed.over for part in plain.parts) else plain


def _plain_sum(run: _LayerRun) -> LayerSum | None:
    """Give what a layer without norms over the stream adds; None where it is no such sum."""
    added = _added(run)
    if added is not None:
        return added
    distinct = run.distinct([run.entered, run.output, *(tensor for _, tensor in run.attended)])
    attentions: list[tuple[Normalization | None, Tensor | None]] = [*run.attended]
    for count in range(_MOST + 1 + (not attentions)):
        for form in FORMS:
            for norm, attention in attentions or [(None, None)]:
                fixed = [run.entered] if attention is None else [run.entered, attention]
                fit = fitted(fixed, distinct, run.output, count, form)
                if fit is not None:
                    return _as_sum(run, fit, norm, attention)
    return None


@dataclass(frozen=True, eq=False)
class Fit:
    """Which modules' outputs were found to add up, and with what factors."""

    calls: tuple[ModuleCall, ...]  # the modules
    residual: Factor  # residual, attention: factors; 1 for attention where there is none
    attention: Factor
    factors: tuple[Factor, ...]  # of the modules
    bias: Tensor | None  # [D], or None


def _as_sum(
    run: _LayerRun, fit: Fit, norm: Normalization | None, attention: Tensor | None
) -> LayerSum:
    """Give the sum that was fitted, its parts in the order in which they ran, and what they are."""
    pairs = sorted(zip(fit.calls, fit.factors, strict=True),
                  key=lambda part: run.order[id(part[0].module)])  # fmt: skip
    mixes = [mixes_tokens(call, run.inside) for call, _ in pairs]
    if attention is None and len(pairs) >= _MOST:
        mixes = [number == 0 for number in range(len(pairs))]
    parts = (
        LayerPart(call.module, factor, _name(call, run) if mixer else "")
        for (call, factor), mixer in zip(pairs, mixes, strict=True)
    )
    return LayerSum(tuple(parts), fit.residual, fit.attention, norm, fit.bias)


def scale_between(source: Tensor, target: Tensor) -> float | None:
    """Return the number that makes one tensor of another; 1 for none, None where no number does."""
    if close(source, target):
        return 1.0
    a, b = exact(source).flatten(), exact(target).flatten()
    factor = float((a @ b) / (a @ a).clamp_min(1e-30))
    if factor <= 0 or not close(source * factor, target):
        return None
    round_ = (float(f"{factor:.6g}"), 1 / float(f"{1 / factor:.6g}"))  # as configurations have it
    nearest = min(round_, key=lambda number: abs(number - factor))
    return nearest if close(source * nearest, target) else factor


def mixes_tokens(call: ModuleCall, inside: Sequence[ModuleCall]) -> bool:
    """Whether what a module gives at later tokens depends on the first one.

    It runs once more with another first token. Of a normalization it is what made its input.
    """
    call = _behind_norms(call, inside)
    entered = call.entered
    if not isinstance(entered, Tensor):
        return False
    flat = entered.ndim < 3
    changed = entered.clone()
    changed[0 if flat else (0, 0)] = changed[0 if flat else (0, 0)].flip(-1) + 1
    args, kwargs = call.args, dict(call.kwargs)
    if args:
        args = (changed, *args[1:])
    else:
        kwargs["hidden_states"] = changed
    try:
        with torch.no_grad():
            rerun = first_of(call.module(*args, **kwargs))
    except Exception:  # a model's own code, that is run in another way
        return False
    later = rerun.reshape(-1, rerun.shape[-1])[1 : len(call.output)]
    return not close(later, call.output[1:])


def _attended(inside: Sequence[ModuleCall], projection: Tensor) -> Attended:
    """Return what W_O gave, and that behind each RMS normalization that takes it."""
    attended = None
    for call in inside:
        weight = getattr(call.module, "weight", None)
        if isinstance(weight, Tensor) and weight.data_ptr() == projection.data_ptr():
            attended = call.output
    if attended is None:
        return []
    behind: list[tuple[Normalization | None, Tensor]] = [(None, attended)]
    for call in inside:
        got, gave = call.args[0] if call.args else None, call.output
        if isinstance(got, Tensor) and got.numel() >= attended.numel() and gave is not attended:
            first = got.flatten(0, -2)[: len(attended)].to(attended.device)
            matches = first.shape == attended.shape and torch.equal(first, attended)
            norm = normalization(call.module, attended, gave) if matches else None
            if norm is not None and not norm.centred:
                behind.append((norm, gave))
    return behind


def _added(run: _LayerRun) -> LayerSum | None:
    """Attention and one module's output, added as they are or both times one number.

    The module is the outermost, if several gave the same.
    """
    entered, output = run.entered, run.output
    for norm, attention in run.attended:
        for call in run.inside:
            added = call.output
            if added.shape != output.shape or any(torch.equal(added, a) for _, a in run.attended):
                continue
            if close(entered + attention + added, output):
                return LayerSum((LayerPart(call.module),), norm=norm)
            share = scale_between(attention + added, output - entered)
            if share is not None and close(entered + share * (attention + added), output):
                return LayerSum((LayerPart(call.module, share),), attention=share, norm=norm)
    return None


def fitted(
    fixed: Sequence[Tensor], calls: Sequence[ModuleCall], output: Tensor, count: int, form: Form
) -> Fit | None:
    """Modules whose outputs beside the fixed tensors give the output.

    ``fixed``: what entered and what attention gave, [T, D] each; ``output`` [T, D].
    """
    if count == 0 and len(fixed) == 1:  # a layer that adds nothing
        return None
    low = is_low(output.dtype)
    base = [*fixed, torch.ones_like(output)] if form.bias else list(fixed)
    columns = [*base, *(call.output for call in calls), output]
    table = torch.stack([exact(column) for column in columns])  # [n, T, D]
    table = table.permute(2, 0, 1) if form.channels else table.flatten(1)[None]
    gram = table @ table.mT  # [1 or D, n, n]
    choices = list(combinations(range(len(base), len(columns) - 1), count))
    step = max(1, _AT_ONCE // (gram.shape[0] * len(columns) ** 2))
    for first in range(0, len(choices), step):
        chunk = choices[first : first + step]
        rows = torch.tensor([[*range(len(base)), *extra] for extra in chunk])
        for n, factors in _solved(gram, rows.to(gram.device), _REST_LOW if low else _REST):
            chosen = [columns[row] for row in rows[n].tolist()]
            values: list[Factor] = [f if form.channels else float(f[0]) for f in factors.T]
            if not close(weighted(values, chosen), output):
                continue
            values = _rounded(values, chosen, output)
            return Fit(
                tuple(calls[i - len(base)] for i in chunk[n]),
                values[0],
                values[1] if len(fixed) > 1 else 1.0,
                tuple(values[len(base) :]),
                torch.as_tensor(values[len(fixed)]) if form.bias else None,
            )
    return None


def weighted(factors: Sequence[Factor], tensors: Sequence[Tensor]) -> Tensor:
    """Σ f t."""
    return torch.stack([f * exact(t) for f, t in zip(factors, tensors, strict=True)]).sum(0)


def _solved(gram: Tensor, rows: Tensor, limit: float) -> list[tuple[int, Tensor]]:
    """Which choices of tensors give the last one by least squares, with their factors.

    ``gram``: products of all tensors, [G, n, n] for G groups of channels; ``rows`` [C, k], the
    choices; returns: their numbers, and [G, k].
    """
    products = gram[:, rows, rows.new_tensor(gram.shape[-1] - 1)].transpose(0, 1)  # [C, G, k]
    among = gram[:, rows[:, :, None], rows[:, None, :]].transpose(0, 1)  # [C, G, k, k]
    size = among.diagonal(dim1=-2, dim2=-1).clamp_min(1e-30).sqrt()
    scaled = among / size[..., None] / size[..., None, :]
    least = torch.linalg.eigvalsh(scaled)
    sound = (least[..., 0] > _DEPENDENT * least[..., -1]).all(1)
    solutions = []
    for n in torch.nonzero(sound).flatten().tolist():
        factors = torch.linalg.solve(scaled[n], products[n] / size[n]) / size[n]
        total = gram[:, -1, -1]
        remainder = total - (factors * products[n]).sum(-1)
        nonzero = (factors.abs().amax(0) > 1e-3).all()
        if bool(nonzero) and float(remainder.sum()) <= limit * float(total.sum()):
            solutions.append((n, factors))
    return solutions


def _rounded(factors: Sequence[Factor], tensors: Sequence[Tensor], output: Tensor) -> list[Factor]:
    """Factors without the rounding of what they were fitted to, where round numbers fit as well."""

    def left_over(values: Sequence[Factor]) -> float:
        return float((weighted(values, tensors) - exact(output)).square().sum())

    limit = max(4 * left_over(factors), _ALIKE * float(exact(output).square().sum()))
    for digits in (1, 3):
        near = [_near(factor, digits) for factor in factors]
        if left_over(near) <= limit:
            return near
    return list(factors)


def _near(factor: Factor, digits: int) -> Factor:
    if isinstance(factor, float):
        near = float(f"{factor:.{digits}g}")
        return near if abs(near - factor) <= _NEAR * abs(factor) else factor
    return 1.0 if close(factor, torch.ones_like(factor)) else factor


def _behind_norms(call: ModuleCall, inside: Sequence[ModuleCall]) -> ModuleCall:
    """Return the module that made what a normalization got, where that is one."""
    entered = call.entered
    if not isinstance(entered, Tensor) or normalization(call.module, *first_item(call)) is None:
        return call
    first = first_item(call)[0]
    return next((earlier for earlier in inside if earlier.output.shape == first.shape
                 and torch.equal(earlier.output, first)), call)  # fmt: skip


def first_item(call: ModuleCall) -> tuple[Tensor, Tensor]:
    """Return what a module got and gave for the first item, [T, D]."""
    entered: Tensor = call.entered
    first = entered.reshape(-1, entered.shape[-1])[: len(call.output)]
    return first.to(call.output.device), call.output


def _name(call: ModuleCall, run: _LayerRun) -> str:
    """Name a mixer: the class of its module, without the family's name that the layer's has."""
    words, layer_words = (re.findall("[A-Z][a-z0-9]*|[a-z0-9]+", type(module).__name__)
                   for module in (_behind_norms(call, run.inside).module, run.layer))  # fmt: skip
    start = next((n for n, (a, b) in enumerate(zip(words, layer_words, strict=False)) if a != b), 0)
    return "".join(words[start:])


_STEPS = 6  # states that are gone back through


class _Norm(NamedTuple):
    """A normalization on the way, and what it got and gave, [T, D]."""

    module: nn.Module
    norm: Normalization
    entered: Tensor
    output: Tensor


class _Sum(NamedTuple):
    """A sum on the way; with what W_O gave, if that is in it, behind a normalization or none."""

    fit: Fit
    attention: Tensor | None
    behind: Normalization | None


_Steps = list[_Norm | _Sum]


def _normed_sum(run: _LayerRun) -> LayerSum | None:
    """Get what a layer with normalizations over the stream is made of; None where there is none."""
    for steps in _Way(run).back(run.output, _STEPS):
        if any(isinstance(step, _Norm) for step in steps):
            layer_sum = _as_layer(run, steps)
            if layer_sum is not None:
                return layer_sum
    return None


class _Way:
    """The way back from what left a layer to what entered it."""

    def __init__(self, run: _LayerRun) -> None:
        self._attended, self._entered, shape = run.attended, run.entered, run.output.shape
        self._norms: list[_Norm] = []
        for call in run.inside:
            if call.output.shape != shape or not isinstance(call.entered, Tensor):
                continue
            got, gave = first_item(call)
            # a dropout behind a normalization without γ gives what another one would give
            if got.shape == shape and not torch.equal(got, gave):
                norm = normalization(call.module, got, gave)
                if norm is not None:
                    self._norms.append(_Norm(call.module, norm, got, gave))
        normed = [norm.output for norm in self._norms]
        self._parts = run.distinct([run.entered, *(x for _, x in run.attended), *normed])

    def back(self, state: Tensor, depth: int) -> Iterator[_Steps]:
        """Yield the ways to a state, each its steps from first to last; the closest sums first."""
        if torch.equal(state, self._entered):
            yield []
        elif depth:
            for norm in self._norms:
                if torch.equal(norm.output, state):
                    for steps in self.back(norm.entered, depth - 1):
                        yield [*steps, norm]
            for _, base, step in sorted(self._sums(state), key=lambda candidate: candidate[0]):
                for steps in self.back(base, depth - 1):
                    yield [*steps, step]

    def _sums(self, state: Tensor) -> Iterator[tuple[float, Tensor, _Sum]]:
        """Get the sums that a state is: what each leaves, the earlier state in it, and the step."""
        bases = [self._entered]
        bases += [norm.output for norm in self._norms if not torch.equal(norm.output, state)]
        options: list[tuple[Normalization | None, Tensor | None, int]] = [
            (norm, attention, count) for norm, attention in self._attended for count in (0, 1)
        ]
        for base in bases:
            for norm, attention, count in [*options, (None, None, 1)]:
                fixed = [base] if attention is None else [base, attention]
                fit = fitted(fixed, self._parts, state, count, FORMS[0])
                if fit is not None:
                    parts = [*fixed, *(call.output for call in fit.calls)]
                    factors = [*(fit.residual, fit.attention)[: len(fixed)], *fit.factors]
                    error = (weighted(factors, parts) - exact(state)).square().sum()
                    yield float(error), base, _Sum(fit, attention, norm)


def _as_layer(run: _LayerRun, steps: _Steps) -> LayerSum | None:
    """Return the steps as one sum, with what stands where among its normalizations."""
    residual: float = 1.0
    norms: list[_Norm] = []
    heads: set[int] = set()
    mlps: set[int] = set()
    layer = LayerSum(())
    for number, step in enumerate(steps):
        if isinstance(step, _Norm):
            norms.append(step)
            continue
        if number and isinstance(steps[number - 1], _Sum):
            return None
        factor = step.fit.residual
        assert isinstance(factor, float)
        if norms:
            norms[-1] = norms[-1]._replace(norm=_times(norms[-1].norm, factor))
        else:
            residual = factor
        step_sum = _as_sum(run, step.fit, step.behind, step.attention)
        if step.attention is not None:
            heads.add(len(norms))
            layer = replace(layer, attention=step_sum.attention, norm=step_sum.norm)
        for part in step_sum.parts:
            (heads if part.mixer else mlps).add(len(norms))
        layer = replace(layer, parts=(*layer.parts, *step_sum.parts))
    if not _in_order(steps, run.order):
        return None
    counts = [step.attention is not None for step in steps if isinstance(step, _Sum)]
    if len(heads) > 1 or len(mlps) > 1 or (run.attended and sum(counts) != 1):
        return None
    over = StreamNorms(
        tuple(norm.norm for norm in norms), next(iter(heads), 0), next(iter(mlps), 0)
    )
    return replace(layer, residual=residual, over=tuple(norm.module for norm in norms), places=over)


def _in_order(steps: _Steps, order: Mapping[int, int]) -> bool:
    """Whether every normalization ran after those before it on the way, and after what they add."""
    last = -1
    for step in steps:
        if isinstance(step, _Norm):
            if order[id(step.module)] <= last:
                return False
            last = order[id(step.module)]
        else:
            last = max([last, *(order[id(call.module)] for call in step.fit.calls)])
    return True


def _times(norm: Normalization, factor: float) -> Normalization:
    """Return a normalization with what its output is multiplied with."""
    if factor == 1.0:
        return norm
    shift = None if norm.shift is None else norm.shift * factor
    return replace(norm, scale=norm.scale * factor, shift=shift)
