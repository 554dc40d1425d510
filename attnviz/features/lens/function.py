"""``attnviz.lens``: what the states of a text say, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from attnviz.attention.contributions import Carrying, directions, gain
from attnviz.captures import trials
from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import answering
from attnviz.captures.settings import ModelSettings
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, fetched
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Output, Source, Start, tolerance
from attnviz.errors import ModelError, UsageError
from attnviz.features.lens.result import Added, Lens, LensCell, LensSettings, LensToken
from attnviz.features.lens.writes import run_heads

AT_ONCE = 1 << 25  # logits that are held at a time: 128 MiB in float32
_LEAST = -1e30  # in place of the logarithm of 0, which times 0 is 0


@dataclass(frozen=True, eq=False)
class Readings:
    """What n states were read as; k of the words each."""

    ids: Array  # int64 [n, k], the most probable words
    logits: Array  # [n, k], theirs
    probabilities: Array  # [n, k]
    entropy: Array  # [n], in nats
    kl: Array  # [n], D(last ∥ this) in nats
    rank: Array  # int64 [n], of the followed token, from 1
    probability: Array  # [n], of the followed token
    logit: Array  # [n], of the followed token
    difference: float  # the largest difference between the last state's logits and the model's own


def unembedded(source: Source, inputs: Inputs, states: Array, length: int) -> Iterator[Array]:
    """Take logits [m, V] of some states [n, D], one after the other."""
    layers = max(map(source.layout.layers, source.layout.kinds))
    vocabulary = source.vocab_size or 1 << 16
    texts = max(1, AT_ONCE // (vocabulary * length))
    xp, at_once = arrays.of(states).xp, texts * length
    for chunk in (states[first : first + at_once] for first in range(0, len(states), at_once)):
        items = -(-len(chunk) // length)
        missing = items * length - len(chunk)
        padded = xp.concatenate([chunk, xp.broadcast_to(chunk[-1:], (missing, chunk.shape[1]))])
        start = Start(layers, padded.reshape(items, length, -1))
        request = ForwardRequest(hidden=False, logits=True, start=start)
        logits = source.forward([inputs] * items, request=request).logits
        assert logits is not None
        yield arrays.converted(logits, states).reshape(-1, logits.shape[-1])[: len(chunk)]


def readings(
    source: Source,
    inputs: Inputs,
    states: Array,
    model_logits: Array,
    targets: Array,
    *,
    length: int,
    top: int,
) -> Readings:
    """Read states [L + 1, P, D], compared with ``model_logits`` [P, V]; ``targets`` int64 [P]."""
    layers, width, _ = states.shape
    lib = arrays.of(model_logits)
    last = lib.log_softmax(lib.cast(model_logits, lib.float32)).clip(_LEAST)
    shares = lib.xp.exp(last)
    surprise = (shares * last).sum(-1)  # [P], minus the entropy of the last state

    def read(logits: Array, rows: Array) -> tuple[Array, ...]:
        """Return the fields of :class:`Readings`, of logits [m, V] at ``rows``."""
        values, indices = lib.largest(logits, min(top, logits.shape[-1]))
        largest = values[:, :1]
        target = lib.at_indices(logits, targets[rows, None])
        rank = (logits > target).sum(-1) + 1
        logits = logits - largest
        lib.xp.clip(logits, _LEAST, None, out=logits)
        if len(rows) % len(shares) == 0 and not int(rows[0]):
            across = (shares * logits.reshape(-1, *shares.shape)).sum(-1).reshape(-1)
        else:
            across = (shares[rows] * logits).sum(-1)
        powers = lib.xp.exp(logits)
        power = powers.sum(-1)
        log = lib.xp.log(power)
        entropy = log - (powers * logits).sum(-1) / power
        kl = surprise[rows] + log - across
        total = largest + log[:, None]
        return (
            indices, values, lib.xp.exp(values - total), entropy, kl.clip(0), rank,
            lib.xp.exp(target - total)[:, 0], target[:, 0],
        )  # fmt: skip

    blocks, start, difference = [], 0, 0.0
    for logits in unembedded(source, inputs, states.reshape(layers * width, -1), length):
        rows = lib.arange(start, start + len(logits), lib.int64, model_logits) % width
        final = max((layers - 1) * width - start, 0)
        if final < len(logits):
            deviations = logits[final:] - model_logits[rows[final:]]
            difference = max(difference, float(abs(deviations[lib.xp.isfinite(deviations)]).max()))
        start += len(logits)
        blocks.append(read(lib.cast(logits, lib.float32), rows))
    _check_states(source, difference, model_logits)
    columns = [lib.xp.concatenate(parts) for parts in zip(*blocks, strict=True)]
    return Readings(*columns, difference=difference)  # type: ignore[misc]


def _check_states(source: Source, difference: float, logits: Array) -> None:
    """ModelError where the last state's logits are further off than rounding explains."""
    finite = logits[arrays.of(logits).xp.isfinite(logits)]
    allowed = tolerance(source) * max(1.0, float(abs(finite).max()))
    if not difference <= allowed:
        raise ModelError(
            f"the last layer of {source.info.model} reads up to {difference:.2g} off the model's "
            "own logits: its states are not shown, since they cannot be read position by position"
        )


