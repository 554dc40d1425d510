"""What papers report, by their protocols: grammar, names, phase changes, what is written."""

from __future__ import annotations

import csv
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

import attnviz as av
from attnviz.statistics.clusters import half_width
from proofs.row import Proof, missing
from tests import ROOT
from tests.features.coref import test_coref
from tests.features.syntax import test_syntax

COMMAND = "python -m proofs papers"
SAMPLES = ROOT / "sample_inputs"
CLARK = {"det": (94.3, 51.7), "obj": (86.8, 40.0), "nsubj": (58.5, 45.5)}
"""Best heads of BERT base on WSJ and best offsets, in %; Stanford's dobj is obj here."""
OFFSETS = ("nsubj", "case", "det", "amod", "compound", "aux", "mark", "advmod", "obj", "nmod",
           "obl", "conj", "xcomp", "advcl")  # fmt: skip
MIXING = {"weights": 96.4, "norm": 85.3, "norm-residual": 22.3, "norm-residual-ln": 18.8}
"""Mixing ratios of BERT base in %, by what is measured (Kobayashi et al. 2021)."""


def rows(small: bool, minilm: str) -> Iterator[Proof]:
    """Every row; of small ones those of the samples."""
    yield dependencies("demo-bert" if small else minilm)
    yield antecedents("demo-bert" if small else minilm)
    yield from phases()
    if small:
        return
    yield from treebank(minilm)
    yield from names(minilm)
    yield from writing(minilm)


def _folder(model: str) -> str:
    from attnviz.models.demo import DEMOS

    return str(DEMOS.get(model, model))


def _called(model: str) -> str:
    return "all-MiniLM-L6-v2" if "/" in model else model


def dependencies(model: str) -> Proof:
    expected = test_syntax.by_hand(_folder(model))
    found = av.syntax(SAMPLES / "treebank.conllu", model=model)
    worst = max(
        float(np.abs(
            np.array([(one.to_head, one.from_head) for one in relation.heads])
            - expected[relation.name].reshape(-1, 2)
        ).max())
        for relation in found.relations
    )  # fmt: skip
    return Proof(
        f"Clark et al.'s protocol (arXiv:1906.04341) on the sample treebank: every head of "
        f"{_called(model)}, {len(found.relations)} relations, both directions",
        "a plain loop over eager transformers in float64", f"max ∣Δ∣ {worst:.1e}", "1e-12",
        worst <= 1e-12, f"{COMMAND}; attnviz syntax sample_inputs/treebank.conllu",
    )  # fmt: skip


def antecedents(model: str) -> Proof:
    expected = test_coref.by_hand(_folder(model))
    found = av.coref(SAMPLES / "pronouns.tsv", model=model).kinds[0].heads
    ours = np.array([(one.to_name, one.from_name) for one in found])
    worst = float(np.abs(ours - expected).max())
    return Proof(
        f"antecedents of the sample's pronouns: every head of {_called(model)}, both directions",
        "a plain loop over eager transformers in float64", f"max ∣Δ∣ {worst:.1e}", "1e-12",
        worst <= 1e-12, f"{COMMAND}; attnviz coref sample_inputs/pronouns.tsv",
    )  # fmt: skip


def treebank(minilm: str) -> Iterator[Proof]:
    path = os.environ.get("ATTNVIZ_EWT")
    whole = "best fixed offsets of 14 relations on UD English EWT (dev)"
    heads = "heads find relations that offsets do not: all-MiniLM-L6-v2 on EWT, held-out half"
    known = ", ".join(f"{name} {a} against {b}" for name, (a, b) in CLARK.items())
    published = f"Clark et al., BERT base on WSJ: {known} %"
    command = f"{COMMAND}; attnviz syntax $ATTNVIZ_EWT --model all-MiniLM-L6-v2"
    if not path:
        why = "a treebank: set ATTNVIZ_EWT to en_ewt-ud-dev.conllu"
        yield missing(whole, "a plain loop over the file", why, command)
        yield missing(heads, published, why, command)
        return
    plain = offsets(Path(path))
    found = {one.name: one for one in av.syntax(path, model=minilm).relations}
    apart = [
        abs(found[name].offset_accuracy - share) + (found[name].offset != offset)
        for name, (offset, share) in plain.items()
    ]
    examples = ", ".join(f"{n} {100 * plain[n][1]:.1f} % ({plain[n][0]:+d})" for n in CLARK)
    yield Proof(
        whole, f"a plain loop over the file: {examples}, ...", f"max ∣Δ∣ {max(apart):.1e}", "1e-9",
        max(apart) < 1e-9, command,
    )  # fmt: skip
    best = {name: found[name].best for name in CLARK}
    said = ", ".join(
        f"{name} {100 * one.accuracy.value:.1f} against {100 * (one.offset_accuracy or 0):.1f}"
        for name, one in best.items()
    )
    margins = ", ".join(
        f"{name} {100 * one.margin.value:+.1f} [{100 * one.margin.low:+.1f}, "
        f"{100 * one.margin.high:+.1f}]"
        for name, one in best.items()
    )
    yield Proof(
        heads, published, f"{said} %", f"margins in points {margins}",
        all(one.margin.low > 0 for one in best.values()), command,
    )  # fmt: skip


def offsets(path: Path) -> dict[str, tuple[int, float]]:
    """Return the best fixed distance to the head of every relation, and how often it is right."""
    distances: dict[str, Counter[int]] = defaultdict(Counter)
    lines = path.read_text("utf-8").splitlines()
    for cells in (line.split("\t") for line in lines if line[:1].isdigit()):
        if cells[0].isdigit() and cells[6] != "0":
            distances[cells[7].split(":")[0]][int(cells[6]) - int(cells[0])] += 1
    best = {name: counts.most_common(1)[0] for name, counts in distances.items()}
    return {
        name: (best[name][0], best[name][1] / distances[name].total())
        for name in OFFSETS
        if name in distances
    }


