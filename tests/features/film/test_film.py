"""Films: loss against transformers; when something changed, by hand; series; in-context."""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import attnviz as av
from attnviz.captures import trials
from attnviz.cli import app
from attnviz.core.heads import Head, Site
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.features.film import description, steps, summary
from attnviz.features.film.description import clearest, headline, spans, title
from attnviz.features.film.measure import in_context
from attnviz.features.film.result import Film
from attnviz.features.film.steps import series
from attnviz.statistics.simultaneous import REPLICATES, poisson
from tests import ROOT
from tests.corpus.gold.sentences import treebank
from tests.reference_scores import score as reference
from tests.viewing import Opened, opened


class TestPassed:
    def test_it_is_the_first_checkpoint_past_the_middle_of_the_last_rise(self) -> None:
        curves = [
            [0.1, 0.1, 0.2, 0.9, 1.0],  # the middle is 0.55
            [0.1, 0.7, 0.2, 0.3, 1.0],  # a bump before does not count
            [0.1, 0.6, 0.9, 0.2, 0.1],  # nor does what comes after the highest value
            [0.9, 0.5, 0.4, 0.3, 0.2],  # never rose
            [0.2, 0.2, 0.2, 0.2, 0.2],
            [np.nan, 0.0, 0.0, 1.0, 1.0],
            [np.nan] * 5,
        ]
        assert summary.passed(np.array(curves)).tolist() == [3, 4, 1, 0, 0, 3, 0]

    def test_against_a_plain_loop(self) -> None:
        rng = np.random.default_rng(0)
        for curve in rng.random((200, 9)):
            top = int(curve.argmax())
            middle = (curve[: top + 1].min() + curve[top]) / 2
            rises = [s for s in range(1, top + 1) if curve[s - 1] < middle <= curve[s]]
            assert summary.passed(curve[None])[0] == (rises[-1] if rises else 0)


def simulated(
    rng: np.random.Generator, middle: float, size: float, *, noisy: bool
) -> tuple[int, np.ndarray]:
    """Where a score of 30 texts passed its middle, and its draws; it rises between checkpoints."""
    at = np.arange(24)
    rise = 0.6 / (1 + np.exp(-(at - middle) / 1.2))
    texts = rise[:, None] * (1 + rng.normal(0, 0.25, 30)) + rng.normal(0, 0.05, (24, 30))
    rows = rng.integers(3, 20, 30)
    a = (texts + rng.normal(0, size, 24)[:, None]) * rows
    curve = a.sum(1) / rows.sum()
    draws = summary.drawn(a, np.broadcast_to(rows, a.shape), 1.0 * rng.poisson(1, (400, 30)))
    if noisy:
        draws = summary.jittered(draws, curve, (0, int(rng.integers(1 << 30))))
    return int(summary.passed(curve[None])[0]), summary.passed(draws)


class TestJitter:
    """Training goes up and down between checkpoints by more than texts explain."""

    def test_it_is_the_deviation_of_what_neighbours_do(self) -> None:
        rng = np.random.default_rng(3)
        line = np.linspace(0, 5, 4000)
        assert summary.jitter(line) == pytest.approx(0, abs=1e-12)
        assert summary.jitter(line + rng.normal(0, 0.08, 4000)) == pytest.approx(0.08, rel=0.05)
        assert summary.jitter(line[:5] + rng.normal(0, 0.08, 5)) == 0  # too few to tell

    def test_intervals_of_steps_hold_where_checkpoints_jump(self) -> None:
        held = {}
        for noisy in (False, True):
            rng, steps, inside = np.random.default_rng(4), range(24), []
            for _ in range(80):
                middle = 8 + 4 * rng.random()
                index, draws = simulated(rng, middle, 0.08, noisy=noisy)
                if index:
                    found = summary.when(index, draws, steps, texts=30)
                    inside.append(found.low <= middle <= found.high)
            held[noisy] = np.mean(inside)
        assert held[True] >= 0.92
        assert held[False] < 0.85

    def test_events_at_once_come_in_no_order(self) -> None:
        rng, named = np.random.default_rng(5), 0
        for _ in range(60):
            middle = 8 + 4 * rng.random()
            events = sorted((simulated(rng, middle, 0.08, noisy=True) for _ in range(2)),
                            key=lambda one: one[0])  # fmt: skip
            low, _, _ = summary.apart(events[0][1], events[1][1], range(24), texts=30)
            named += low > 0
        assert named / 60 <= 0.05