def at(states: Sequence[Array], places: Sequence[int]) -> Array:
    """States [L + 1, P, D] at some positions, of those [1, T, D] of one text."""
    lib = arrays.of(states[0])
    rows = lib.asarray(list(places), lib.int64, states[0])
    return lib.xp.stack([arrays.converted(state, states[0])[0][rows] for state in states])


def added(
    source: Source,
    output: Output,
    places: Sequence[int],
    states: Array,
    outputs: Mapping[Site, Array],
    tokens: Array,
    logits: Array,
) -> Iterator[Added]:
    """Take one logit of every state [L + 1, P, D] apart, state by state.

    ``outputs`` [P, H, d_v] by layer, the heads' outputs; ``tokens``: int64 [(L + 1) P], whose
    logit; ``logits``: as they were read.
    """
    names = iter(trials.answer_texts(source, tokens.tolist()))
    tokens, logits = (table.reshape(states.shape[:2]) for table in (tokens, exact(logits)))
    mlps = at(output.mlps, places)
    mixers = {layer: part[0, places] for layer, part in output.mixers.items()}
    lib, readout, split = arrays.of(states), source.readout().converted(states), list[Array]()
    carrying = Carrying.at(readout, output, (0, places))
    for index, state in enumerate(states):
        toward, constants = directions(readout, state, tokens[index])
        zeros = lib.xp.zeros_like(constants)
        sums, below, heads = [constants, zeros, zeros, zeros], exact(state), zeros[:, None][:, :0]
        if index:
            layer, site = index - 1, source.layout.sites[index - 1]
            below, bias = exact(states[layer]), zeros
            if readout.residual_scales:
                below = below * readout.residual_scales[layer]
            attended, fed = (carrying.inside(toward, layer, n) for n in carrying.passed(layer))
            if site in outputs:
                heads, bias = _of_heads(source, site, outputs[site], attended)
            if layer in readout.biases:
                bias = bias + toward @ exact(readout.biases[layer])
            shift = carrying.shifts(toward, layer)
            bias = bias if shift is None else bias + shift
            parts = ((mlps[layer], fed), (mixers.get(layer), attended))
            sums[1:] = [bias, *(zeros if part is None else (exact(part) * direction).sum(-1)
                                for part, direction in parts)]  # fmt: skip
            toward = carrying.inside(toward, layer)
        columns = lib.xp.stack([(below * toward).sum(-1), *sums], 1)
        split += [columns.sum(-1) + heads.sum(-1), logits[index], columns, heads]
    numbers = iter(fetched(split))
    for totals, read, *terms in zip(*[numbers] * 4, strict=True):
        _check(source, float((abs(totals - read) / abs(read).clip(1.0)).max()))
        rows = zip(totals.tolist(), *(part.tolist() for part in terms), strict=True)
        for total, (first, constant, bias_, mlp, mixer), by_head in rows:
            yield Added(next(names), total, first, tuple(by_head), bias_, mlp, constant, mixer)


def _of_heads(source: Source, site: Site, outputs: Array, toward: Array) -> tuple[Array, Array]:
    """Sum in float64 what heads [P, H, d_v] add ``toward`` [P, D]: [P, H], and b_O's part [P]."""
    out, lib = source.output(site).moved_to(outputs), arrays.of(outputs)
    assert out.weight is not None
    heads, size, width = out.weight.shape
    readout = source.readout().converted(outputs)
    norm = readout.after.get(site.layer)
    if norm is not None:
        flat = exact(out.weight).reshape(heads * size, width)
        written = exact(outputs.reshape(len(outputs), -1)) @ flat
        written = written if out.bias is None else written + exact(out.bias)
        toward = toward * gain(norm, written)
    toward = toward * readout.share(site.layer)
    along = arrays.converted(lib.cast(toward, lib.float32), outputs)
    along = along @ lib.cast(out.weight, lib.float32).reshape(-1, width).T
    added = (exact(outputs) * exact(along.reshape(-1, heads, size))).sum(-1)
    bias = lib.xp.zeros_like(added[:, 0]) if out.bias is None else toward @ exact(out.bias)
    return added, bias


def _check(source: Source, deviation: float) -> None:
    """ModelError where sums are not the logits that were read."""
    if not deviation <= tolerance(source):
        raise ModelError(
            f"what the layers of {source.info.model} add is up to {deviation:.2g} off "
            "the logits that their states are read as: it is not shown; an ablated head cannot be "
            "split"
        )


