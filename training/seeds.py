"""Does it hold for another training? ``python -m training.seeds MODEL... -o docs/seeds.json``.

Each model is measured by the commands that docs describe demo-gpt2 with, on the texts that come
with attnviz, so that a model of another seed is held to the same sentences. Heads of a layer have
no order: what is compared is which roles a layer has, and not under which number.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import typer

import attnviz as av
from attnviz.features.knockout.result import Knockout

from .compare import METHODS, Circuit

SAMPLES = Path(__file__).parent.parent / "sample_inputs"
TEXTS = ("story.txt", "sentences.txt")
EDGES = (("last", "follower"), ("follower", "match"), ("last", "match"))
"""Of repeated words: see docs/knockout.md."""
STRONGEST = 10
SHUFFLES = 2000


@dataclass(frozen=True, slots=True)
class Measured:
    """A figure and the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Cut:
    """An edge that was cut in all heads, and in the heads of one layer after the other.

    Attributes:
        change: of the lead in logits; the interval holds together with those of all cuts.
        control: the same where as much weight of other keys was cut at random; None where they have
            less than half of it, or it was not measured so.
        sure: whether it surely differs from its control, or from 0 where there is none.
        layers: the change by the layer in which it was cut.
    """

    change: Measured
    control: float | None
    sure: bool
    layers: list[float]


@dataclass(frozen=True, slots=True)
class TaskCircuit:
    """A circuit for ``induction-swap``, chosen on half of the pairs and judged on the other.

    Attributes:
        heads: its members.
        gap: share of the gap between clean and corrupted that it keeps.
        random: the mean share of as many heads drawn from all.
        most: the largest of those.
    """

    heads: list[str]
    gap: Measured
    random: float
    most: float


@dataclass(frozen=True, slots=True)
class Seed:
    """What one model was found to do.

    Attributes:
        name: of its folder.
        model: the first digits of the hash of its weights.
        shape: heads of each layer.
        previous: heads that look at the token before, on repeated random tokens.
        induction: heads that look at what followed last time, on the same.
        lost: of what the repetition tells, the share that is lost without the previous-token
            heads, by method.
        roles: of every head, by name: the two above, or what it surely does or rests at on
            :data:`TEXTS`; empty for none.
        circuit: of the task ``induction-swap``.
        keys: of the strongest compositions into keys, how many go from a previous-token head to
            an induction head.
        edges: what cutting an edge does, ``last, follower`` and so on.
    """

    name: str
    model: str
    shape: list[int]
    previous: list[str]
    induction: list[str]
    lost: dict[str, Measured]
    roles: dict[str, str]
    circuit: TaskCircuit
    keys: int
    edges: dict[str, Cut]


def measured(model: str) -> Seed:
    """Everything about one model: a minute on one core for demo-gpt2.

    Args:
        model: a folder or a bundled name.
    """
    heads = Circuit(Path(model))
    layout = heads.source.layout
    previous = [layout.name(head) for head in heads.previous]
    induction = [layout.name(head) for head in heads.induction]
    together = {loss.method: loss for loss in heads.lost()[: len(METHODS)]}
    scale = {method: loss.share / loss.nats for method, loss in together.items()}
    lost = {
        method: Measured(loss.share, *_ends(loss.low, loss.high, scale[method]))
        for method, loss in together.items()
    }

    profile = av.profile([SAMPLES / name for name in TEXTS], model=model)
    roles = {
        record["head"]: record["does"] or record["rests"] or "" for record in profile.to_records()
    }
    roles |= dict.fromkeys(induction, "induction") | dict.fromkeys(previous, "previous")

    patched = av.patch(task="induction-swap", circuit="auto", model=model)
    circuit = patched.circuit
    assert circuit is not None
    share = circuit.faithful
    members = TaskCircuit(
        [layout.name(member.head) for member in circuit.members],
        Measured(share.share, *_ends(share.low, share.high)),
        float(np.mean(circuit.random)),
        max(circuit.random),
    )
    edges = av.circuits(model=model)
    pairs = [(edges.layout.name(e.writer), edges.layout.name(e.reader)) for e in edges.of("K")]
    keys = sum(writer in previous and reader in induction for writer, reader in pairs[:STRONGEST])
    cuts = av.knockout(SAMPLES / "repeats.jsonl", window=1, model=model)
    return Seed(
        Path(model).name,
        str(patched.identity["checkpoint"])[:8],
        list(layout.heads["decoder"]),
        previous,
        induction,
        lost,
        roles,
        members,
        keys,
        {", ".join(edge): _cut(cuts, *edge) for edge in EDGES},
    )


