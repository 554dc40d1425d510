"""Heads row by row: every figure by loops over whole maps, planted behaviours, the same bits."""

from __future__ import annotations

import io
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import GPT2LMHeadModel

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.source import PLAIN, ForwardRequest, Observer, Rows
from attnviz.corpus import conllu
from attnviz.corpus.conllu import Sentence
from attnviz.corpus.relations import CLASSES, CONDITIONS, RELATIONS
from attnviz.errors import AttnvizError, SelectionError, UsageError
from attnviz.features.profile import run, saved, tasks, work
from attnviz.features.profile.description import row_parts
from attnviz.features.profile.parts import HeadDistribution
from attnviz.features.profile.result import Profile
from attnviz.features.profile.sampled import described, rules, sample
from attnviz.features.profile.sampled.sample import ROWS, RowSample, hashes
from attnviz.features.profile.words import ONLY_POSITION, headline
from attnviz.models.demo import DEMOS
from attnviz.scoring.axes import is_punctuation
from tests.checkpoints import write
from tests.features.profile.corpus import lines, sentences
from tests.features.profile.test_bits import content

pytestmark = pytest.mark.usefixtures("remembering")
TEXTS = sentences(16)
JOINED = [" ".join(some) for some in zip(*[iter(sentences(120))] * 3, strict=True)]
"""As many rows as of 120 texts, in fewer passes."""
HEADS = {"demo-gpt2": "1.4, 2.0, 3.0", "demo-bert": "0.1, 2.1"}
BINS = 0.008
"""The width of a bin, relative."""


@pytest.fixture(scope="module", params=list(HEADS))
def both(request, tmp_path_factory) -> tuple[Profile, list[Capture], Any]:
    """A profile with heads row by row, the maps of its texts, and its state."""
    folder = tmp_path_factory.mktemp("rows")
    path, state = lines(folder / "texts.txt", TEXTS), folder / "rows.profile"
    source = av.load(request.param)
    profile = av.profile(path, model=source, select=HEADS[request.param], state=state)
    captures = [av.capture(text, model=source) for text in TEXTS]
    return profile, captures, saved.read(state)


def counted(capture: Capture, head: Head) -> list[int]:
    """The rows that count."""
    tokens = capture.sides(head).queries
    first = 1 if head.site.kind == "decoder" else 0
    return [i for i in range(first, len(tokens)) if not tokens.special[i]]


def classes(capture: Capture, head: Head) -> list[str]:
    """The class of every token, one at a time."""
    tokens, named = capture.sides(head).queries, []
    for i, text in enumerate(tokens.texts):
        plain = text.strip().removeprefix("##")
        if i == 0:
            named.append("first")
        elif tokens.special[i]:
            named.append("special")
        elif is_punctuation(text):
            named.append("punctuation")
        elif plain.isnumeric():
            named.append("digit")
        else:
            inside = tokens.words[i] == tokens.words[i - 1]
            named.append("continuation" if inside else "initial")
    return named


def keys_of(row: int, length: int, head: Head) -> range:
    return range(row + 1) if head.site.kind == "decoder" else range(length)


def test_deciles_are_those_of_all_rows(both) -> None:
    profile, captures, _ = both
    for one in profile.distribution.heads:
        tops = sorted(
            float(capture[one.head][row].max())
            for capture in captures
            for row in counted(capture, one.head)
        )
        n = len(tops)
        assert profile.distribution.rows == n
        for place, decile in enumerate(one.deciles["weight"]):
            assert decile.rows == pytest.approx(n / 10)
            assert decile.low == pytest.approx(tops[int(place * n / 10)], rel=BINS)
            last = tops[math.ceil((place + 1) * n / 10) - 1]
            assert decile.high == pytest.approx(last, rel=BINS)
            assert len(decile.examples) == min(12, len(decile.examples))
            for example in decile.examples:
                weight = one.rows[example].weight
                assert decile.low * (1 - BINS) <= weight <= decile.high * (1 + BINS)
        assert sum(decile.written for decile in one.deciles["weight"]) == pytest.approx(1)
        sizes = {len(decile.examples) for decile in one.deciles["weight"]}
        assert min(sizes) >= 8  # of 12, with all rows in the sample


