"""What heads write, read out: top words that each raises and lowers, at one position or over many.

A head writes z W_O. Through the last normalization with its σ, and W_U, that is what it adds to
every logit. Over many rows the mean is taken of what the matrix W_U gets, so that it is exact;
which words recur, and whether they stand in the text, is asked row by row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnviz.attention.contributions import Carrying, gain, moved, scaled
from attnviz.captures.trials import (
    Activations,
    answer_texts,
    labels_of,
    predicted,
    read_positions,
    same_as,
)
from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.result import fingerprint
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.weights import Readout
from attnviz.errors import InputError, ModelError
from attnviz.features.lens import result as records
from attnviz.statistics.ratios import ratios

RAISED = 5  # words a row by which strings recur
RECURRING = 10  # of those that are told
AT_ONCE = 1 << 24  # logits that are held at a time: 64 MiB


@dataclass
class _Sums:
    """Of one head, over rows."""

    made: Floats
    norm: float = 0.0
    raised: Counter[int] = field(default_factory=Counter)
    in_text: list[int] = field(default_factory=list)


def run_heads(
    source: Source,
    texts: Sequence[Inputs],
    question: records.LensSettings,
    progress: Callable[[int], None] = lambda count: None,
) -> records.Lens:
    """Return what every head writes at a position of a text, or over the rows of several."""
    readout, layout = source.readout(), source.layout
    if readout.reason:
        raise ModelError(
            f"what a head of {source.info.model} writes cannot be read out: {readout.reason}"
        )
    assert readout.table is not None
    width = readout.table.shape[1]
    sums = {head: _Sums(np.zeros(width)) for head in layout}
    counts: list[int] = []  # rows of each text
    shares_read: list[float] = []
    position = question.position
    if position is None and len(texts) == 1 and labels_of(source) is None:
        position = -1
    for number, inputs in enumerate(texts, 1):
        tokens = predicted(inputs)
        places = read_positions(source, tokens, position, whole_text=True)
        activations = Activations(["written"], layout.sites)
        output = source.forward(
            [inputs],
            [activations],
            ForwardRequest(hidden=False, states=True, mlps=bool(readout.over), terms=True),
        )
        counts.append(len(places))
        shares_read += [len(set(tokens.ids[: n + 1])) / len(readout.table) for n in places]
        stream = output.states[-1][0, places]
        local = readout.converted(stream)
        assert local.table is not None
        carrying = Carrying.at(local, output, (0, places))
        for site, z in activations.values["written"].items():
            out = source.output(site).moved_to(stream)
            assert out.weight is not None
            heads = range(z.shape[1])
            outputs = [arrays.exact(z[0, n, places]) @ arrays.exact(out.weight[n]) for n in heads]
            wrote = arrays.of(z).xp.stack(outputs)  # [H, P, D]
            if (norm := local.after.get(site.layer)) is not None:
                total = wrote.sum(0)
                total = total if out.bias is None else total + arrays.exact(out.bias)
                wrote = wrote * gain(norm, total)
            entering = carrying.passed(site.layer)[0]
            carried = carrying.onward(wrote * local.share(site.layer), site.layer, entering)
            head_sums = [sums[Head(site, index)] for index in heads]
            inputs_of = [scaled(local, stream, part) for part in carried]
            for head, part, vectors in zip(head_sums, carried, inputs_of, strict=True):
                head.made += arrays.to_numpy(vectors.sum(0))
                head.norm += float(arrays.norm(part).sum())
            if sum(counts) > 1 or len(texts) > 1:
                best = _best(local, arrays.of(stream).xp.concatenate(inputs_of))
                for n, head in enumerate(head_sums):
                    for row, query in enumerate(places, n * len(places)):
                        head.raised.update(best[row])
                        head.in_text.append(int(best[row][0] in tokens.ids[: query + 1]))
        progress(number)
    rows = sum(counts)
    if not rows:
        raise InputError("no text to read; give at least one")
    names = [str(predicted(inputs).ids) for inputs in texts]  # the same text counts as one
    shares = _shares(sums, counts, names) if rows > 1 else {}
    return records.Lens(
        source=source.info,
        layout=layout,
        tokens=predicted(texts[0]).texts if len(texts) == 1 else (),
        positions=tuple(places) if len(texts) == 1 else (),
        heads=tuple(
            _writes(source, head, sums[head], rows, question.predictions, shares.get(head))
            for head in layout
        ),
        rows=rows,
        chance=float(np.mean(shares_read)) if rows > 1 else None,
        notes=texts[0].notes if len(texts) == 1 else (),
        texts=len(texts),
        corpus=fingerprint(map(same_as, texts)) if len(texts) > 1 else "",
    )


def _best(readout: Readout, inputs: Array) -> list[list[int]]:
    """Return the words that each row of a layer's heads raises most, the first one most."""
    assert readout.table is not None
    words = len(readout.table)
    rows = max(1, AT_ONCE // words)
    blocks = (moved(readout, inputs[n : n + rows]) for n in range(0, len(inputs), rows))
    return [ids for block in blocks
            for ids in arrays.of(block).largest(block, min(RAISED, words))[1].tolist()]  # fmt: skip


def _shares(
    sums: dict[Head, _Sums], counts: Sequence[int], names: Sequence[str]
) -> dict[Head, records.RowShare]:
    """How often the word that a head raises most stands in the text; texts are independent."""
    ends = np.cumsum(counts)[:-1]
    hits = np.array([[part.sum() for part in np.split(np.array(head_sums.in_text), ends)]
                     for head_sums in sums.values()], float).T  # fmt: skip
    estimate = ratios(hits, np.array(counts, float), names)

    def known(value: float) -> float | None:
        return None if np.isnan(value) else min(max(float(value), 0.0), 1.0)

    joint = not np.isnan(estimate.joint_low).all()
    low, high = (
        (estimate.joint_low, estimate.joint_high) if joint else (estimate.low, estimate.high)
    )
    return {
        head: records.RowShare(float(estimate.value[n]), known(low[n]), known(high[n]))
        for n, head in enumerate(sums)
    }


def _writes(
    source: Source, head: Head, sums: _Sums, rows: int, top: int, share: records.RowShare | None
) -> records.HeadWrites:
    """Return the record of a head."""
    readout = source.readout()
    assert readout.table is not None
    mean = arrays.array(sums.made[None] / rows)
    effect = arrays.to_numpy(moved(readout, arrays.converted(mean, readout.table)))[0]
    ends = []
    for sign in (1, -1):
        best = arrays.top(sign * effect, top)
        texts = answer_texts(source, best)
        ends.append(tuple(records.TokenEffect(text, id_, float(effect[id_]))
                          for text, id_ in zip(texts, best, strict=True)))  # fmt: skip
    often = [(id_, n) for id_, n in sums.raised.most_common(RECURRING) if n > 1]
    texts = answer_texts(source, [id_ for id_, _ in often]) if often else ()
    recurring = tuple(
        records.RecurringToken(text, id_, n / rows)
        for text, (id_, n) in zip(texts, often, strict=True)
    )
    return records.HeadWrites(head, sums.norm / rows, ends[0], ends[1], recurring, share)