class TestDraws:
    def test_means_of_draws_are_ratios_of_sums(self) -> None:
        rng = np.random.default_rng(1)
        a, b = rng.random((3, 7)), rng.integers(0, 5, (3, 7))
        often = rng.integers(0, 3, (4, 7)).astype(float)
        found = summary.drawn(a, b, often)
        for r in range(4):
            for s in range(3):
                texts = np.repeat(np.arange(7), often[r].astype(int))
                assert found[r, s] == pytest.approx(a[s, texts].sum() / b[s, texts].sum())

    def test_intervals_of_steps_begin_at_the_checkpoint_before(self) -> None:
        steps = (0, 100, 200, 300, 400)
        at = summary.when(2, np.full(1000, 2), steps, texts=50)
        assert (at.step, at.low, at.high) == (200, 100, 200)
        mixed = np.repeat([1, 2, 3], [100, 800, 100])
        at = summary.when(2, mixed, steps, texts=50)
        assert (at.low, at.high) == (0, 300)
        assert summary.when(2, mixed, steps, texts=4).low is None

    def test_events_between_the_same_checkpoints_are_in_no_order(self) -> None:
        steps = (0, 100, 200, 300)
        low, high, share = summary.apart(np.full(1000, 1), np.full(1000, 3), steps, texts=50)
        assert (low, high, share) == (100, 300, 1.0)
        low, high, share = summary.apart(np.full(1000, 2), np.full(1000, 2), steps, texts=50)
        assert (low, high, share) == (-100, 100, 0.0)

    def test_intervals_hold_as_often_as_they_say(self) -> None:
        """The middle of a known rise, of texts drawn 200 times: 95 of 100 intervals have it."""
        rng = np.random.default_rng(2)
        steps = tuple(range(0, 1000, 20))
        slopes = np.array(steps) / 1000
        held = 0
        for sample in range(200):
            starts = rng.normal(0.5, 0.15, 40)  # where each text's own rise has its middle
            a = 1 / (1 + np.exp(-(slopes[:, None] - starts) * 25))
            rows = np.ones(a.shape, np.int64)
            index = int(summary.passed(a.mean(1)[None])[0])
            often = poisson(0, [f"{sample}/{n}" for n in range(40)], REPLICATES)
            at = summary.when(index, summary.passed(summary.drawn(a, rows, often)), steps, 40)
            assert at.low is not None
            assert at.high is not None
            held += at.low <= 500 <= at.high
        assert 0.90 <= held / 200 <= 1.0

    def test_shifts(self) -> None:
        draws = np.stack([np.zeros(1000), np.linspace(0, 1, 1000)], 1)
        low, high = summary.shifted(draws, 0, 1, 50)
        assert low == pytest.approx(0.025, abs=1e-3)
        assert high == pytest.approx(0.975, abs=1e-3)
        assert summary.shifted(draws, 0, 1, 4) == (None, None)


class TestInContext:
    def test_of_512_tokens_it_is_the_500th_less_the_50th(self) -> None:
        losses = np.zeros(512)
        losses[492:509] = 1.0
        losses[42:59] = 4.0
        assert in_context(losses) == -3.0
        losses[42 - 1] = losses[59] = 99.0  # the band is 8 to both sides
        assert in_context(losses) == -3.0

    def test_short_texts_have_none(self) -> None:
        assert in_context(np.zeros(31)) is None
        losses = np.arange(32.0)
        assert in_context(losses) == 31 - 3


