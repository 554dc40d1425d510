"""A module is called in every way it takes, each call is looked at, and what is wrong is mended."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from attnviz.errors import InputError
from attnviz.features.check import module
from attnviz.features.check.anatomy import Attention, Factor, find_softmaxes
from attnviz.features.check.diagnose import Diagnosis, Doctor, Expected
from attnviz.features.check.module import named_base
from attnviz.features.check.result import Bug, ModuleCheck, Verdict
from attnviz.features.check.trace import (
    PRODUCTS,
    VIEWS,
    Node,
    Recorded,
    Trace,
    factors,
    plain_kernels,
)

_MOST_BUGS = 4
_NUMBER = re.compile(r"\d+")  # of a part of a list, whose others are used
_CLOSE = 1e-9
_FORMS = 4  # forms of a mask that are looked at where none blocks as many keys as it should


class Exam(NamedTuple):
    """One call, what was asked of it, and what was seen."""

    call: Recorded
    doctor: Doctor
    result: Diagnosis
    extra: Mapping[str, Any]


def examine(
    subject: module.Subject,
    *,
    heads: int | None = None,
    causal: bool | None = None,
    mask: Any = None,
    step: Callable[[Tensor, int], Any] | None = None,
) -> ModuleCheck:
    """Say which bug a module has, that it has none, or what it fails without a name for it.

    ``step``: gives the output [B, 1, D] of one token [B, 1, D] at a position, with a cache.
    """
    name = type(subject.module).__name__
    exams, notes = [], list(subject.notes)
    try:
        for exam, note in _exams(subject, heads, causal, mask):
            exams.append(exam)
            notes += [note] if note else []
            if exam.result.bugs:
                break
    except _Broken as broken:
        return ModuleCheck(module=name, verdict="bug", bugs=(broken.bug,), notes=tuple(notes))
    last = exams[-1]
    bugs, mended = list(last.result.bugs), None
    if bugs:
        bugs, mended = _with_figures(last)
    else:
        bugs += _structure(last, heads)
    if not bugs and step is not None:
        bugs += _stepped(last, step)
    bugs = _with_unused(subject, last, bugs)
    attentions = [attention for exam in exams for attention in exam.doctor.attentions]
    notes += [note for exam in exams for note in exam.result.notes]
    failed = [test for exam in exams for test in exam.result.failed]
    if not attentions and not bugs:
        failed.append("no softmax was seen between two products of tensors of tokens")
        failed += [reason for exam in exams for reason in exam.doctor.others]
    verdict: Verdict = "bug" if bugs else "unknown" if failed else "right"
    first_map, mended_map = _maps(last, bugs, mended)
    batch, queries, width = last.call.inputs[0].shape
    return ModuleCheck(
        module=name,
        verdict=verdict,
        bugs=tuple(bugs),
        failed=tuple(dict.fromkeys(failed)),
        notes=tuple(dict.fromkeys(notes)),
        heads=_heads(last),
        sizes=(batch, queries, width),
        map=first_map,
        mended_map=mended_map,
    )


class _Broken(Exception):
    """The module raises an error that has a name."""

    def __init__(self, bug: Bug) -> None:
        super().__init__(bug.what)
        self.bug = bug


def _exams(
    subject: module.Subject, heads: int | None, causal: bool | None, mask: Any
) -> Iterator[tuple[Exam, str]]:
    """Yield an exam of each way of calling the module, with what is to be said of it."""
    masked = bool(subject.causal if causal is None else causal)
    through_mask = bool(subject.mask) and mask is None and not subject.causal
    if mask is not None and subject.mask:
        yield _exam(subject, {subject.mask: mask}, Expected(heads, causal, cross=subject.cross)), ""
        return
    if not subject.needs_mask:
        by_itself = masked and not through_mask
        expected = Expected(heads, True if by_itself else None, cross=subject.cross)
        yield _exam(subject, {}, expected), ""
    if subject.mask and mask is None and not subject.cross:
        exam, note = _with_masks(subject, subject.mask, module.mask_forms, heads, masked or None)
        if exam is not None:
            yield exam, note
    if subject.padding and not subject.cross:
        exam, note = _with_masks(subject, subject.padding, module.padding_forms, heads, None)
        if exam is not None:
            yield exam, note


def _exam(subject: module.Subject, extra: Mapping[str, Any], expected: Expected) -> Exam:
    try:
        call = Recorded(lambda inputs: subject.call(inputs, extra), subject.inputs)
    except (Exception, SystemExit) as error:
        raise _named_error(error, subject) from error
    doctor = Doctor(call, replace(expected, base=named_base(subject.module)))
    return Exam(call, doctor, doctor.diagnose(), extra)


def _named_error(error: BaseException, subject: module.Subject) -> Exception:
    """Return an error of the module as the bug that it is, or as the user's input."""
    text = module.one_line(error)
    if "view size is not compatible" in text:
        return _Broken(Bug.of("contiguous"))
    if "scalar types: Long, Int" in text:
        return InputError(
            f"{type(subject.module).__name__} takes token ids, not vectors: check the attention in "
            "it by itself"
        )
    shapes = " and ".join(str(list(x.shape)) for x in subject.inputs)
    return InputError(f"the module cannot be called with {shapes}: {text}")