def test_rows_are_those_of_the_maps(both) -> None:
    profile, captures, _ = both
    distribution = profile.distribution
    for one in distribution.heads:
        assert one.rows
        for row in one.rows:
            text = distribution.texts[row.text]
            capture = captures[text.number - 1]
            weights = capture[one.head][row.row]
            tokens = capture.sides(one.head).queries
            assert text.tokens == tokens.texts
            assert row.key == int(weights.argmax())
            assert row.weight == pytest.approx(float(weights.max()), abs=1e-5)
            assert np.allclose(np.array(row.weights) / 1000, weights, atol=6e-4)
            assert row.key_token == tokens.texts[row.key]


def test_norms_are_those_of_norm_based_maps(both) -> None:
    profile, _, _ = both
    distribution = profile.distribution
    model = av.load(profile.source.model)
    captured = cache(partial(av.capture, model=model, quantity="norm"))
    for one in distribution.heads:
        for row in one.rows[:8]:
            text = TEXTS[distribution.texts[row.text].number - 1]
            norms = captured(text)[one.head][row.row]
            assert row.norm == pytest.approx(float(norms.max()), rel=1e-4)


def test_weight_by_class_adds_up_like_a_loop(both) -> None:
    profile, captures, _ = both
    for one in profile.distribution.heads:
        weight: defaultdict[tuple[str, str], float] = defaultdict(float)
        uniform: defaultdict[tuple[str, str], float] = defaultdict(float)
        rows: Counter[str] = Counter()
        for capture in captures:
            names, map_ = classes(capture, one.head), capture[one.head]
            tokens = capture.sides(one.head).queries
            for i in counted(capture, one.head):
                rows[names[i]] += 1
                keys = keys_of(i, len(names), one.head)
                for j in keys:
                    again = tokens.ids[j] in tokens.ids[:j] and not tokens.special[j]
                    for name in [names[j], *(["repeated"] if again else [])]:
                        weight[names[i], name] += float(map_[i, j])
                        uniform[names[i], name] += 1 / len(keys)
        said = {(cell.query, cell.key): cell for cell in one.classes}
        assert set(said) == set(uniform)
        for cell, entry in said.items():
            assert entry.rows == rows[cell[0]]
            assert entry.weight == pytest.approx(weight[cell] / rows[cell[0]], abs=1e-5)
            assert entry.uniform == pytest.approx(uniform[cell] / rows[cell[0]], abs=1e-9)


def test_entropy_and_the_sink_along_the_text(both) -> None:
    profile, captures, _ = both
    for one in profile.distribution.heads:
        sums: defaultdict[int, list[tuple[float, float]]] = defaultdict(list)
        for capture in captures:
            tokens, map_ = capture.sides(one.head).queries, capture[one.head].astype(float)
            for i in counted(capture, one.head):
                bits = -sum(w * math.log2(w) for w in map_[i] if w > 0)
                sink = sum(w for j, w in enumerate(map_[i]) if j == 0 or tokens.special[j])
                sums[(i + 1).bit_length() - 1].append((bits, sink))
        assert [stretch.rows for stretch in one.along] == [len(sums[n]) for n in sorted(sums)]
        for stretch, n in zip(one.along, sorted(sums), strict=True):
            assert stretch.first <= stretch.last
            assert (stretch.first + 1).bit_length() - 1 == n
            means = np.array(sums[n]).mean(0)
            assert stretch.entropy == pytest.approx(means[0], abs=1e-4)
            assert stretch.sink == pytest.approx(means[1], abs=1e-5)