class TestSeries:
    def test_folders_are_in_the_order_of_their_numbers(self, tmp_path: Path) -> None:
        for name in ("step-2", "step-10", "step-9", "best"):
            (tmp_path / name).mkdir()
        found = series(f"{tmp_path}/step-*")
        assert [one.step for one in found] == [2, 9, 10]
        with pytest.raises(UsageError, match="best has no number"):
            series(f"{tmp_path}/*")
        with pytest.raises(InputError, match="no folder matches"):
            series(f"{tmp_path}/epoch-*")
        with pytest.raises(UsageError, match="two checkpoints or more"):
            series(tmp_path / "step-2")
        (tmp_path / "other-9").mkdir()
        with pytest.raises(UsageError, match="both of step 9"):
            series([f"{tmp_path}/step-*", tmp_path / "other-9"])

    def test_revisions(self) -> None:
        found = series("name/model-70m@step512,step1000, step64")
        assert [(one.step, one.model) for one in found] == [
            (64, "name/model-70m@step64"),
            (512, "name/model-70m@step512"),
            (1000, "name/model-70m@step1000"),
        ]
        with pytest.raises(InputError, match="no folder name/model"):
            series("name/model")


def test_a_film_is_called_by_the_folder_of_its_run() -> None:
    def titled(model: str) -> str:
        film = SimpleNamespace(source=SourceInfo(model, "hooked", ""), steps=(0, 400))
        return title(film)  # type: ignore[arg-type]

    assert titled("parent/run/step-400") == "Heads during training: run"
    assert titled("EleutherAI/pythia-70m@step400") == (
        "Heads during training: EleutherAI/pythia-70m@step400"
    )
    assert titled("org/run-7") == "Heads during training: org/run-7"
    assert titled("step-400") == "Heads during training, step 0 to 400", "a checkpoint is no run"


def test_a_page_is_headed_by_what_a_head_became() -> None:
    head = Head(Site("decoder", 2), 0)
    formed = [
        SimpleNamespace(
            head=head, role="induction", step=1200, low=800, high=1200, least=0.1, most=0.9
        ),
        SimpleNamespace(
            head=head, role="previous", step=20, low=None, high=None, least=0, most=0.3
        ),
    ]
    film = SimpleNamespace(
        source=SourceInfo("runs/mine/step-4000", "hooked", ""), steps=(0, 4000),
        formations=formed, layout=SimpleNamespace(name=lambda one: one.name),
    )  # fmt: skip
    said = "Head 2.0 of mine becomes an induction head at step 1,200 (800–1,200)"
    assert headline(film) == said  # type: ignore[arg-type]
    film.formations = []
    assert headline(film) == "No head of mine takes on a role, step 0 to 4,000"  # type: ignore[arg-type]


def filmed(folder: Path, **options: Any) -> Film:
    known = json.loads((folder / "optimum.json").read_text())
    found: Film = av.film(folder / "texts.txt", model=f"{folder}/step-*", baseline=known, **options)
    return found


@pytest.fixture(scope="module")
def short(run: Path) -> Film:
    return filmed(run)


@pytest.fixture(scope="module")
def two() -> Film:
    """The whole run of the recipe, which is shipped."""
    return av.read(ROOT / "sample_inputs/phases/markov-2.json")


def ids_of(folder: Path) -> torch.Tensor:
    lines = (folder / "texts.txt").read_text().splitlines()
    vocabulary = json.loads((folder / "step-00000/tokenizer.json").read_text())["model"]["vocab"]
    return torch.tensor([[vocabulary[word] for word in line.split()] for line in lines])