def _with_masks(
    subject: module.Subject, name: str, forms: Any, heads: int | None, causal: bool | None
) -> tuple[Exam | None, str]:
    """Find a mask's first form that the module reads as it is meant; else the most telling."""
    batch, queries, _ = subject.inputs[0].shape
    keys = subject.inputs[-1].shape[1]
    candidates: list[tuple[int, Exam, str]] = []
    runs = []
    for form, mask, allowed in forms(batch, queries, keys):
        blocked = _blocked(subject, {name: mask})
        if blocked is not None:
            share, axes = blocked
            expected_share = float((~allowed).float().mean())
            runs.append((abs(share - expected_share) > _CLOSE, axes, form, mask, allowed))
    # a mask with an axis too many gives weights one too
    fewest = min((axes for _, axes, *_ in runs), default=0)
    runs = [run for run in runs if run[1] == fewest]
    runs.sort(key=lambda run: run[0])  # first those that block as many keys as they should
    for wrong, _, form, mask, allowed in runs:
        if wrong and len(candidates) >= _FORMS:
            break
        expected = Expected(heads, causal, allowed, subject.cross)
        try:
            exam = _exam(subject, {name: mask}, expected)
        except (InputError, _Broken):
            continue
        if not exam.result.bugs and not exam.result.failed:
            return exam, f"{name} {form}"
        blocks = {bug.name for bug in exam.result.bugs}
        telling = bool(blocks & {"mask after softmax", "fill", "off by one", "mask axis"})
        named = bool(blocks - {"no key", "inverted", "no mask"})
        candidates.append((0 if telling else 1 if named else 2 if not blocks else 3, exam, form))
    if not candidates:
        return None, ""
    candidates.sort(key=lambda entry: entry[0])
    rank, exam, form = candidates[0]
    unread = not any(bug.name not in {"no key", "inverted"} for bug in exam.result.bugs)
    if rank >= 2 and unread and _changes_nothing(subject, [entry[1] for entry in candidates]):
        exam.result.bugs[:] = [Bug.of("mask ignored", mask=name)]
    return exam, f"{name} {form}"


def _blocked(subject: module.Subject, extra: Mapping[str, Any]) -> tuple[float, int] | None:
    """Give the share of weights that are 0 in the first softmax, and its axes; None if none ran."""
    trace = Trace()
    try:
        with plain_kernels(), trace:
            subject.call(subject.inputs, extra)
    except Exception:
        return None
    for node, *_ in find_softmaxes(trace.nodes):
        return float((node.value.abs() < 1e-12).float().mean()), node.value.ndim
    return 0.0, 0


def _changes_nothing(subject: module.Subject, exams: list[Exam]) -> bool:
    """Whether the module gives the same without a mask, or with the first, as with each other."""
    try:
        with torch.no_grad():
            plain = subject.call(subject.inputs, {})
    except Exception:
        if len(exams) < 2:
            return False
        plain = exams[0].call.output
    return all(
        plain.shape == exam.call.output.shape
        and bool(((plain - exam.call.output).abs() < _CLOSE).all())
        for exam in exams
    )


def _heads(exam: Exam) -> int:
    """How many maps an item has."""
    batch, queries, _ = exam.call.inputs[0].shape
    rows = sum(a.met.shape[0] * a.met.shape[1] for a in exam.doctor.attentions)
    return rows // (batch * queries)


def _structure(exam: Exam, heads: int | None) -> list[Bug]:
    """Heads that are too few or the same, and key heads that meet the wrong queries."""
    bugs: list[Bug] = []
    count = _heads(exam)
    one_head = exam.call.output.shape[-1] < exam.call.inputs[0].shape[-1]  # by design
    if heads and count and count < heads and not one_head:
        bugs.append(Bug.of("heads/few", count=count, heads=heads))
    bugs += _repeated(exam)
    for attention in exam.doctor.attentions:
        groups = [_groups(exam, factor) for factor in (attention.keys, attention.values)]
        shared = [g for g in groups if g and 1 < len(set(g)) < len(g)]
        size = len(shared[0]) // len(set(shared[0])) if shared else 0
        if shared and any(g == [n % len(set(g)) for n in range(len(g))] for g in shared):
            bugs.append(Bug.of("tiled", size=size))
        elif len(shared) == 2 and shared[0] != shared[1]:
            bugs.append(Bug.of("tiled/values"))
    return bugs