def names(minilm: str) -> Iterator[Proof]:
    path = os.environ.get("ATTNVIZ_GAP")
    nearer = "the nearer name on GAP (Webster et al. 2018, development)"
    heads = "a head finds names better than rules: all-MiniLM-L6-v2 on GAP, held-out half"
    published = (
        "Clark et al. 2019: 65 % against 27 % for the nearest mention (BERT base, CoNLL-2012)"
    )
    command = f"{COMMAND}; attnviz coref $ATTNVIZ_GAP --model all-MiniLM-L6-v2"
    if not path:
        why = "GAP: set ATTNVIZ_GAP to gap-development.tsv"
        yield missing(nearer, "a plain loop over the file", why, command)
        yield missing(heads, published, why, command)
        return
    right = []
    with open(path, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            a, b = row["A-coref"].upper() == "TRUE", row["B-coref"].upper() == "TRUE"
            if a != b:
                far = [abs(int(row[f"{x}-offset"]) - int(row["Pronoun-offset"])) for x in "AB"]
                right.append((far[0] <= far[1]) == a)
    plain = float(np.mean(right))
    found = av.coref(path, model=minilm).kinds[0]
    ours = next(one.accuracy for one in found.baselines if one.name == "nearest")
    yield Proof(
        nearer, f"a plain loop over {len(right):,} examples: {100 * plain:.2f} %",
        f"{100 * ours:.2f} %", "exact", abs(ours - plain) < 1e-9, command,
    )  # fmt: skip
    best = found.best
    assert best is not None
    rule = best.baseline_accuracy or 0
    yield Proof(
        heads, published, f"{100 * best.accuracy.value:.1f} % against {100 * rule:.1f} %",
        f"margin in points {100 * best.margin.value:+.1f} [{100 * best.margin.low:+.1f}, "
        f"{100 * best.margin.high:+.1f}]", best.margin.low > 0, command,
    )  # fmt: skip


def phases() -> Iterator[Proof]:
    """Films of models trained by ``python -m training.phases`` on Markov chains."""
    two, one = (av.read(SAMPLES / f"phases/markov-{n}.json") for n in (2, 1))
    formed = next(f for f in two.formations if f.role == "induction")
    unigram, bigram = two.baselines["unigram"], two.baselines["bigram"]
    losses = [
        dict(zip(film.steps, film.loss.mean, strict=True)) for film in (two, one) if film.loss
    ]
    start, end, only = losses[0][formed.low], losses[0][two.steps[-1]], losses[1][one.steps[-1]]
    fall = formed.in_context
    assert None not in (fall, start, end, only)
    yield Proof(
        "two layers of attention form an induction head in a phase change of the loss",
        f"Olsson et al. 2022 (arXiv:2209.11895); losses by counts: unigram {unigram:.2f} nats, "
        f"bigram, the best there is, {bigram:.2f}",
        f"loss {start:.2f} before the head 1.0 forms, {end:.2f} at the end; in-context score "
        f"{fall.after - fall.before:+.3f} [{fall.low:+.3f}, {fall.high:+.3f}] while it forms",
        f"formed in steps {formed.low} to {formed.high}, bootstrap over {two.texts} texts",
        abs(start - unigram) < 0.05 and end - bigram < 0.05,
        f"{COMMAND}; attnviz film sample_inputs/phases/markov-2.json",
    )  # fmt: skip
    roles = {role for head in one.heads for found in head.roles for role in found}
    yield Proof(
        "one layer forms none, and its loss stays where counts of single symbols are",
        "Olsson et al. 2022: induction needs two layers",
        f"roles at any step: {', '.join(sorted(roles)) or 'none'}; loss {only:.2f} at the end",
        f"{len(one.steps)} checkpoints",
        not roles & {"induction", "previous"} and unigram - only < only - bigram,
        f"{COMMAND}; attnviz film sample_inputs/phases/markov-1.json",
    )  # fmt: skip


def writing(minilm: str) -> Iterator[Proof]:
    texts = [t for t in (SAMPLES / "sentences.txt").read_text("utf-8").splitlines() if t.strip()]
    model = av.load(minilm)
    found: dict[str, list[float]] = {name: [] for name in MIXING}
    for text in texts:
        for name in ("norm", "norm-residual", "norm-residual-ln"):
            mixing = av.heads(text, model=model, quantity=name).mixing
            found[name].append(float(np.mean([one.layer for one in mixing])))
            if name == "norm":
                found["weights"].append(float(np.mean([one.layer_weights for one in mixing])))
    means = {name: 100 * float(np.mean(values)) for name, values in found.items()}
    order = list(MIXING)
    falls, sure = [], True
    for upper, lower in pairwise(order):
        apart = 100 * (np.array(found[upper]) - np.array(found[lower]))
        half = half_width(len(apart) - 1) * float(apart.std(ddof=1)) / len(apart) ** 0.5
        falls.append(f"{apart.mean():+.1f} ± {half:.1f}")
        sure = sure and apart.mean() - half > 0
    yield Proof(
        f"layers mix less than weights say: all-MiniLM-L6-v2, {len(texts)} texts",
        "Kobayashi et al. 2021 (arXiv:2109.07152), BERT base: weights 96.4 %, norms 85.3, with "
        "residual 22.3, with layer norm 18.8",
        ", ".join(f"{name} {mean:.1f}" for name, mean in means.items()) + " %",
        f"falls in points, paired over texts: {', '.join(falls)}", sure,
        f"{COMMAND}; attnviz heads TEXT --quantity norm-residual-ln",
    )  # fmt: skip
