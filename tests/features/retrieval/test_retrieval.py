"""Needles: a planted head, another program's scores to the digit, random weights at chance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from typer.testing import CliRunner

import attnviz as av
from attnviz.cli import app
from attnviz.corpus.lines import sentences
from attnviz.errors import AttnvizError, InputError, UsageError
from attnviz.features.retrieval.measure import (
    answers,
    calibrated,
    copied,
    copied_chance,
    generates,
    scored,
)
from attnviz.features.retrieval.needles import (
    Needle,
    _ids,
    file_needles,
    read_needles,
    word_needles,
)
from attnviz.features.retrieval.result import Retrieval, RetrievalSettings
from attnviz.models.folder import locate
from tests.checkpoints import write
from tests.features.patch.planted import DUPLICATE, HEADS, INDUCTION, PREVIOUS, planted

ROOT = Path(__file__).parents[3]
FILE = ROOT / "sample_inputs" / "needles.jsonl"
SMALL = RetrievalSettings(lengths=(40, 60), depths=(0.0, 0.6, 1.0), count=2)


@pytest.fixture(scope="module")
def found() -> Retrieval:
    """Of demo-gpt2, on few short needles."""
    return av.retrieval(lengths=[30, 50], depths=[0.0, 1.0], count=4, group_size=(2,), draws=1)


@pytest.fixture(scope="module")
def by_hand() -> Retrieval:
    """Of a GPT-2 with one retrieval head among 24, on random ids."""
    return av.retrieval(
        model=planted(width=48), lengths=[24, 40], depths=[0.0, 0.5, 1.0], count=2,
        group_size=(1,), draws=1, seed=1,
    )  # fmt: skip


def test_a_planted_head_copies_every_needle_and_nothing_is_retrieved_without_it(
    by_hand: Retrieval,
) -> None:
    name = ".".join(map(str, INDUCTION))
    first, *others = by_hand.heads
    assert by_hand.layout.name(first.head) == name
    assert first.copied.value == first.where_chosen == 1.0
    assert first.weight.value == pytest.approx(1.0, abs=0.01)
    assert by_hand.accuracy.value == 1.0
    assert by_hand.retrieved == by_hand.needles == 12
    assert [by_hand.layout.name(one.head) for one in by_hand.retrieval_heads] == [name]
    assert all((one.copied.value or 0) <= 0.1 for one in others)
    (without,) = by_hand.ablations
    assert [by_hand.layout.name(head) for head in without.heads] == [name]
    assert without.accuracy.value == 0.0
    assert without.most == 1.0
    assert (without.margin.low or 0) > 0


def test_a_head_that_looks_at_the_cue_is_not_taken_for_one_that_copies(by_hand: Retrieval) -> None:
    by_name = {by_hand.layout.name(one.head): one for one in by_hand.heads}
    duplicate = by_name[".".join(map(str, DUPLICATE))]
    assert (duplicate.weight.value or 0) > 0.4
    assert duplicate.copied.value == 0.0
    assert by_name[".".join(map(str, PREVIOUS))].copied.value == 0.0
    assert len(by_name) == 2 * HEADS


def test_the_cells_are_of_the_planted_head(by_hand: Retrieval) -> None:
    assert len(by_hand.cells) == 6
    assert {(cell.accuracy, cell.copied) for cell in by_hand.cells} == {(1.0, 1.0)}
    assert by_hand.control is None  # a loaded model has no random weights of its own


def test_random_weights_copy_at_chance(found: Retrieval) -> None:
    control = found.control
    assert control is not None
    assert control.copied == pytest.approx(control.chance, abs=0.02)
    assert 0 < (control.chance or 0) < 0.05
    assert control.copied_most < 0.15
    assert abs(control.query) < 0.01
    assert (found.heads[0].copied.value or 0) > 0.8


def test_the_first_heads_of_the_demo_model_carry_the_answer(found: Retrieval) -> None:
    assert (found.heads[0].copied.low or 0) > 0.5
    assert found.heads[0].query.value > 0.3
    (without,) = found.ablations
    assert without.accuracy.value < found.accuracy.value - 0.2


# ---- the same by another program ----


class Reference:
    """Wu et al.'s and QRHead's scores, step by step, on eager attention of transformers."""

    def __init__(self) -> None:
        folder = locate("demo-gpt2").folder
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, attn_implementation="eager", dtype=torch.float64
        ).eval()

    def attention(self, ids: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """Weights [N, T, T], and the logits that follow the last token."""
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([ids]), output_attentions=True)
        weights = np.concatenate([layer[0].double().numpy() for layer in out.attentions])
        return weights, out.logits[0, -1].numpy()

    def generated(self, needle: Needle) -> tuple[list[int], np.ndarray]:
        ids, new = list(needle.ids), []
        taken: list[set[int]] = []
        for _ in range(needle.generate):
            weights, logits = self.attention(ids)
            token = int(logits.argmax())
            for head, row in enumerate(weights[:, -1]):
                taken = taken or [set() for _ in weights]
                key = int(row.argmax())
                if key in needle.answer and ids[key] == token:
                    taken[head].add(key)
            ids.append(token)
            new.append(token)
        return new, np.array([len(keys) / len(needle.answer) for keys in taken])

    def query(self, needle: Needle) -> np.ndarray:
        first, end = needle.document
        with_question, _ = self.attention(list(needle.ids))
        without, _ = self.attention(list(needle.null))
        found = []
        for asked, empty in zip(with_question, without, strict=True):
            one = asked[slice(*needle.question), first:end].mean(0)
            one = one - empty[slice(*needle.null_question), first:end].mean(0)
            kept = one[one > one.mean() - 2 * one.std(ddof=1)]
            found.append(kept.sum())
        return np.array(found)


def test_scores_are_those_of_an_independent_script(gpt2: Any) -> None:
    reference = Reference()
    needles = word_needles(gpt2, SMALL)[2::6] + file_needles(
        gpt2, read_needles(str(FILE)), RetrievalSettings(lengths=(60,), depths=(0.5,), generate=4)
    )[:2]  # fmt: skip
    assert len(needles) == 4
    kinds = set()
    for needle, one in zip(needles, scored(gpt2, needles), strict=True):
        ids, theirs = reference.generated(needle)
        assert one.answered is not None
        assert list(one.answered.ids) == ids
        np.testing.assert_array_equal(one.copied, theirs)
        np.testing.assert_allclose(one.query, reference.query(needle), atol=2e-6)
        kinds.add(one.answered.recall == 1.0)
    assert kinds == {True, False}  # both what a pass shows and what has to be generated


def test_batches_and_single_prompts_say_the_same(gpt2: Any) -> None:
    needles = word_needles(gpt2, SMALL)
    together = list(answers(gpt2, needles))
    assert together == [one for needle in needles for one in answers(gpt2, [needle])]


# ---- the formulas by hand ----

NEEDLE = Needle(1, 6, 0.5, (9, 5, 6, 7, 8, 5), (1, 4), (2, 3), (5, 6), (), (0, 0), 2)


def test_a_token_is_copied_where_it_is_generated_from_its_own_place() -> None:
    top = np.array([[2, 3], [2, 2], [4, 3], [3, 3]])
    assert copied(top, (6, 7), NEEDLE).tolist() == [1.0, 0.5, 0.5, 0.5]
    assert copied(top, (7, 7), NEEDLE).tolist() == [0.5, 0.0, 0.5, 0.5]
    assert copied_chance((6, 1), NEEDLE) == pytest.approx((1 / 6) / 2)
    assert copied_chance((6, 6), NEEDLE) == pytest.approx((1 - (5 / 6) * (6 / 7)) / 2)


def test_calibration_takes_off_the_empty_question_and_outliers() -> None:
    weight = np.array([[0.1, 0.2, 0.3], [0.4, 0.4, 0.4]])
    assert calibrated(weight, np.zeros((2, 3))) == pytest.approx([0.6, 1.2])
    assert calibrated(weight, weight) == pytest.approx([0.0, 0.0])
    low = np.array([[0.1] * 9 + [-2.0]])
    assert calibrated(low, np.zeros((1, 10))) == pytest.approx([0.9])


# ---- needles ----


def test_random_needles_stand_at_their_depth_and_nowhere_else(gpt2: Any) -> None:
    for needle in word_needles(gpt2, SMALL):
        ids, (first, end) = needle.ids, needle.document
        assert len(ids) == needle.length
        assert ids[slice(*needle.question)] == ids[first : first + 3]
        assert needle.answer == tuple(range(first + 3, end))
        body = ids[: needle.question[0]]
        assert all(body.count(token) == 1 for token in ids[first:end])
        assert ((first - 1) / (needle.length - 12)) == pytest.approx(needle.depth, abs=0.02)
        assert needle.null[:first] == ids[:first]
    assert word_needles(gpt2, SMALL) == word_needles(gpt2, SMALL)


def test_a_needle_of_a_file_follows_the_end_of_a_sentence(gpt2: Any) -> None:
    settings = RetrievalSettings(lengths=(90,), depths=(0.6,))
    needle = file_needles(gpt2, read_needles(str(FILE)), settings)[0]
    texts = gpt2.tokens(needle.ids).texts
    assert len(texts) == 90
    assert texts[needle.document[0] - 1].endswith(".")
    assert "".join(texts[place] for place in needle.answer) == (
        " behind the blue clock in the kitchen"
    )
    assert "".join(texts[slice(*needle.question)]) == "\nThe spare key hangs"
    around = "".join(texts[1 : needle.document[0]] + texts[needle.document[1] : needle.question[0]])
    assert " ".join(sentences()).startswith(around)  # no word is cut where pieces meet


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x", "no JSON"), ('["a"]', "no object"), ('{"needle": "a b"}', "has no question"),
        ('{"needle": 3, "question": "q"}', "needle is no text"),
        ('{"needle": "a b", "question": "q", "answer": "c"}', "is not in the needle"),
        ("", "holds no needles"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_needle_is_named(gpt2: Any, tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "n.jsonl"
    path.write_text(f"{line}\n")
    with pytest.raises(InputError, match=said):
        file_needles(gpt2, read_needles(str(path)), RetrievalSettings())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lengths": [5000]}, "5,000 tokens do not fit"), ({"lengths": [9]}, "9 tokens do not fit"),
        ({"depths": [1.5]}, "from 0"), ({"count": 0}, "count must be from 1 to 10,000, not 0"),
        ({"group_size": (-1,)}, "group_size must be at least 0, not -1"),
        ({"count": 10**9}, "count must be from 1 to 10,000, not 1,000,000,000"),
        ({"draws": 10**9}, "draws must be from 1 to 10,000, not 1,000,000,000"),
        ({"needle": (10**9, 5)}, "needle must be from 1 to 1,000, not 1,000,000,000"),
        ({"generate": 10**9}, "generate must be from 1 to 10,000, not 1,000,000,000"),
        ({"lengths": [10**9]}, "lengths must be from 1 to 1,048,576, not 1,000,000,000"),
        ({"depths": range(10**9)}, "depths has 1,000,000,000 values; take 1,000 at most"),
        ({"count": 10_000, "depths": [n / 999 for n in range(1000)]}, "needles are more than"),
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        av.retrieval(**options)


@pytest.mark.parametrize("positions", [3, 7, 15, 40])
def test_a_model_without_room_for_a_needle_says_so(positions: int, tmp_path: Path) -> None:
    model = write(tmp_path, "gpt2", "GPT2LMHeadModel", n_positions=positions)
    with pytest.raises(AttnvizError, match=f"takes {positions} tokens|takes at most {positions}"):
        av.retrieval(FILE, model=model, control=0)
    with pytest.raises(AttnvizError, match="takes") as caught:
        av.retrieval(FILE, model=model, lengths=[positions], control=0)
    assert " to " not in str(caught.value)


def test_pieces_of_a_text_advance_whatever_a_model_takes(tmp_path: Path) -> None:
    source = av.load(write(tmp_path, "gpt2", n_positions=7))
    text = "the keys are on the table"
    assert "".join(source.tokens(_ids(source, text)).texts) == text


# ---- other models, and the forms ----


def test_a_model_that_generates_nothing_has_the_question_alone(minilm: str) -> None:
    found = av.retrieval(
        model=minilm, lengths=[40], depths=[0.5], count=4, group_size=(), control=0
    )
    assert not generates(av.load(minilm))
    assert (found.by, found.retrieved, found.accuracy.value) == ("query", None, None)
    assert found.heads[0].copied.value is None
    assert found.heads[0].query.value > 0.2
    assert "generates nothing" in found.notes[0]
    assert "copied" not in str(found)


def test_the_command_prints_tables(tmp_path: Path) -> None:
    kept = tmp_path / "n.json"
    command = [
        "retrieval", "--lengths", "40", "--depths", "0,1", "--count", "2", "--group-size", "1",
        "--draws", "1", "--control", "0", "-o", str(kept),
    ]  # fmt: skip
    out = CliRunner().invoke(app, command)
    assert out.exit_code == 0, out.output
    assert "copied %" in out.output
    assert "ablated" in out.output
    found = av.read(kept)
    finding = found.finding("n.json")
    assert finding is not None
    assert {measure.name for measure in finding.measures} == {"copied", "question"}
    assert len(finding.said) == 24
