"""Published measures against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.scoring.probe import match_prefixes, probe_prompts
from attnviz.scoring.roles import PREFIX_LENGTH, prefix_matching, sink_rate

Array = NDArray[np.float64]


def uniform(size: int) -> Array:
    seen = np.tril(np.ones((size, size)))
    return seen / seen.sum(1, keepdims=True)


def test_prefix_matching_by_hand() -> None:
    """[BOS] a b a b: from the second a to the first b, from the second b to the second a."""
    weights = np.array(
        [
            [1.0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0], [0.2, 0.3, 0.5, 0, 0],
            [0.1, 0.1, 0.7, 0.1, 0], [0.3, 0.1, 0.1, 0.4, 0.1],
        ]
    )  # fmt: skip
    found = prefix_matching(weights[None], length=2, copies=2, start=1)
    assert found == pytest.approx([(0.7 + 0.4) / 2])


@pytest.mark.parametrize("back", [(1,), (1, 2, 3), (3,)])
def test_a_perfect_head_gets_a_half(back: tuple[int, ...]) -> None:
    """Whichever of the earlier copies it looks at, as long as a row has one of them."""
    weights = uniform(100)
    for i in range(25, 100):
        targets = [i - b * 25 + 1 for b in back if i - b * 25 >= 0] or [i - 25 + 1]
        weights[i] = 0
        weights[i, targets] = 1 / len(targets)
    assert prefix_matching(weights[None]) == pytest.approx([0.5])


def test_uniform_attention_matches_by_chance() -> None:
    """Rows of the second copy have one entry of 1/(i+1), of the third two, of the fourth three."""
    entries = [1 / (i + 1) for i in range(25, 100) for _ in range(i // 25)]
    assert len(entries) == 150
    assert prefix_matching(np.stack([uniform(100)] * 2)) == pytest.approx([np.mean(entries)] * 2)


def test_prefix_matching_refuses_other_maps() -> None:
    for shape, options in (((1, 99, 99), {}), ((1, 25, 25), {"copies": 1})):
        with pytest.raises(ValueError, match="prefix matching needs maps"):
            prefix_matching(np.zeros(shape), **options)


def test_the_demo_heads_that_match_prefixes_are_its_induction_heads() -> None:
    source = av.load("demo-gpt2")
    ((*_, half),) = [probe_prompts(source.vocab_size, lengths=[PREFIX_LENGTH])]
    capture = av.capture(Prompt(ids=half[:PREFIX_LENGTH] * 4, special_tokens=False), model=source)
    scores = {site.layer: prefix_matching(maps) for site, maps in capture.maps.items()}
    assert all((score <= 0.5 + 1e-6).all() for score in scores.values())
    best = max(((layer, int(s.argmax())) for layer, s in scores.items()),
               key=lambda head: scores[head[0]][head[1]])  # fmt: skip
    heads = {(h.head.layer, h.head.index): h for h in av.heads(capture).heads}
    assert heads[best].does is not None
    assert heads[best].does.name == "induction"
    assert scores[best[0]][best[1]] > 0.3


def test_sink_rate_by_hand() -> None:
    """Three heads at length 2: half the sum of two rows' weights on the first token."""
    maps = np.zeros((3, 4, 4))
    maps[:, 0, 0] = [1.0, 0.25, 0.375]
    maps[:, 1, 0] = [0.0, 0.25, 0.125]
    maps[:, 2:, 0] = 9.0  # beyond the length
    assert sink_rate([maps], length=2) == pytest.approx(1 / 3)  # 0.5, 0.25, 0.25
    assert sink_rate([maps, maps[:1]], length=2) == pytest.approx(2 / 4)
    assert sink_rate([maps], length=2, threshold=0.2) == 1.0


def test_uniform_attention_is_no_sink() -> None:
    """The harmonic mean of 64 rows is 0.074: far below the threshold, at four tokens above it."""
    maps = uniform(64)[None]
    assert maps[0, :, 0].mean() == pytest.approx(0.0741, abs=1e-4)
    assert sink_rate([maps]) == 0.0
    assert sink_rate([maps], length=4) == 1.0


def test_sink_rate_needs_the_tokens() -> None:
    with pytest.raises(ValueError, match="needs as many, not 63"):
        sink_rate([uniform(63)[None]])
    with pytest.raises(ValueError, match="at least one layer"):
        sink_rate([])


# --- measured on a model -------------------------------------------------------------------------


def test_prefixes_are_matched_on_seeded_draws() -> None:
    """The mean of whole maps of prompts made here, and an interval over the draws."""
    source = av.load("demo-gpt2")
    found = match_prefixes(source)
    assert found is not None
    assert (found.probes, found.length, found.copies) == (5, 25, 4)
    start = source.prepare(Prompt("a")).sides["decoder"].keys.ids[0]
    scores = []
    for seed in range(5):
        ((*_, last),) = [probe_prompts(source.vocab_size, lengths=[25], seed=seed, bos=start,
                                       avoid={start})]  # fmt: skip
        assert len(set(last[-25:])) == 25
        ids = (start, *last[-25:] * 4)
        capture = av.capture(Prompt(ids=ids, special_tokens=False), model=source)
        scores.append(np.concatenate([prefix_matching(m, start=1) for m in capture.maps.values()]))
    assert found.means == pytest.approx(np.mean(scores, 0), abs=1e-6)
    error = np.std(scores, 0, ddof=1) / np.sqrt(5)
    assert found.halves == pytest.approx(2.7764451 * error, abs=1e-6)
    entries = [1 / (i + 1) for i in range(26, 101) for _ in range((i - 1) // 25)]
    assert found.chance == pytest.approx(np.mean(entries))
    assert match_prefixes(source) == found
    assert match_prefixes(source, seed=9) != found


@pytest.mark.parametrize("model", ["demo-bert", "fresh"])
def test_where_prefix_matching_is_not_defined(model: str) -> None:
    assert match_prefixes(av.load(model)) is None
    if model != "fresh":
        assert av.heads("a b c", model=model, probe=True).matching is None


def test_heads_with_a_probe_match_prefixes() -> None:
    report = av.heads("a b c", probe=True)
    expected = match_prefixes(av.load("demo-gpt2"))  # on torch
    assert report.matching is not None
    assert report.matching.means == pytest.approx(expected.means, abs=1e-6)
    assert report.matching.halves == pytest.approx(expected.halves, abs=1e-6)
    assert av.heads("a b c").matching is None
    assert av.heads("a b c", probe=True, without="1.4").matching != report.matching