def test_pairs_are_counted_as_a_loop_counts_them(both) -> None:
    profile, captures, _ = both
    for one in profile.distribution.heads:
        count: Counter[tuple[str, str]] = Counter()
        expected: defaultdict[tuple[str, str], float] = defaultdict(float)
        for capture in captures:
            texts, map_ = capture.sides(one.head).queries.texts, capture[one.head]
            for i in counted(capture, one.head):
                count[texts[i], texts[int(map_[i].argmax())]] += 1
                keys = keys_of(i, len(texts), one.head)
                for j in keys:
                    expected[texts[i], texts[j]] += 1 / len(keys)
        assert one.pairs
        for pair in one.pairs:
            exact = count[pair.query, pair.key]
            assert exact <= pair.rows <= exact + one.pair_error
            assert pair.expected == pytest.approx(expected[pair.query, pair.key], abs=0.2)
            assert pair.lift == pair.rows / pair.expected


def test_relations_are_what_they_say(both) -> None:
    """Each relation of the keys of sampled rows, worked out for one key at a time."""
    profile, captures, _ = both
    for one in profile.distribution.heads:
        for row in one.rows:
            capture = captures[profile.distribution.texts[row.text].number - 1]
            tokens, i, j = capture.sides(one.head).queries, row.row, row.key
            ids, names = tokens.ids, classes(capture, one.head)
            sink = j == 0 or tokens.special[j]
            holds = {
                "first": j == 0, "self": j == i, "previous": j == i - 1, "next": j == i + 1,
                "induction": 0 < j <= i - 2 and ids[j - 1] == ids[i] and not sink,
                "duplicate": j <= i - 2 and ids[j] == ids[i] and not sink,
                "before-copy": j <= i - 2 and ids[j + 1] == ids[i] and not sink,
                "separator": j > 0 and tokens.separators[j], "special": tokens.special[j],
                "punctuation": names[j] == "punctuation",
                "continuation": names[j] == "continuation",
                "repeated": ids[j] in ids[:j] and not sink, "local": abs(i - j) <= 2 and not sink,
            }  # fmt: skip
            for name, value in holds.items():
                assert (name in row.relations) == value, (name, i, j, tokens.texts)


def test_planes_are_those_of_a_singular_value_decomposition(both) -> None:
    """The corpus is smaller than the sample, so that its vectors are all there."""
    profile, _, state = both
    sample = state.tally.rows.sample
    assert len(sample.whole) == profile.distribution.rows < ROWS
    for number, one in enumerate(profile.distribution.heads):
        assert set(one.planes) == {"q", "k", "v", "z"}
        for name, plane in one.planes.items():
            x = np.array(
                [sample.whole[int(bits)].vectors[name][number] for bits in sample["hash"]], float
            )
            _, sizes, right = np.linalg.svd(x - x.mean(0), full_matrices=False)
            shares = sizes**2 / (sizes**2).sum()
            assert plane.kept == pytest.approx(shares[:2].tolist(), rel=1e-6)
            at = (x - x.mean(0)) @ right[:2].T
            assert np.allclose(abs(np.array(plane.points)), abs(at), atol=1e-3 * abs(at).max())


def exact() -> GPT2LMHeadModel:
    """transformers' demo-gpt2."""
    how = {"attn_implementation": "eager", "dtype": torch.float64}
    return GPT2LMHeadModel.from_pretrained(DEMOS["demo-gpt2"], **how).eval().requires_grad_(False)