@pytest.mark.slow
class TestThePhaseChange:
    @pytest.fixture(scope="class")
    def one(self, runs: dict[int, Path]) -> Film:
        return filmed(runs[1])

    @pytest.fixture(scope="class")
    def two(self, runs: dict[int, Path]) -> Film:
        return filmed(runs[2])

    def test_two_layers_reach_the_bigram_and_one_stays_at_the_unigram(
        self, one: Film, two: Film
    ) -> None:
        for film, near, far in ((one, "unigram", "bigram"), (two, "bigram", "unigram")):
            last = film.loss.mean[-1]
            assert abs(last - film.baselines[near]) < 0.5 * abs(last - film.baselines[far])
            assert abs(film.loss.mean[0] - film.baselines["uniform"]) < 0.1

    def test_heads_form_in_two_layers_and_none_in_one(self, one: Film, two: Film) -> None:
        formed = {(two.layout.name(f.head), f.role) for f in two.formations}
        assert {("0.0", "previous"), ("1.0", "induction")} <= formed
        assert not {f.role for f in one.formations} & {"previous", "induction"}

    def test_the_order_of_events(self, two: Film) -> None:
        """The second layer looks for the right keys before the first one is sharp."""
        (order,) = (o for o in two.order if (o.first, o.then) == ("induction", "previous"))
        assert order.low is not None
        assert 0 <= order.low <= order.steps <= order.high
        assert order.share is not None
        assert order.share > 0.9
        first = {event.name: event for event in two.events}
        assert 200 < first["induction"].step <= first["previous"].step <= 1080

    def test_the_loss_falls_while_they_form(self, two: Film) -> None:
        """Most of what it falls after the plateau; one step alone may fall no more than noise."""
        forming = [f.step for f in two.formations if f.role in ("previous", "induction")]
        before = two.loss.mean[two.steps.index(min(forming)) - 1]
        after = two.loss.mean[two.steps.index(max(forming))]
        assert before - after > 0.5 * (before - two.loss.mean[-1]) > 0.02