def _groups(exam: Exam, factor: Factor) -> list[int]:
    """Which key/value head each head of the first item has, told from equal numbers."""
    maps = _first_item(exam, factor)
    return _numbered([[part] for part in maps]) if len(maps) > 1 else []


def _first_item(exam: Exam, factor: Factor) -> list[Tensor]:
    """Take what each head of the first item has of queries, keys or values."""
    batch = exam.call.inputs[0].shape[0]
    if factor.tensor.ndim != 3 or len(factor.tensor) % batch:
        return []
    return list(factor.tensor[: len(factor.tensor) // batch])


def _numbered(heads: list[list[Tensor]]) -> list[int]:
    """Give what heads have numbers, equal ones for equal tensors."""
    first = [
        next(
            n
            for n, earlier in enumerate(heads)
            if all(
                a.shape == b.shape and torch.equal(a, b) for a, b in zip(head, earlier, strict=True)
            )
        )
        for head in heads
    ]
    order = {value: number for number, value in enumerate(dict.fromkeys(first))}
    return [order[value] for value in first]


def _repeated(exam: Exam) -> list[Bug]:
    """Name heads that have the queries, keys and values of another: they share its matrices."""
    heads: list[list[Tensor]] = []
    for attention in exam.doctor.attentions:
        factors_read = attention.queries, attention.keys, attention.values
        sides = [_first_item(exam, factor) for factor in factors_read]
        if len({len(side) for side in sides}) == 1:
            heads += [list(parts) for parts in zip(*sides, strict=True)]
    numbers = _numbered(heads)
    shared = [str(n) for n, number in enumerate(numbers) if numbers.count(number) > 1]
    return [Bug.of("same head", heads=", ".join(shared))] if shared else []


def _with_unused(subject: module.Subject, exam: Exam, bugs: list[Bug]) -> list[Bug]:
    """Return a matrix that takes no part names a bug, or explains one."""
    try:
        names = module.unused(subject, exam.extra)
    except Exception:
        return bugs
    used = {_NUMBER.sub("#", n) for n, _ in subject.module.named_parameters() if n not in names}
    parts = [
        n for n in names
        if any(word in n.lower() for word in module.NAMES["projections"])
        or _NUMBER.sub("#", n) in used
    ]  # fmt: skip
    if not parts:
        return bugs
    lone = ", ".join(parts)
    if not bugs:
        return [Bug.of("unused/matrix", matrix=lone)]
    return [replace(bug, what=f"{bug.what} ({lone} is never used)")
            if bug.name in {"one matrix", "no W_O"} else bug for bug in bugs]  # fmt: skip


def _stepped(exam: Exam, step: Callable[[Tensor, int], Any]) -> list[Bug]:
    """Whether decoding token by token gives what the whole text gives."""
    x = exam.call.inputs[0]
    for position in range(x.shape[1]):
        with torch.no_grad():
            result = step(x[:, position : position + 1], position)
        output = result if isinstance(result, Tensor) else result[0]
        difference = float((output[:, -1] - exam.call.output[:, position]).abs().max())
        if difference > 1e-6 * (1 + float(exam.call.output.abs().max())):
            return [replace(Bug.of("cache", position=position), off=difference)]
    return []


# figures: how far the output is off, and what is left once it is mended


def _with_figures(exam: Exam) -> tuple[list[Bug], Doctor | None]:
    """Return the bugs with how far they put the output off; others that show once these are mended.

    With them the call once all that were seen at first are mended; None where they cannot all be.
    """
    measured: list[Bug] = []
    first: Doctor | None = None
    call, diagnosis = exam.call, exam.result
    changes: dict[int, Any] = {}
    for _ in range(_MOST_BUGS):
        right = right_output(call, exam.doctor.attentions, exam.doctor.expected)
        for bug in diagnosis.bugs:
            mend = diagnosis.changes.get(bug.name) or {}
            off, remaining = None, None
            if mend:
                _, mended = call.run(mend)
                off = _apart(mended, exam.call.output)
                if right is not None and _apart(mended, right) < 1e-6:
                    remaining = _apart(mended, right)
            elif right is not None:
                off = _apart(right, exam.call.output)
            measured.append(replace(bug, off=off, after=remaining))
        if not all(diagnosis.changes.get(bug.name) for bug in diagnosis.bugs):
            return measured, first
        for bug in diagnosis.bugs:
            changes |= diagnosis.changes[bug.name]
        call = Recorded(exam.call.call, exam.call.inputs, dict(changes))
        doctor = Doctor(call, exam.doctor.expected)
        first = first or doctor
        diagnosis = doctor.diagnose()
        names = {bug.name for bug in measured}
        diagnosis.bugs = [bug for bug in diagnosis.bugs if bug.name not in names]
        if not diagnosis.bugs:
            break
    return measured, first


def _apart(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return math.inf
    difference = (a - b).abs()
    finite = difference[difference.isfinite()]
    return float(finite.max()) if finite.numel() else math.inf


def right_output(call: Recorded, attentions: list[Attention], expected: Expected) -> Tensor | None:
    """Compute the right [B, T, D] between the module's own plain matrices; None without these."""
    if len(attentions) != 1:
        return None
    (attention,) = attentions
    sides = attention.sides
    if attention.dim in attention.summed_axes:
        sides = attention.queries, attention.keys
    q, k, v = (_projected(call, factor) for factor in (*sides, attention.values))
    concat = _joined(call, attention.applied)
    if q is None or k is None or v is None or concat is None:
        return None
    width = attention.width
    batch, queries, total = q.shape
    heads, groups = total // width, k.shape[-1] // width
    if heads * width != total or not groups or heads % groups or v.shape[-1] % groups:
        return None
    split = [x.reshape(batch, x.shape[1], -1, n).transpose(1, 2) for x, n in (
        (q, width), (k, width), (v, v.shape[-1] // groups))]  # fmt: skip
    query, key, value = split[0], *(x.repeat_interleave(heads // groups, 1) for x in split[1:])
    scores = query @ key.transpose(-1, -2) / math.sqrt(width)
    if expected.masked is not None:
        mask = expected.masked
        scores = scores.masked_fill(~(mask if mask.ndim == 2 else mask[:, None]), -torch.inf)
    elif expected.causal:
        scores = scores.masked_fill(
            ~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -torch.inf
        )
    z = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, queries, -1)
    if z.numel() != concat.value.numel():
        return None
    _, output = call.run({concat.number: lambda head_outputs: z.reshape(head_outputs.shape)})
    return output


def _projected(call: Recorded, factor: Factor) -> Tensor | None:
    """Return the projection that a factor is made of by views and numbers alone, [B, T, width]."""
    node, tokens = factor.source, call.tokens
    for _ in range(60):
        if node is None or (node.name not in VIEWS | {"mul", "div", "add"} | PRODUCTS):
            return None
        for number, x in enumerate(call.inputs):
            rows = x.shape[0] * x.shape[1]
            if node.value.shape[:-1].numel() != rows:
                continue
            touched = call.touched(node).reshape(len(tokens), rows, -1).any(-1)
            own_tokens = [n for n, t in enumerate(tokens) if t[0] == number]
            if bool((touched[own_tokens] == torch.eye(rows, dtype=torch.bool)).all()):
                return node.value.reshape(*x.shape[:2], -1)
        if node.name in PRODUCTS:
            return None
        moving = call.moving(node)
        if len(moving) != 1:
            return None
        node = node.sources[moving[0]]
    return None


def _joined(call: Recorded, applied: Node) -> Node | None:
    """Get what W_O is multiplied with: the last view of what heads give before a learned matrix."""
    tracked = {id(applied)}
    for node in call.nodes[applied.number + 1 :]:
        inputs = [source for source in node.sources.values() if id(source) in tracked]
        if not inputs:
            continue
        if node.name in PRODUCTS:
            sides = [node.sources.get((slot, 0)) for slot in factors(node)]
            return inputs[0] if inputs[0] in sides else None
        if node.name not in VIEWS:
            return None
        tracked.add(id(node))
    return None


def _maps(
    exam: Exam, bugs: list[Bug], mended: Doctor | None
) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Get the first map of the first item as the module has it, and as it should be; or nothing."""
    if not exam.doctor.attentions or not bugs:
        return (), ()
    attention = exam.doctor.attentions[0]
    weights = attention.met[0]
    mended_map: Tensor | None = None
    changes = {n: c for bug in bugs for n, c in (exam.result.changes.get(bug.name) or {}).items()}
    if changes:
        doctor = mended or Doctor(
            Recorded(exam.call.call, exam.call.inputs, changes), exam.doctor.expected
        )
        mended_map = doctor.attentions[0].met[0] if doctor.attentions else None
    return _listed(weights), () if mended_map is None else _listed(mended_map)


def _listed(weights: Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(round(v, 6) for v in row) for row in weights.nan_to_num().tolist())