def run(source: Source, inputs: Inputs, question: LensSettings) -> Lens:
    """Read every state of a text."""
    tokens = trials.predicted(inputs)
    places = trials.read_positions(source, tokens, question.position, whole_text=True)
    answer = None if question.answer is None else trials.one_token(source, question.answer)
    reason = source.readout().reason
    activations = trials.Activations(["written"], () if reason else source.layout.sites)
    output = source.forward(
        [inputs],
        () if reason else [activations],
        ForwardRequest(hidden=False, logits=True, states=True, mlps=not reason, terms=not reason),
    )
    if output.logits is None:
        raise ModelError(f"{source.info.model} gave no logits")
    final = output.logits[0, places]
    lib = arrays.of(final)
    targets = (
        final.argmax(-1) if answer is None else lib.full((len(final),), answer, lib.int64, final)
    )
    states = at(output.states, places)
    reading = readings(
        source, inputs, states, final, targets, length=len(tokens),
        top=min(question.predictions, final.shape[-1]),
    )  # fmt: skip
    parts: Sequence[Added | None] = [None] * len(reading.rank)
    if not reason:
        split = reading.ids[:, 0] if answer is None else lib.xp.tile(targets, (len(states),))
        values = reading.logits[:, 0] if answer is None else reading.logit
        heads = {
            site: z[0].swapaxes(0, 1)[places] for site, z in activations.values["written"].items()
        }
        parts = list(added(source, output, places, states, heads, split, values))
    masked, texts = trials.is_masked(source), tokens.texts
    follows = not masked and trials.labels_of(source) is None
    following = (*texts[1:], "")
    return Lens(
        source=source.info,
        layout=source.layout,
        tokens=texts,
        masked=masked,
        positions=tuple(places),
        token="" if answer is None else trials.answer_texts(source, [answer])[0],
        followed=trials.answer_texts(source, targets.tolist()),
        next=tuple(following[n] for n in places) if follows else (),
        cells=_cells(source, reading, places, parts),
        difference=reading.difference,
        reason=reason,
        notes=(*inputs.notes, *_of_labels(source)),
        texts=1,
    )


def _cells(
    source: Source, reading: Readings, places: Sequence[int], parts: Sequence[Added | None]
) -> tuple[LensCell, ...]:
    """Return the readings as records."""
    distinct = sorted(set(reading.ids.reshape(-1).tolist()))
    names = dict(zip(distinct, trials.answer_texts(source, distinct), strict=True))
    columns = (reading.ids, reading.logits, reading.probabilities, reading.entropy, reading.kl,
               reading.rank, reading.probability)  # fmt: skip
    cells = []
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for index, (ids, logits, shares, entropy, kl, rank, share) in enumerate(rows):
        state, number = divmod(index, len(places))
        top = tuple(
            LensToken(names[id_], id_, logit, probability)
            for id_, logit, probability in zip(ids, logits, shares, strict=True)
        )
        layer = state - 1 if state else None
        cells.append(LensCell(layer, places[number], top, entropy, kl, rank, share, parts[index]))
    return tuple(cells)


def _of_labels(source: Source) -> tuple[str, ...]:
    """Say where a classifier's labels are no shares of one."""
    labels = trials.labels_of(source)
    if labels is None or labels.shares == "softmax":
        return ()
    reason = "may hold together" if labels.shares == "sigmoid" else "are numbers, not classes"
    return (
        f"The labels of this model {reason}: probabilities here are a softmax over its outputs, to "
        "compare them, and not what it says of each by itself.",
    )


@interface
def lens(
    text: Input | Iterable[Input],
    *,
    settings: LensSettings,
    model: ModelSettings,
    progress: Callable[[int], None] = lambda done: None,
) -> Lens:
    """Read the state after every layer as if it were the last: what each layer already knows.

    Every state [D] goes through the last normalization and the LM head of the model itself; the
    last one gives the model's own logits, which is checked at every run (1e-4 of the largest, 0.05
    in half precision). Beside the words stand the entropy and D(last ∥ this), both in nats. Of an
    encoder-decoder model the decoder is read, of a masked model the state at each mask.

    Args:
        text: a text or prompt; with ``by="head"`` also several.
        progress: called with how many texts are done, where heads are read.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError for a model without an LM head, or one
            whose states cannot be read.

    Source:
        nostalgebraist 2020, "interpreting GPT: the logit lens"; of single heads Elhage et al. 2021,
        "A Mathematical Framework for Transformer Circuits". No lens is trained (Belrose et al.
        2023, arXiv:2303.08112, do that).
    """
    lacks = "holds no states, since those need the model"
    prompts, model = prompts_of(text, lacks, model)
    if settings.by == "layer" and len(prompts) != 1:
        raise UsageError(
            "layers are read on one text, and there are {}; give one, or read what heads write on "
            "all of them with {by}",
            len(prompts),
            by="head",
        )
    source = answering(model.load())
    inputs = [source.prepare(prompt) for prompt in prompts]
    if source.no_logits:
        raise ModelError(f"{source.info.model} predicts no words: {source.no_logits}")
    if settings.by == "head":
        result = run_heads(source, inputs, settings, progress)
    else:
        result = run(source, inputs[0], settings)
    return replace(result, identity=model.identity)
