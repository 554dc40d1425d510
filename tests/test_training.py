"""The training scripts: what they draw, what they save, and what comes out."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer, GPT2LMHeadModel

from training import bert, evaluate, gpt2, tokens
from training.command import Prepared, export, prepare
from training.head import ROWS, head_loss
from training.loop import STATE, Settings, run
from training.ngrams import Trigram, likeliest_after
from training.optim import Rates, Schedule, optimizers, orthogonalized, set_rates
from training.samples import IGNORED, CausalRows, PairRows, mask_tokens, tile, twice
from training.text import passages, read_books, rejoin
from training.tokens import (
    CAUSAL_SPECIAL,
    END,
    common_words,
    save_tokenizer,
    special_id,
    special_ids,
    stop_ids,
    train_bpe,
    train_wordpiece,
)
from training.transplant import embeddings, transplant
from training.turns import Fact, Placed, Turns, begun, chat, sheet, spoken
from training.watch import score_weights

LINES = (
    "The miller had a daughter, and the daughter had a goose.",
    "Every morning the goose walked to the pond and back again.",
    "Was there ever a goose so fond of walking? The miller said not!",
    "One day it rained, and the pond came to the goose instead.",
)


@pytest.fixture(scope="module")
def books(folder: Path) -> Path:
    rng = np.random.default_rng(3)
    for name in ("One_1900", "Two_1901", "Three_1902"):
        lines = [LINES[k] for k in rng.integers(0, len(LINES), 150)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines), "utf-8")
    return folder


@pytest.fixture(scope="module")
def causal(books: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    out = tmp_path_factory.mktemp("tokenizer")
    return prepare(books, out, ("Two_1901",), train_bpe, 320, gpt2.POSITIONS, seed=1)


@pytest.fixture(scope="module")
def masked(books: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    out = tmp_path_factory.mktemp("tokenizer")
    return prepare(books, out, ("Two_1901",), train_wordpiece, 200, bert.POSITIONS, seed=1)


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """Batches of one window, of few positions, and two narrow layers."""
    whole = gpt2.config

    def narrow(vocabulary: int) -> object:
        settings = whole(vocabulary)
        settings.n_embd, settings.n_layer, settings.n_head = 48, 2, 2
        return settings

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpt2, "config", narrow)
        patch.setattr(gpt2, "POSITIONS", 128)
        patch.setattr(gpt2, "BATCH", gpt2.POSITIONS)
        patch.setattr(bert, "BATCH", bert.POSITIONS)
        patch.setattr(evaluate, "PROBED", 2)
        patch.setattr(evaluate, "PAIRED", 2)
        yield


class TestText:
    def test_line_end_hyphens_are_mended_only_where_the_words_are_known(self) -> None:
        words = {"lawyer": 3, "self-taught": 2, "two": 5}
        text = "a law- yer, self- taught, of two- and threefold"
        assert rejoin(text, words) == "a lawyer, self-taught, of two- and threefold"

    def test_held_out_books_stay_out(self, books: Path) -> None:
        split = read_books(books, ("Two_1901.txt",))
        assert set(split.held_out) == {"Two_1901"}
        assert set(split.train) == {"One_1900", "Three_1902"}

    def test_an_unknown_held_out_book_is_an_error(self, books: Path) -> None:
        with pytest.raises(SystemExit, match="Four_1903"):
            read_books(books, ("Four_1903",))

    def test_passages_are_apart_and_of_paragraphs_in_a_row(self) -> None:
        books = ["".join(f"line {n:02}\n" for n in range(40)), "one\ntwo\n"]
        found = passages(books, 4, 20)
        assert found[:2] == ["line 00 line 01 line 02", "line 09 line 10 line 11"]
        assert len(found) == 4
        assert passages(books, 99, 10_000) == []


class TestTransplant:
    """A model under another tokenizer goes on from what it knew."""

    @pytest.fixture(scope="class")
    def old(self, causal: Prepared, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("old")
        smaller = train_bpe(causal.books.values(), 280)
        export(gpt2.build(smaller.get_vocab_size(), 5), folder)
        save_tokenizer(smaller, folder, gpt2.POSITIONS)
        return folder

    def test_a_token_begins_as_the_mean_of_what_it_was_cut_into(self) -> None:
        old, new = (train_bpe(["low lower lowest slow " * 20], size) for size in (262, 270))
        weights = torch.randn(old.get_vocab_size(), 3)
        rows = embeddings(weights, old, new)
        for token in range(new.get_vocab_size()):
            text = new.decode([token], skip_special_tokens=False)
            ids = old.encode(text, add_special_tokens=False).ids
            if text.isascii() and not text.startswith("<|"):
                torch.testing.assert_close(rows[token], weights[ids].mean(0))
        begin = weights[special_id(old, END)]
        assert all(torch.equal(rows[special_id(new, name)], begin) for name in CAUSAL_SPECIAL[:1])

    def test_what_both_tokenizers_cut_alike_is_read_alike(
        self, causal: Prepared, old: Path
    ) -> None:
        task = gpt2.Causal(replace(causal, start=old))
        before = AutoModelForCausalLM.from_pretrained(old, dtype=torch.float32)
        tokenizer = Tokenizer.from_file(str(old / "tokenizer.json"))
        shared = [n for n in sorted(tokenizer.get_vocab()) if causal.tokenizer.token_to_id(n)][9:40]
        ids = [
            torch.tensor([[cut.token_to_id(name) for name in shared]])
            for cut in (tokenizer, causal.tokenizer)
        ]
        with torch.no_grad():
            torch.testing.assert_close(
                task.model.transformer(ids[1]).last_hidden_state,
                before.transformer(ids[0]).last_hidden_state,
            )

    def test_other_shapes_are_refused(self, causal: Prepared, old: Path) -> None:
        settings = gpt2.config(280)
        settings.n_embd = 96
        model = GPT2LMHeadModel(settings)
        with pytest.raises(SystemExit, match="of another shape than what is trained, at "):
            transplant(model, causal.tokenizer, old)


class TestCausalRows:
    rows = CausalRows(np.arange(1, 5000) % 97 + 1, vocabulary=300)

    def test_a_batch_depends_on_seed_and_step_only(self) -> None:
        one, same, other = (
            self.rows.batch(np.random.default_rng([7, step]), 8, 64, 0.5) for step in (3, 3, 4)
        )
        assert (one == same).all()
        assert (one != other).any()
        assert one.shape == (8, 65)

    def test_repeated_rows_repeat(self) -> None:
        segment = np.asarray([5, 9, 2])
        assert tile(segment, 8).tolist() == [5, 9, 2, 5, 9, 2, 5, 9]
        rng = np.random.default_rng(0)
        for _ in range(50):
            row = self.rows.repeated(rng, 64)
            periods = [p for p in range(4, 33) if (row[p:] == row[:-p]).all()]
            counts = np.unique(row, return_counts=True)[1]
            assert periods or set(counts) == {2}
            assert row.min() >= 1

    def test_repeats_may_come_after_text(self) -> None:
        rng = np.random.default_rng(0)
        led = 0
        for _ in range(50):
            row = self.rows.repeated(rng, 64, lead=1.0)
            assert len(row) == 64
            half = row[32:]
            led += any((half[p:] == half[:-p]).all() for p in range(4, 17))
        assert led > 20

    def test_twice_means_twice(self) -> None:
        row = twice(np.random.default_rng(0), 40, 300, 1)
        assert (np.unique(row, return_counts=True)[1] == 2).all()

    def test_without_repeats_a_row_is_text_after_the_begin_token(self) -> None:
        batch = self.rows.batch(np.random.default_rng(0), 40, 32, 0.0)
        begun = batch[:, 0] == 0
        assert 0.5 < begun.mean() < 1
        assert ((batch[:, 2:] - batch[:, 1:-1]) % 97 == 1).all()


class TestWholeWords:
    """Words of two books, thrice as many as a plain BPE of this size keeps whole."""

    texts = (
        "A miller had twelve daughters. Mary the miller's geese wandered homeward, homeward.\n" * 9,
        "Mary wandered homeward with twelve geese; Grimalkin slept, Grimalkin purred.\n" * 9,
    )

    def test_common_words_are_as_written_and_of_several_books(self) -> None:
        words = common_words(self.texts, count=5, books=2)
        assert words[0] == "homeward"
        assert set(words) == {"homeward", "Mary", "wandered", "twelve", "geese"}
        assert "s" not in common_words(self.texts)

    def test_they_stay_whole_after_a_space_and_with_a_capital_at_the_beginning(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tokens, "EXAMPLES", ("cabinet",))
        filler = [" ".join(f"{a}{b}{c}" for a in "bdfg" for b in "aeiou" for c in "bdfg") + "\n"]
        texts = [filler[0] * 40 + text for text in self.texts]
        monkeypatch.setattr(tokens, "common_words", lambda texts: ["homeward", "Mary", "geese"])

        def pieces(floor: int, *words: str) -> list[int]:
            monkeypatch.setattr(tokens, "FLOOR", floor)
            trained = train_bpe(texts, 330)
            return [len(trained.encode(word, add_special_tokens=False).ids) for word in words]

        words = (" homeward", " Mary", "Mary", " geese", " cabinet")
        assert pieces(4000, *words) == [1, 1, 1, 1, 1]
        assert min(pieces(0, " homeward", " geese", " cabinet")) > 1

    def test_the_special_tokens_come_first(self, causal: Prepared) -> None:
        assert [causal.tokenizer.token_to_id(name) for name in CAUSAL_SPECIAL] == [0, 1, 2, 3]


class TestTurns:
    book = (
        '"I never saw the miller again," said Mary. There the old clock was in the mill.\n'
        "'We shall have to walk home now,' cried Mr. Grey. Now the red boat lay on the pond.\n"
        "Every morning the goose walked to the pond and came back again.\n"
        "And a blue lamp hung on the wall; behind the mill, near the gate, a green door stood.\n"
    )

    def test_facts_are_in_the_books_and_answers_in_their_documents(self) -> None:
        assert spoken([self.book]) == [
            Fact(
                '"I never saw the miller again," said Mary.',
                'Who said "I never saw the miller again"?',
                "Mary.",
            ),
            Fact(
                '"We shall have to walk home now," cried Mr. Grey.',
                'Who cried "We shall have to walk home"?',
                "Mr. Grey.",
            ),
        ]
        assert begun([self.book]) == [
            Fact(
                "Every morning the goose walked to the pond and came back again.",
                'What comes after "Every morning the goose walked"?',
                "to the pond and came back again.",
            )
        ]
        placed = Placed.of([self.book])
        assert set(placed.things) == {
            ("old", "clock"), ("red", "boat"), ("blue", "lamp"), ("green", "door")
        }  # fmt: skip
        assert {("in", "mill"), ("on", "pond"), ("on", "wall"), ("near", "gate")} <= {
            *placed.places
        }
        for fact in placed.facts(np.random.default_rng(0), 3):
            assert fact.answer[0].lower() + fact.answer[1:] in fact.document
            assert fact.question.removeprefix("Where is the ")[:-1] in fact.document

    def test_too_short_books_are_refused(self) -> None:
        with pytest.raises(SystemExit, match="too short"):
            Placed.of([""]).facts(np.random.default_rng(0), 1)

    def test_rows_depend_on_the_generator_alone(self, causal: Prepared) -> None:
        turns = Turns.of({"One": self.book}, causal.tokenizer)
        first, again = (turns.row(np.random.default_rng(4), 200) for _ in range(2))
        assert (first == again).all()
        assert len(first) == 200
        assert (first == 0).sum() >= 1

    def test_a_batch_has_as_many_as_were_asked_for(self, causal: Prepared) -> None:
        size = causal.tokenizer.get_vocab_size()
        turns = Turns.of({"One": self.book}, causal.tokenizer)
        rows = CausalRows(np.full(500, 5), size, turns=turns)
        batch = rows.batch(np.random.default_rng(0), 400, 32, 0.2, turns=0.2)
        text = (batch[:, 1:] == 5).all(1)
        assert (~text).mean() == pytest.approx(0.2, abs=0.05)
        assert {causal.tokenizer.token_to_id("<|user|>")} <= set(batch[~text].ravel().tolist())

    def test_a_chat_is_what_the_template_writes(self, causal: Prepared, tmp_path: Path) -> None:
        tokens.save_tokenizer(causal.tokenizer, tmp_path, 256)
        loaded = AutoTokenizer.from_pretrained(tmp_path)
        first, second = Fact("One.", "Which?", "One."), Fact("Two.", "And?", "Two.")
        messages = [
            {"role": "user", "content": "Document 1: One.\n\nDocument 2: Two.\n\nWhich?"},
            {"role": "assistant", "content": "One."},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "Two."},
        ]
        written = loaded.apply_chat_template(messages, tokenize=False)
        assert written == END + chat([first, second], [first, second], None)
        documents = [{"role": "system", "content": "Document 1: One."}, messages[2]]
        asked = loaded.apply_chat_template(documents, tokenize=False, add_generation_prompt=True)
        assert f"{asked}One.{END}" == END + chat([first], [Fact("", "And?", "One.")], "")
        assert loaded.convert_tokens_to_ids(["<|system|>", "<|user|>", "<|assistant|>"]) == [
            1,
            2,
            3,
        ]
        assert {1, 2, 3} <= set(loaded.all_special_ids)

    def test_a_sheet_is_as_spans_writes_it(self) -> None:
        facts = [Fact("One.", "Which?", "One."), Fact("Two.", "And?", "Two.")]
        assert sheet(facts, facts[1]) == (
            f"Document 1: One.\n\nDocument 2: Two.\n\nQuestion: And?\nAnswer: Two.{END}"
        )


class TestHead:
    def test_loss_and_gradients_are_those_of_float64(self) -> None:
        torch.manual_seed(0)
        count = ROWS + 7
        hidden, weight = torch.randn(count, 12), torch.randn(50, 12)
        targets = torch.randint(0, 50, (count,))
        ours = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
        exact = hidden.double().requires_grad_(), weight.double().requires_grad_()
        loss = head_loss(*ours, targets)
        (3 * loss).backward()
        right = torch.nn.functional.cross_entropy(exact[0] @ exact[1].T, targets)
        (3 * right).backward()
        assert float(loss.detach()) == pytest.approx(float(right.detach()), rel=1e-6)
        for mine, true in zip(ours, exact, strict=True):
            assert mine.grad is not None
            assert true.grad is not None
            assert torch.allclose(mine.grad.double(), true.grad, atol=1e-6)


class TestPairRows:
    def test_rows_have_their_separators_and_segments(self, masked: Prepared) -> None:
        special = special_ids(masked.tokenizer)
        stream = np.concatenate(list(masked.train.values()))
        rows = PairRows.of(stream, stop_ids(masked.tokenizer), 200, special).plain()
        ids, segments = rows.batch(np.random.default_rng(0), 16, 64)
        assert (ids[:, 0] == special["[CLS]"]).all()
        assert (ids[:, -1] == special["[SEP]"]).all()
        assert ((ids == special["[SEP]"]).sum(1) == 2).all()
        for row, segment in zip(ids, segments, strict=True):
            end = int((row == special["[SEP]"]).argmax())
            assert (segment[: end + 1] == 0).all()
            assert (segment[end + 1 :] == 1).all()

    def test_masking(self) -> None:
        ids = np.tile(np.arange(1000), (50, 1))
        inputs, labels = mask_tokens(np.random.default_rng(0), ids, 0.2, 5, 4, 1000)
        chosen = labels != IGNORED
        assert not chosen[:, :5].any()
        assert (labels[chosen] == ids[chosen]).all()
        assert (inputs[~chosen] == ids[~chosen]).all()
        assert chosen[:, 5:].mean() == pytest.approx(0.2, abs=0.01)
        assert (inputs[chosen] == 4).mean() == pytest.approx(0.8, abs=0.02)
        assert (inputs[chosen] == ids[chosen]).mean() == pytest.approx(0.1, abs=0.02)


class TestNgrams:
    stream = np.random.default_rng(1).zipf(1.6, 4000) % 23

    def test_every_context_sums_to_one(self) -> None:
        model = Trigram.of(self.stream, 24)
        tokens = np.arange(24)
        for first, second in [(1, 2), (1, 1), (0, 22), (23, 1), (1, 23), (23, 23)]:
            given = model.probabilities(np.full(24, first), np.full(24, second), tokens)
            assert given.min() > 0
            assert given.sum() == pytest.approx(1, abs=1e-12)

    def test_one_context_by_hand(self) -> None:
        """The stream abcabcabd: after ab, c twice and d once; c follows b alone, and so on."""
        model = Trigram.of(np.asarray([0, 1, 2, 0, 1, 2, 0, 1, 3]), 4)
        one, two, three = model.orders
        assert three.totals[three.contexts == 0 * 4 + 1].item() == 3
        # distinct trigrams end in bc, ca, ab, bd: each bigram continues one context
        assert two.ngrams.tolist() == [0 * 4 + 1, 1 * 4 + 2, 1 * 4 + 3, 2 * 4 + 0]
        assert two.totals.tolist() == [1, 2, 1]
        # and each token ends one distinct bigram
        assert one.ngrams.tolist() == [0, 1, 2, 3]
        assert one.totals.tolist() == [4]

    def test_it_beats_guessing_and_uses_context(self) -> None:
        pattern = np.tile([1, 2, 1, 3], 200)
        assert Trigram.of(pattern, 4).losses(pattern[:80]).mean() < 0.1

    def test_likeliest_after(self) -> None:
        stream = np.asarray([0, 1, 0, 1, 0, 2, 2])
        assert likeliest_after(stream, 4).tolist() == [1, 0, 2, 0]


class TestScores:
    def test_attention_to_the_token_before_is_that_by_attnvizs_definition(self) -> None:
        weights = torch.zeros(1, 1, 2, 6, 6)
        weights[0, 0, 0, range(1, 6), range(5)] = 1
        weights[0, 0, 0, 0, 0] = 1
        weights[0, 0, 1, :, 0] = 1
        ids = torch.tensor([[0, 5, 6, 7, 8, 9]])
        scores = score_weights(weights, ids, ("previous", "first", "induction"), {0})
        assert scores["previous"].tolist() == [[1, 0]]
        assert scores["first"].tolist() == [[0, 1]]
        assert scores["induction"].isnan().all()


class TestOptim:
    def test_orthogonalized_has_singular_values_near_one(self) -> None:
        torch.manual_seed(0)
        for shape in ((16, 16), (16, 40), (40, 16)):
            values = torch.linalg.svdvals(orthogonalized(torch.randn(shape)))
            assert 0.5 < values.min() <= values.max() < 1.5

    def test_the_schedule_warms_up_stays_and_falls(self) -> None:
        schedule = Schedule(steps=1000, warmup=100)
        assert schedule.factor(0) == pytest.approx(0.01)
        assert schedule.factor(99) == schedule.factor(500) == 1
        assert schedule.factor(800) == pytest.approx(0.5)
        assert schedule.factor(1000) == 0

    def test_late_positions_learn_faster_once_the_rates_fall(self) -> None:
        model = gpt2.build(300, 1)
        schedule = Schedule(steps=1000, warmup=100)
        _, adamw = optimizers(model, Rates(late_positions=3.0))
        wanted = {500: 1.0, 800: 3.0}
        for step, times in wanted.items():
            set_rates(adamw, schedule, step)
            for group in adamw.param_groups:
                late = times if group["params"][0] is model.transformer.wpe.weight else 1.0
                assert group["lr"] == pytest.approx(group["peak"] * schedule.factor(step) * late)


def weights(job: gpt2.Causal | bert.Masked) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in job.model.parameters()])


class TestRuns:
    @pytest.mark.parametrize("kind", ["causal", pytest.param("masked", marks=pytest.mark.slow)])
    def test_resumed_and_uninterrupted_runs_end_alike(
        self, kind: str, causal: Prepared, masked: Prepared, tmp_path: Path
    ) -> None:
        data, task = {"causal": (causal, gpt2.Causal), "masked": (masked, bert.Masked)}[kind]
        whole = task(data)
        assert run(whole, Settings(tmp_path / "whole", steps=2, quiet=True)) == 2
        first = task(data)
        assert run(first, Settings(tmp_path / "parts", steps=2, minutes=0, quiet=True)) == 1
        second = task(data)
        assert run(second, Settings(tmp_path / "parts", steps=2, quiet=True)) == 2
        assert torch.equal(weights(whole), weights(second))
        assert not torch.equal(weights(first), weights(second))
        assert sorted(p.name for p in (tmp_path / "parts").iterdir()) == ["log.jsonl", STATE]

    def test_checkpoints_are_shown_every_so_many_steps_and_at_the_end(
        self, causal: Prepared, tmp_path: Path
    ) -> None:
        seen: list[int] = []
        settings = Settings(
            tmp_path, steps=3, quiet=True, checkpoint=seen.append, checkpoint_every=2
        )
        run(gpt2.Causal(causal), settings)
        assert seen == [0, 2, 3]

    def test_another_seed_or_a_late_change_of_length_is_refused(
        self, causal: Prepared, tmp_path: Path
    ) -> None:
        run(gpt2.Causal(causal), Settings(tmp_path, steps=2, quiet=True))
        with pytest.raises(SystemExit, match="seed 1, not 2"):
            run(gpt2.Causal(causal), Settings(tmp_path, steps=2, seed=2, quiet=True))
        with pytest.raises(SystemExit, match="can no longer be moved"):
            run(gpt2.Causal(causal), Settings(tmp_path, steps=9, quiet=True))


class TestFolders:
    """What ``--out`` holds loads through transformers, and evaluate.py reads it."""

    def test_gpt2(self, books: Path, tmp_path: Path) -> None:
        data = prepare(books, tmp_path, ("Two_1901",), train_bpe, 320, gpt2.POSITIONS, 1)
        model = gpt2.build(data.tokenizer.get_vocab_size(), 1)
        export(model, tmp_path)
        loaded, keys = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
        assert not keys["missing_keys"]
        assert not keys["unexpected_keys"]
        assert loaded.dtype == torch.float16
        ids = torch.tensor([AutoTokenizer.from_pretrained(tmp_path)("the goose").input_ids])
        assert ids[0, 0] == special_id(data.tokenizer, END)
        expected = model(ids).logits
        assert torch.allclose(loaded.float()(ids).logits, expected, atol=0.01)
        names = {figure.name for figure in evaluate.figures(tmp_path, books, ("Two_1901",))}
        assert {
            "previous token, rows of 128",
            "lower than the trigram by",
            "second over first",
        } <= names

    def test_bert(self, books: Path, tmp_path: Path) -> None:
        data = prepare(books, tmp_path, ("Two_1901",), train_wordpiece, 200, bert.POSITIONS, 1)
        export(bert.build(data.tokenizer.get_vocab_size(), 1), tmp_path)
        loaded, keys = AutoModelForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)
        assert not keys["missing_keys"]
        assert not keys["unexpected_keys"]
        encoded = AutoTokenizer.from_pretrained(tmp_path)("The Goose", "a pond")
        assert encoded.token_type_ids[-1] == 1
        assert loaded.config.type_vocab_size == 2
        names = {figure.name for figure in evaluate.figures(tmp_path, books, ("Two_1901",))}
        assert {"next token", "times the commonest token", "over the better bigram"} <= names