def _ends(low: float | None, high: float | None, scale: float = 1.0) -> tuple[float, float]:
    assert low is not None
    assert high is not None
    return low * scale, high * scale


def _cut(cuts: Knockout, rows: str, keys: str) -> Cut:
    effect = cuts.effect(rows, keys)
    change = effect.change
    return Cut(
        Measured(change.value, *_ends(change.joint_low, change.joint_high)),
        effect.control,
        bool(effect.judged.sure),
        [window.change.value for window in cuts.of(rows, keys, "window")],
    )


def agreement(first: Seed, second: Seed) -> tuple[float, float]:
    """Return the share of heads with the same role under the best order within layers; by chance.

    Under the best order the heads of a layer that agree are, role by role, as many as the model
    that has fewer of it has. Chance is the mean where the second model's roles are dealt anew over
    all its heads.
    """
    draw = np.random.default_rng(0)
    ours, theirs = list(first.roles.values()), list(second.roles.values())
    alike = _alike(ours, theirs, first.shape)
    dealt = [
        _alike(ours, [theirs[n] for n in draw.permutation(len(theirs))], first.shape)
        for _ in range(SHUFFLES)
    ]
    return alike, float(np.mean(dealt))


def _alike(ours: Sequence[str], theirs: Sequence[str], shape: Sequence[int]) -> float:
    count, start = 0, 0
    for heads in shape:
        layer = slice(start, start + heads)
        count += (Counter(ours[layer]) & Counter(theirs[layer])).total()
        start += heads
    return count / len(ours)


def markdown(seeds: Sequence[Seed]) -> str:
    """Two tables: what each model does, and how far every two agree."""
    rows = [
        ("weights", [seed.model for seed in seeds]),
        ("previous-token heads", [", ".join(seed.previous) for seed in seeds]),
        ("induction heads", [", ".join(seed.induction) for seed in seeds]),
        *(
            (
                f"lost without the previous-token heads, {method}",
                [_share(seed.lost[method]) for seed in seeds],
            )
            for method in METHODS
        ),
        ("heads of the circuit", [", ".join(seed.circuit.heads) for seed in seeds]),
        ("gap that it keeps", [_share(seed.circuit.gap) for seed in seeds]),
        (
            "as many random heads",
            [f"{seed.circuit.random:.0%}, at most {seed.circuit.most:.0%}" for seed in seeds],
        ),
        (
            f"of the {STRONGEST} strongest edges into keys, previous → induction",
            [str(seed.keys) for seed in seeds],
        ),
        *(
            row
            for names in seeds[0].edges
            for row in (
                (
                    f"cut {names.replace(', ', ' → ')}: change of the lead, logits",
                    [_change(seed.edges[names]) for seed in seeds],
                ),
                ("in layer 0, 1 and so on alone", [_layers(seed.edges[names]) for seed in seeds]),
            )
        ),
    ]
    lines = [_line("", *(seed.name for seed in seeds)), _line(*["---"] * (1 + len(seeds)))]
    lines += [_line(name, *cells) for name, cells in rows]
    lines += ["", _line("models", "heads with the same role", "by chance"), _line(*["---"] * 3)]
    for first, second in combinations(seeds, 2):
        alike, chance = agreement(first, second)
        lines.append(_line(f"{first.name}, {second.name}", f"{alike:.0%}", f"{chance:.0%}"))
    return "\n".join(lines).replace("%", " %")


def _line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _share(share: Measured) -> str:
    return f"{share.value:.0%} [{100 * share.low:.0f}, {100 * share.high:.0f}]"


def _change(cut: Cut) -> str:
    change = cut.change
    star = "*" if cut.sure else ""
    return _logits(f"{change.value:+.1f}{star} [{change.low:+.1f}, {change.high:+.1f}]")


def _layers(cut: Cut) -> str:
    return _logits(", ".join(f"{change:.1f}" for change in cut.layers))


def _logits(words: str) -> str:
    return words.replace("-0.0", "0.0").replace("-", "−")


def read(path: Path) -> list[Seed]:
    """Models that were measured before."""
    return msgspec.json.decode(path.read_bytes(), type=list[Seed])


def main(
    models: Annotated[list[str], typer.Argument(help="folders or bundled names of causal models")],
    out: Annotated[Path, typer.Option("--out", "-o", help="JSON of all figures")],
) -> None:
    """Measure models, write their figures, and print them as the tables of docs/seeds.md."""
    seeds = [measured(model) for model in models]
    out.write_text(json.dumps([asdict(seed) for seed in seeds], indent=1) + "\n", "utf-8")
    typer.echo(markdown(seeds))


if __name__ == "__main__":
    typer.run(main)