class TestMeasured:
    @pytest.mark.parametrize("place", [0, -1])
    def test_scores_and_losses_are_those_of_transformers(
        self, run: Path, short: Film, place: int
    ) -> None:
        folder = run / short.names[place]
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").double()
        ids = ids_of(run)
        with torch.no_grad():
            output = model(ids, output_attentions=True)
        losses = torch.nn.functional.cross_entropy(
            output.logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none"
        ).numpy()
        assert short.loss.mean[place] == pytest.approx(losses.mean(), abs=2e-4)
        wanted = np.mean([in_context(row) for row in losses])
        assert short.in_context is not None
        assert short.in_context.mean[place] == pytest.approx(wanted, abs=2e-4)
        names = [tuple(map(str, row)) for row in ids.tolist()]
        sides = [Sides(Tokens(row), Tokens(row)) for row in names]
        mask = np.tril(np.ones((1, ids.shape[1], ids.shape[1]), bool))
        for layer, maps in enumerate(output.attentions):
            for score in ("previous", "induction", "duplicate", "entropy"):
                ((mean, chance, _),) = reference(
                    score, list(maps.numpy()), [mask] * len(ids), sides
                )
                curve = short.heads[layer].scores[score]
                assert curve.mean[place] == pytest.approx(mean, abs=2e-4)
                assert curve.chance == pytest.approx(chance, abs=2e-4)

    def test_intervals_are_those_of_texts(self, run: Path, short: Film) -> None:
        model = AutoModelForCausalLM.from_pretrained(run / short.names[-1]).double()
        ids = ids_of(run)
        with torch.no_grad():
            logits = model(ids).logits
        means = torch.nn.functional.cross_entropy(
            logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none"
        ).mean(1).numpy()  # fmt: skip
        error = means.std(ddof=1) / np.sqrt(len(means))
        from scipy.stats import t

        assert short.loss.half[-1] == pytest.approx(t.ppf(0.975, len(means) - 1) * error, abs=2e-4)

    def test_maps_of_the_first_text_are_kept(self, run: Path, short: Film) -> None:
        maps = summary.unpacked(short)
        assert maps is not None
        assert maps.shape == (len(short.steps), 2, 24, 24)
        own = av.capture(
            (run / "texts.txt").read_text().splitlines()[0], model=str(run / short.names[-1])
        )
        (_, last) = own.maps.values()
        assert np.abs(maps[-1, 1] / 255 - last[0, :24, :24]).max() <= 0.5 / 255 + 1e-6
        assert summary.unpacked(filmed(run, map_tokens=0, limit=6, scores=("previous",))) is None

    def test_probe_and_ablation_and_a_treebank(self, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.setattr(trials, "PROBE_SEEDS", 4)
        for step in (1, 2):
            source = Path(av.__file__).parent / "models/demo/demo-gpt2"
            shutil.copytree(source, tmp_path / f"step-{step}")
        texts = ["The cat sat on the mat and the dog sat.", "One two three one two three."]
        gold = tmp_path / "g.conllu"
        gold.write_text(treebank(30))
        found = av.film(
            texts=texts,
            model=f"{tmp_path}/step-*", probe=True, ablate=True, scores=("previous", "induction"),
            gold=gold,
        )  # fmt: skip
        assert found.probed == 4 * 3
        assert found.texts == len(texts)
        report = av.ablate(texts, method="mean,resample")
        effects = {e.heads[0]: e.change for e in report.effects if len(e.heads) == 1}
        for head in found.heads:
            assert head.effect is not None
            assert head.effect.mean[0] == pytest.approx(effects[head.head], abs=1e-4)
            assert head.effect.mean[0] == head.effect.mean[1]
        best = max(found.heads, key=lambda head: head.scores["induction"].mean[0] or 0)
        assert (best.scores["induction"].mean[0] or 0) > 0.5
        roles = {title for head in found.heads for title in head.roles[0]}
        annotated = av.syntax(gold).annotated_roles()
        wanted = {role.title for several in annotated.values() for role, _ in several}
        assert set() < wanted <= roles


class TestRuns:
    def test_jobs_and_resumed_runs_give_the_same_bits(self, run: Path, tmp_path: Path) -> None:
        texts = tmp_path / "texts.txt"
        texts.write_text("\n".join((run / "texts.txt").read_text().splitlines()[:12]))
        keep = tmp_path / "kept"
        whole = av.film(texts, model=f"{run}/step-*", state=keep)
        assert av.film(texts, model=f"{run}/step-*", jobs=2) == whole
        files = sorted(keep.iterdir())
        assert [path.name for path in files] == [f"step-{step:08}.film.npz" for step in (0, 20, 40)]
        stamp = files[0].stat().st_mtime_ns
        files[1].unlink()
        assert av.film(texts, model=f"{run}/step-*", state=keep) == whole
        assert files[0].stat().st_mtime_ns == stamp
        assert av.read(keep) == whole
        with pytest.raises(UsageError, match="other texts, settings or weights"):
            av.film(texts, model=f"{run}/step-*", state=keep, scores=("previous",))

    def test_steps_of_other_texts_are_refused(self, run: Path, tmp_path: Path) -> None:
        for start in (0, 5):
            lines = (run / "texts.txt").read_text().splitlines()[start : start + 8]
            av.film(texts=lines, model=[run / "step-00000", run / "step-00040"],
                    state=tmp_path / str(start))  # fmt: skip
        shutil.copy(steps.path_of(tmp_path / "5", 40), steps.path_of(tmp_path / "0", 40))
        with pytest.raises(UsageError, match="measured with other texts"):
            av.read(tmp_path / "0")

    def test_damaged_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "step-00000001.film.npz").write_bytes(b"PK nothing")
        with pytest.raises(InputError, match="no step of a film"):
            av.read(tmp_path)
        with pytest.raises(InputError, match="holds no steps"):
            av.read(tmp_path.parent)


