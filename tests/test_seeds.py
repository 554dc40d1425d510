"""What docs say of four trainings follows from their figures; demo-gpt2's are measured anew."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from training.seeds import Seed, agreement, markdown, measured, read

SEEDS = read(ROOT / "docs" / "seeds.json")
PAGE = " ".join((ROOT / "docs" / "seeds.md").read_text("utf-8").split())
MEDIANS = 1.0
"""Logits that a median may be from the trimmed mean of the same changes, of which some are 10."""
ALL, FOURTH = pytest.mark.parametrize("seed", SEEDS, ids=[s.name for s in SEEDS]), SEEDS[3]


def layers(heads: list[str]) -> list[int]:
    return [int(head.split(".")[0]) for head in heads]


def made_up(roles: str, shape: list[int]) -> Seed:
    names = {str(number): role.strip("-") for number, role in enumerate(roles)}
    real = SEEDS[0]
    return Seed("made up", "", shape, [], [], real.lost, names, real.circuit, 0, real.edges)


def test_the_page_has_the_tables_of_the_figures() -> None:
    for table in markdown(SEEDS).split("\n\n"):
        assert " ".join(table.split()) in PAGE


@ALL
def test_what_is_said_of_all_four(seed: Seed) -> None:
    assert layers(seed.previous) == [0, 1]
    assert 4 <= len(seed.induction) <= 7
    assert set(layers(seed.induction)) <= {2, 3}
    assert all(share.value >= 0.935 for share in seed.lost.values())
    assert 7 <= len(seed.circuit.heads) <= 10
    assert 0.845 <= seed.circuit.gap.value <= 0.885
    assert 0.025 <= seed.circuit.random <= 0.115
    assert set(seed.previous) <= set(seed.circuit.heads)
    assert len(set(seed.induction) & set(seed.circuit.heads)) >= 3
    back, answer = seed.edges["follower, match"], seed.edges["last, follower"]
    assert back.sure
    assert answer.sure
    assert max(back.layers[:2]) < -4
    assert max(map(abs, back.layers[2:])) < 0.3
    assert max(map(abs, answer.layers[:2])) < 0.3
    assert answer.layers[3] < -3


def test_a_sentence_of_all_four_is_no_sentence_of_three() -> None:
    """No layer of all four trainings counts that counts for nothing in one."""
    (said,) = re.findall(r"## In all four (.*?) ## ", PAGE)
    assert "in layer 3 and in none of layers 0 and 1" in said
    assert "layers 2 and 3. " not in said.partition("Induction needs")[2]


def test_where_most_induction_heads_are() -> None:
    most = [max(set(layers(s.induction)), key=layers(s.induction).count) for s in SEEDS]
    counts = [layers(s.induction).count(layer) for s, layer in zip(SEEDS, most, strict=True)]
    assert (most, counts) == ([3, 2, 3, 3], [3, 4, 3, 4])
    assert [len(s.induction) for s in SEEDS] == [5, 7, 5, 4]


def test_sentences_of_the_first_page_about_heads_say_of_which_training() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## What it answers")[2]
    for paragraph in text.partition("## Five commands")[0].split("\n\n"):
        if re.search(
            r"\b\d\.\d\b(?! nats| logits)|induction heads|heads keep|these eight", paragraph
        ) and (paragraph.startswith("**")):
            said = "this training" in paragraph or "four of four trainings" in paragraph
            assert said, paragraph
    assert "said of this one training" in " ".join(text.split())
    assert "docs/seeds.md" in text


def test_what_is_said_of_one_alone() -> None:
    sure = [seed.edges["last, match"].sure for seed in SEEDS]
    assert sure == [False, False, False, True]
    assert [2 in layers(seed.induction) for seed in SEEDS] == [True, True, True, False]
    assert [seed.edges["last, follower"].layers[2] < -4 for seed in SEEDS] == [True] * 3 + [False]
    cut = FOURTH.edges["last, match"]
    assert round(cut.change.value, 1) == -2.0
    assert min(cut.layers) == cut.layers[2]
    assert [round(share.value, 2) for share in FOURTH.lost.values()] == [1.19, 1.11]
    assert all(share.value < 1 for seed in SEEDS[:3] for share in seed.lost.values())


def test_heads_of_a_layer_may_change_places_and_no_others() -> None:
    one = made_up("pid---", [3, 3])
    assert agreement(one, made_up("dpi---", [3, 3]))[0] == 1
    assert agreement(one, made_up("---pid", [3, 3]))[0] == 0
    assert agreement(one, made_up("pi----", [3, 3]))[0] == pytest.approx(5 / 6)


def test_chance_is_the_mean_over_all_orders() -> None:
    """One head of four has a role: dealt anew, both meet in a layer every second time."""
    alike, chance = agreement(made_up("p---", [2, 2]), made_up("p---", [2, 2]))
    assert alike == 1
    assert chance == pytest.approx(0.5 * 1 + 0.5 * 0.5, abs=0.02)


@pytest.mark.slow
def test_figures_of_the_bundled_model_are_measured_anew() -> None:
    """Cuts are medians today and trimmed means in the table, of the same changes."""
    known, now = SEEDS[0], measured("demo-gpt2")
    assert now.model == known.model
    assert (now.previous, now.induction, now.roles) == (
        known.previous,
        known.induction,
        known.roles,
    )
    assert now.circuit.heads == known.circuit.heads
    assert now.circuit.gap.value == pytest.approx(known.circuit.gap.value, abs=1e-3)
    for names, cut in now.edges.items():
        assert cut.change.value == pytest.approx(known.edges[names].change.value, abs=MEDIANS)
        assert cut.layers == pytest.approx(known.edges[names].layers, abs=MEDIANS)
        assert cut.sure == known.edges[names].sure