def test_queries_keys_and_outputs_are_the_models_own() -> None:
    """Against transformers in float64: z, q, k and v of one row, and what it adds to the logits."""
    source = av.load("demo-gpt2")
    profile = av.profile(texts=TEXTS[5:9], model=source, select="2.0")
    one, texts = profile.distribution.heads[0], profile.distribution.texts
    model = exact()
    heads, width = model.config.n_head, model.config.n_embd
    d = width // heads
    block = model.transformer.h[2]
    row = next(row for row in one.rows if row.next is not None)
    text = texts[row.text]
    ids = torch.tensor(
        [source.prepare(av.Prompt(TEXTS[5 + text.number - 1])).sides["decoder"].queries.ids]
    )
    seen: dict[str, torch.Tensor] = {}
    block.attn.c_proj.register_forward_pre_hook(lambda _, inputs: seen.update(z=inputs[0]))
    model.transformer.ln_f.register_forward_pre_hook(lambda _, inputs: seen.update(x=inputs[0]))
    model(ids)
    z = seen["z"][0, row.row, :d]
    part = z @ block.attn.c_proj.weight[:d]
    assert row.written == pytest.approx(part.norm().item(), rel=1e-4)
    x = seen["x"][0, row.row]
    sigma = (x.var(unbiased=False) + model.transformer.ln_f.eps).sqrt()
    made = (part - part.mean()) / sigma * model.transformer.ln_f.weight
    rises = model.lm_head.weight @ made
    rises = rises - rises.mean()
    assert row.added == pytest.approx(float(rises[ids[0, row.row + 1]]), abs=1e-3)
    assert row.raises == source.tokens(rises.topk(5).indices.tolist()).texts
    assert row.lowers == source.tokens((-rises).topk(5).indices.tolist()).texts