class TestForms:
    def test_rows_are_long(self, two: Film) -> None:
        rows = two.to_records()
        per_step = 2 + sum(len(head.scores) for head in two.heads)
        assert len(rows) == len(two.steps) * per_step
        (row,) = (
            row for row in rows
            if (row["step"], row["layer"], row["quantity"]) == (two.steps[-1], 1, "induction")
        )  # fmt: skip
        assert row["mean"] == two.heads[1].scores["induction"].mean[-1]
        assert row["low"] < row["mean"] < row["high"]

    def test_the_terminal(self, two: Film) -> None:
        text = str(two)
        assert "The first induction head forms at step" in text
        assert "While 1.0 forms (induction): loss -" in text
        assert "unigram 1." in " ".join(text.split())
        out = io.StringIO()
        for part in description.parts(two):
            Console(file=out, width=60, color_system=None).print(part)
        assert max(map(len, out.getvalue().splitlines())) <= 60

    def test_spans_are_when_roles_are_sure(self, two: Film) -> None:
        head = two.heads[1]
        for span in spans(two, head):
            inside = [
                span.role in roles
                for step, roles in zip(two.steps, head.roles, strict=True)
                if span.start <= step <= span.end
            ]
            assert all(inside)

    def test_the_picture(self, two: Film) -> None:
        drawn = two.to_bytes("svg", width=6.0).decode()
        assert "training step" in drawn
        assert "bigram" in drawn

    def test_the_command(self, two: Film, run: Path, tmp_path: Path) -> None:
        invoke = CliRunner().invoke
        two.save(tmp_path / "film.json")
        path = str(tmp_path / "film.json")
        shown = invoke(app, ["film", path, "--baseline", "best=1.0", "--json"])
        assert shown.exit_code == 0, shown.output
        assert Film.from_json(shown.stdout).baselines["best"] == 1.0
        done = invoke(
            app,
            ["film", "-m", str(run / "step-0000?"), "-m", str(run / "step-00040"),
             "--texts", str(run / "texts.txt"), "--scores", "previous", "--csv", "-q",
             "-o", str(tmp_path / "film.html")],
        )  # fmt: skip
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("step,checkpoint,layer,index,head,quantity,mean,low,high")
        assert b"<script" in (tmp_path / "film.html").read_bytes()


@pytest.fixture(scope="module")
def page(two: Film, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two.save(tmp_path_factory.mktemp("page") / "film.html")


class TestPage:
    @pytest.fixture
    def seen(self, browser: Any, page: Path) -> Iterator[Opened]:
        with opened(browser) as found:
            yield found.visit(page)

    def test_the_slider_moves_everything(self, seen: Opened, two: Film) -> None:
        look = seen.page
        look.click("#grid button:has-text('1.0')")
        for place in (0, len(two.steps) - 1):
            look.fill("#step", str(place))
            value = two.heads[1].scores["induction"].mean[place]
            said = look.text_content("#grid button[aria-pressed=true]")
            assert f"{value:.2f}" in said
            assert f"step {two.steps[place]:,}" in look.inner_text("#name")
        assert "induction" in look.inner_text("#name")
        look.click("#events button:has-text('induction')")
        step = next(event.step for event in two.events if event.name == "induction")
        assert f"{step:,} (" in look.inner_text("#at")
        assert f"step={step}" in look.evaluate("location.hash")

    def test_cells_of_maps_are_read_by_keys(self, seen: Opened, two: Film) -> None:
        look = seen.page
        look.focus("#map")
        for _ in range(5):
            look.keyboard.press("ArrowDown")
        for _ in range(4):
            look.keyboard.press("ArrowRight")
        maps = summary.unpacked(two)
        assert maps is not None
        head = next(n for n, h in enumerate(two.heads) if h.head == clearest(two).head)
        weight = round(maps[-1, head, 5, 4] / 255, 3)
        said = re.search(r"\(5\) → .* \(4\): (.*)", look.inner_text("#cell"))
        assert said is not None
        assert float(said[1]) == pytest.approx(weight, abs=0.006)
        for _ in range(4):
            look.keyboard.press("ArrowRight")
        assert "not allowed" in look.inner_text("#cell")

    def test_it_plays(self, seen: Opened) -> None:
        seen.page.fill("#step", "0")
        seen.page.click("#play")
        seen.page.wait_for_timeout(1100)
        seen.page.click("#play")
        assert int(seen.page.input_value("#step")) >= 1


@pytest.mark.parametrize("field", ["names", "steps", "loss", "scores"])
def test_a_film_whose_lengths_do_not_fit_is_damaged(tmp_path: Path, field: str) -> None:
    document = json.loads((ROOT / "sample_inputs/phases/markov-1.json").read_text())
    if field == "loss":
        document["loss"]["mean"] = [None] * len(document["steps"])
    elif field == "scores":
        document["heads"][0]["scores"] = {}
    else:
        document[field] = document[field][::-1][1:]
    (tmp_path / "film.json").write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"film\.json is damaged"):
        av.read(tmp_path / "film.json")
