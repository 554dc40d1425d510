"""The training scripts: what they draw, what they save, and what comes out."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from training import bert, evaluate, gpt2
from training.command import Prepared, export, prepare
from training.loop import STATE, Settings, run
from training.ngrams import Trigram, likeliest_after
from training.optim import Rates, Schedule, optimizers, orthogonalized, set_rates
from training.samples import IGNORED, CausalRows, PairRows, mask_tokens, tile, twice
from training.text import passages, read_books, rejoin
from training.tokens import END, special_id, special_ids, stop_ids, train_bpe, train_wordpiece
from training.watch import score_weights

LINES = (
    "The miller had a daughter, and the daughter had a goose.",
    "Every morning the goose walked to the pond and back again.",
    "Was there ever a goose so fond of walking? The miller said not!",
    "One day it rained, and the pond came to the goose instead.",
)


@pytest.fixture(scope="module")
def books(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("books")
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


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of one window."""
    monkeypatch.setattr(gpt2, "BATCH", gpt2.POSITIONS)
    monkeypatch.setattr(bert, "BATCH", bert.POSITIONS)
    monkeypatch.setattr(evaluate, "PROBED", 2)
    monkeypatch.setattr(evaluate, "PAIRED", 2)


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
            "previous token, rows of 256",
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