def test_effects_are_derivatives_of_the_loss() -> None:
    """By differences: the output of one head at one position scaled by 1 - ε, in float64."""
    source = av.load("demo-gpt2")
    text = "the cat sat on a mat and the cat sat on a mat"
    profile = av.profile(texts=[text], model=source, select="3.0")
    one = profile.distribution.heads[0]
    model = exact()
    d = model.config.n_embd // model.config.n_head
    ids = torch.tensor([source.prepare(av.Prompt(text)).sides["decoder"].queries.ids])
    place, shrunk = 0, 0.0

    def scale(_: Any, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        z = inputs[0].clone()
        z[0, place, :d] *= 1 - shrunk
        return (z,)

    def loss() -> float:
        logits = model(ids).logits[0, :-1]
        return float(torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum"))

    model.transformer.h[3].attn.c_proj.register_forward_pre_hook(scale)
    effects = []
    for row in one.rows:
        place, shrunk = row.row, 1e-4
        more, shrunk = loss(), -1e-4
        effects.append((more - loss()) / 2e-4)
    said = [row.effect for row in one.rows]
    assert said == pytest.approx(effects, abs=1e-3)
    assert max(map(abs, said)) > 0.05


def test_effects_of_a_fair_sample_are_those_of_all_rows(monkeypatch, tmp_path, both) -> None:
    """Of rows drawn by their bits alone: the same figures, and a mean that is no other."""
    profile, _, state = both
    every = state.tally.rows.sample
    effects = every["values"][..., 2]
    if profile.source.model != "demo-gpt2":
        assert np.isnan(effects).all()
        return
    few, path = 60, tmp_path / "few.profile"
    for module in (sample, work, described, saved):
        monkeypatch.setattr(module, "WHOLE", few)
    asked = {"model": "demo-gpt2", "select": HEADS["demo-gpt2"], "state": path}
    found = av.profile(lines(tmp_path / "texts.txt", TEXTS), **asked)
    assert (found.distribution.whole, found.distribution.rows) == (few, len(every))
    drawn = saved.read(path).tally.rows.sample
    assert (drawn["hash"] == every["hash"]).all()
    assert np.array_equal(drawn["values"][:few, :, 2], effects[:few])
    assert np.isnan(drawn["values"][few:, :, 2]).all()
    for number, head in enumerate(found.distribution.heads):
        assert all(decile.rows == few / 10 for decile in head.deciles["effect"])
        low = head.deciles["effect"][0].low
        assert low == pytest.approx(effects[:few, number].min(), rel=BINS)
    z = (effects[:few].mean(0) - effects.mean(0)) / (effects.std(0) / few**0.5)
    assert abs(z).max() < 3


class Planted:
    """A model, one head of which attends as ``weights`` of a text's ids, [T, T], says."""

    def __init__(self, source: Any, head: Head, weights: Any) -> None:
        self._source, self._head, self._weights = source, head, weights

    @property
    def light(self) -> Planted:
        return Planted(self._source.light, self._head, self._weights)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    def forward(
        self,
        batch: Sequence[Any],
        observers: Sequence[Observer] = (),
        request: ForwardRequest = PLAIN,
    ) -> Any:
        planted = self

        class Changed:
            def __init__(self, observer: Observer) -> None:
                self._observer = observer

            def observe(self, rows: Rows) -> None:
                if rows.site == planted._head.site:
                    weights = np.array(rows.weights)
                    for n, item in enumerate(batch):
                        own = planted._weights(item.sides["decoder"].queries.ids)
                        some = own[rows.start : rows.start + weights.shape[2]]
                        cut = some[:, rows.key_start : rows.key_start + weights.shape[3]]
                        weights[n, planted._head.index, : len(cut), : cut.shape[1]] = cut
                    rows = replace(rows, weights=weights, logits=None)
                self._observer.observe(rows)

        return self._source.forward(batch, [Changed(each) for each in observers], request)


def repeated_words(count: int = 20, length: int = 12) -> list[str]:
    """Different words, and the same ones again."""
    words = ["cat", "dog", "river", "moon", "stone", "bread", "house", "tree", "road", "hand"]
    words += ["door", "book", "fire", "king", "table"]
    rng = np.random.default_rng(5)
    return [
        " ".join([*some, *some])
        for some in (rng.permutation(words)[:length].tolist() for _ in range(count))
    ]


def mixed(ids: Sequence[int], *, by_chance: bool) -> np.ndarray:
    """Previous token for half of the rows, induction for the others."""
    map_ = np.zeros((len(ids), len(ids)), np.float32)
    map_[0, 0] = 1
    for i in range(1, len(ids)):
        earlier = [j for j in range(i) if ids[j] == ids[i] and j + 1 <= i - 2]
        coin = hash((ids[i], ids[i - 1], i)) % 2
        follows = bool(earlier) and (not by_chance or coin)
        map_[i, earlier[-1] + 1 if follows and earlier else i - 1] = 0.9
        map_[i, 0] += 0.1
    return map_


@cache
def by_chance(*texts: str) -> HeadDistribution:
    """A head that is mixed by chance, on some texts."""
    return planted(partial(mixed, by_chance=True), texts)


def planted(weights: Any, texts: Sequence[str]) -> HeadDistribution:
    source = av.load("demo-gpt2")
    head = source.layout.head("1.2")
    model = Planted(source, head, weights)
    profile = av.profile(texts=list(texts), model=model, select="1.2", effects=False)
    return profile.distribution[head]


def test_a_planted_mixed_head_is_two_behaviours_with_the_right_shares() -> None:
    texts = repeated_words()
    one = planted(lambda ids: mixed(ids, by_chance=False), texts)
    source, again, total = av.load("demo-gpt2"), 0, 0
    for text in texts:
        ids = source.prepare(av.Prompt(text)).sides["decoder"].queries.ids
        map_ = mixed(ids, by_chance=False)
        again += sum(int(map_[i].argmax()) != i - 1 for i in range(1, len(ids)))
        total += len(ids) - 1
    shares = one.behaviours.shares
    assert list(shares) in (["previous", "induction"], ["induction", "previous"])
    assert shares["induction"].value == pytest.approx(again / total, abs=0.05)
    assert shares["previous"].value == pytest.approx(1 - again / total, abs=0.05)
    assert one.behaviours.unexplained.value == pytest.approx(0, abs=0.02)
    leaves = {
        path: rules for leaf in one.behaviours.tree for path, rules in [(leaf.path, leaf.rules)]
    }
    assert set(leaves) == {(("repeated", True),), (("repeated", False),)}
    assert leaves[("repeated", True),][0][0] == "induction"
    assert leaves[("repeated", True),][0][1].value > 0.9
    assert leaves[("repeated", False),][0][0] == "previous"


def test_a_head_that_is_mixed_by_chance_is_two_behaviours_in_one_leaf() -> None:
    one = by_chance(*repeated_words())
    assert set(one.behaviours.shares) == {"previous", "induction"}
    assert one.behaviours.unexplained.value == pytest.approx(0, abs=0.02)
    assert 0.15 < one.behaviours.shares["induction"].value < 0.35
    said = {calibration.role: calibration for calibration in one.calibrations}
    assert said["previous"].holds.value == pytest.approx(
        one.behaviours.shares["previous"].value, abs=0.05
    )
    assert said["previous"].residue[0].name == "induction"
    assert said["previous"].residue[0].share == pytest.approx(1, abs=0.05)


def random_treebank(path: Path, *, later: bool, count: int = 40) -> Path:
    """Sentences whose words depend on earlier or on later ones, at random; half of them objects."""
    words = repeated_words(1, 15)[0].split()[:15]
    rng = np.random.default_rng(7)
    blocks = []
    for _ in range(count):
        rows = []
        for n, word in enumerate(rng.permutation(words).tolist(), 1):
            low, high = (n + 1, len(words)) if later else (1, n - 1)
            head = int(rng.integers(low, high + 1)) if low <= high else 0
            arc = "root" if not head else "obj" if n % 2 else "nmod:of"
            rows.append(f"{n}\t{word}\t_\tNOUN\t_\t_\t{head}\t{arc}\t_\t_\n")
        blocks.append("".join(rows) + "\n")
    path.write_text("".join(blocks))
    return path


def target(sentence: Sentence, word: int, relation: str) -> int:
    """The word that a planted head of this relation looks at; the word itself for none."""
    if relation == "governor":
        return sentence.heads[word] if sentence.heads[word] >= 0 else word
    arcs = zip(sentence.heads, sentence.relations, strict=True)
    own = [n for n, (head, arc) in enumerate(arcs) if head == word and arc == "obj"]
    return own[-1] if own else word


@pytest.mark.parametrize("relation", ["governor", pytest.param("object", marks=pytest.mark.slow)])
def test_a_planted_syntactic_head_is_a_behaviour_where_a_treebank_says_so(
    relation, tmp_path
) -> None:
    path = random_treebank(tmp_path / "random.conllu", later=relation == "object")
    source, maps, looked, all_ = av.load("demo-gpt2"), {}, 0, 0
    texts = []
    for _, _, sentence in conllu.sentences(str(path)):
        tokens = source.prepare(sentence.prompt).sides["decoder"].queries
        map_ = np.zeros((len(tokens), len(tokens)), np.float32)
        for i, word in enumerate(tokens.words):
            key = target(sentence, word, relation)
            map_[i, i if key == word else tokens.words.index(key)] = 1
            looked, all_ = looked + (i > 0 and key != word), all_ + (i > 0)
        maps[tokens.ids] = map_
        texts.append(sentence.prompt.text)

    def weights(ids: Sequence[int]) -> np.ndarray:  # of probes, anything
        return maps.get(tuple(ids), np.eye(len(ids), dtype=np.float32))

    model = Planted(source, source.layout.head("1.2"), weights)

    def profiled(**of: Any) -> tuple[Profile, Any]:
        profile = av.profile(**of, model=model, select="1.2", effects=False)
        return profile, profile.distribution.heads[0].behaviours.shares

    profile, found = profiled(files=path)
    assert found[relation].value == pytest.approx(looked / all_, abs=0.06)
    assert found[relation].value > 3 * found[relation].chance
    assert profile.grouped
    assert not {"governor", "subject", "object", "dependent"} & set(profiled(texts=texts[:10])[1])


def printed(profile: Profile) -> str:
    """What the terminal says of heads row by row."""
    console = Console(width=200, file=io.StringIO())
    with console.capture() as told:
        console.print(*row_parts(profile), sep="\n")
    return told.get()


def test_random_weights_of_trained_sizes_have_no_rule_that_chance_explains() -> None:
    """They look at where a text begins, surely, which is said to be a matter of position."""
    source = av.load("demo-gpt2", untrained=0, scale="trained")
    profile = av.profile(texts=JOINED, model=source, select="2.*", effects=False)
    told = [
        rule
        for one in profile.distribution.heads
        for leaf in one.behaviours.tree
        for rule in leaf.rules
    ]
    assert {name for name, _ in told} <= {"first", "local"}
    for name, share in told:
        assert share.value > share.chance, name
        assert share.low > share.chance, name
    ruled = [one.behaviours for one in profile.distribution.heads if one.behaviours.shares]
    assert ruled
    assert all(ONLY_POSITION in headline("0.0", behaviours) for behaviours in ruled)
    assert printed(profile).count(f": {ONLY_POSITION}") == len(ruled)


def test_a_rule_of_words_is_no_matter_of_position() -> None:
    profile = av.profile(texts=JOINED[:20], model="demo-gpt2", select="1.4", effects=False)
    assert "previous" in profile.distribution.heads[0].behaviours.shares
    assert ONLY_POSITION not in printed(profile)
    assert ONLY_POSITION not in headline("1.4", profile.distribution.heads[0].behaviours)


def test_rules_that_do_not_stand_leave_the_tree() -> None:
    divided = rules.Division(0, rules.Leaf((1, 3)), rules.Leaf((2,)))
    holds, otherwise = ((0, True),), ((0, False),)
    assert rules.pruned(divided, set()) == rules.Leaf(())
    left = rules.pruned(divided, {(otherwise, 2), (holds, 3), (otherwise, 1)})
    assert left == rules.Division(0, rules.Leaf((3,)), rules.Leaf((2,)))


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_random_weights_have_no_behaviours(seed) -> None:
    source = av.load("demo-gpt2", untrained=seed)
    profile = av.profile(texts=JOINED, model=source, select="0.*", effects=False)
    for one in profile.distribution.heads:
        assert not one.behaviours.shares, one.head.name
        assert one.behaviours.unexplained.value == 1


@pytest.fixture
def short_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four texts a task, so that a few of them are several tasks."""
    monkeypatch.setattr(tasks, "WINDOW", 4)


@pytest.mark.parametrize("change", [str, str.upper])
def test_copies_and_near_copies_count_once_and_stay_on_one_side(change: Any) -> None:
    """Each text a second time, as it is or in capitals: the rows are those of one, not of both."""
    texts = repeated_words(6)
    changed = list(map(change, texts))
    tried = (texts, changed, [*texts, *changed])
    once, alone, twice = (by_chance(*some).behaviours for some in tried)
    rows = [found.found_on + found.measured_on for found in (once, alone, twice)]
    assert min(rows[:2]) <= rows[2] <= max(rows[:2])


def test_rows_of_copies_are_told_by_hand() -> None:
    sample = RowSample.empty(1, 1)
    sample.columns |= {
        "alike": np.array([7, 7, 8, 7, 9], np.uint64),
        "cluster": np.array([1, 2, 2, 1, 3], np.uint64),
        "text": np.array([11, 12, 13, 11, 14], np.uint64),
        "row": np.array([4, 4, 4, 5, 4], np.int32),
    }
    clusters, single = sample.independent()
    assert clusters.tolist() == [1, 1, 1, 1, 3]
    assert single.tolist() == [True, False, True, True, True]


def test_a_sample_is_fair() -> None:
    """Rows of long texts are as likely as those of short ones, wherever they stand."""
    bits = np.concatenate([hashes(key, 50, 3) for key in range(200)])
    first = np.argsort(bits)[:2000]
    positions = np.bincount(first % 50, minlength=50)
    texts = np.bincount(first // 50, minlength=200)
    assert ((positions - 40) ** 2 / 40).sum() < 85  # χ², 49 degrees of freedom: 99.9 % below 85
    assert ((texts - 10) ** 2 / 10).sum() < 266
    assert not set(hashes(1, 50, 3).tolist()) & set(hashes(1, 50, 4).tolist())


@pytest.mark.usefixtures("short_tasks")
def test_parts_and_resumed_runs_give_the_same_bits_and_selecting_changes_nothing_else(
    tmp_path,
) -> None:
    files = [lines(tmp_path / "a.txt", sentences(5)), lines(tmp_path / "b.txt", sentences(4, 1))]
    model = str(write(tmp_path / "model", "gpt2", "GPT2LMHeadModel", n_positions=256))
    asked = {"model": model, "jobs": 1, "select": "1.0, 0.2"}
    whole = av.profile(files, state=tmp_path / "one.profile", **asked)
    parts = [tmp_path / f"{path.stem}.profile" for path in files]
    for path, part in zip(files, parts, strict=True):
        av.profile(path, state=part, **asked)
    merged = av.merge_profiles(parts, state=tmp_path / "merged.profile")
    assert row_content(tmp_path / "merged.profile") == row_content(tmp_path / "one.profile")
    assert merged.to_json() == av.read(tmp_path / "one.profile").to_json()
    assert Profile.from_json(whole.to_json()) == whole
    plain = av.profile(files, model=model, jobs=1)
    assert replace(whole, distribution=None) == plain

    def stop(progress: run.Progress) -> None:
        raise AttnvizError("stopped")

    with pytest.raises(AttnvizError, match="stopped"):
        av.profile(files[0], state=tmp_path / "two.profile", progress=stop, **asked)
    assert saved.read(tmp_path / "two.profile").runs[0].tasks == 1
    av.profile(files[0], state=tmp_path / "two.profile", **asked)
    assert row_content(tmp_path / "two.profile") == row_content(parts[0])
    with pytest.raises(UsageError, match="select"):
        av.profile(files[0], state=tmp_path / "two.profile", **{**asked, "select": "1.1"})


@pytest.mark.slow
def test_several_processes_give_the_same_rows(tmp_path) -> None:
    path = lines(tmp_path / "a.txt", sentences(136))
    for jobs in (1, 2):
        av.profile(
            path, model="demo-gpt2", select="3.0", jobs=jobs, state=tmp_path / f"{jobs}.profile"
        )
    assert row_content(tmp_path / "2.profile") == row_content(tmp_path / "1.profile")


def row_content(path: Path) -> dict[str, Any]:
    """All of a state, its texts too."""
    sample = saved.read(path).tally.rows.sample
    return {**content(path), "texts of rows": sorted(sample.texts.items())}


@pytest.mark.slow
def test_the_same_head_in_two_checkpoints_is_compared_by_its_rules() -> None:
    some = JOINED
    models = (av.load("demo-gpt2", untrained=0), av.load("demo-gpt2"))
    before, after = (
        av.profile(texts=some, model=model, select="1.4", effects=False) for model in models
    )
    change = next(head for head in av.diff(before, after).heads if head.name == "1.4")
    rules = {figure.name: figure for figure in change.changes if "rule" in figure.name}
    (one,) = after.distribution.heads
    assert rules["rule previous"].before == 0
    assert rules["rule previous"].after == one.behaviours.shares["previous"].value > 0.8
    assert rules["no rule"].before == 1
    assert rules["no rule"].after == one.behaviours.unexplained.value
    other = next(head for head in av.diff(before, after).heads if head.name == "0.0")
    assert not any("rule" in figure.name for figure in other.changes)


def test_what_cannot_be_selected_is_refused() -> None:
    with pytest.raises(SelectionError):
        av.profile(texts=["a b"], select="9.9")
    with pytest.raises(UsageError, match="looks at weights"):
        av.profile(texts=["a b"], select="3.0", quantity="norm")


def test_names_are_different() -> None:
    assert len({relation.name for relation in RELATIONS}) == len(RELATIONS) < 63
    assert len({condition.name for condition in CONDITIONS}) == len(CONDITIONS) < 63
    assert len(set(CLASSES)) == len(CLASSES)
