"""Films: what they measure, the phase change, and every form in which they are shown."""

import io
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import numpy as np
import pytest
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM
from typer.testing import CliRunner

import attnviz as av
from attnviz.cli import app, main
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.features.film import description, steps
from attnviz.features.film.description import clearest, spans
from attnviz.features.film.function import read_film
from attnviz.features.film.measure import in_context
from attnviz.features.film.result import Film
from attnviz.features.film.summary import unpacked
from tests import ROOT, mostly_slow
from tests.reference_scores import score as reference
from tests.viewing import Opened, opened


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
        maps = unpacked(short)
        assert maps is not None
        assert maps.shape == (len(short.steps), 2, 24, 24)
        own = av.capture(
            (run / "texts.txt").read_text().splitlines()[0], model=str(run / short.names[-1])
        )
        (_, last) = own.maps.values()
        assert np.abs(maps[-1, 1] / 255 - last[0, :24, :24]).max() <= 0.5 / 255 + 1e-6
        assert unpacked(filmed(run, map_tokens=0, limit=6, scores=("previous",))) is None

    def test_probe_and_ablation_and_a_treebank(self, tmp_path: Path) -> None:
        for step in (1, 2):
            source = Path(av.__file__).parent / "models/demo/demo-gpt2"
            shutil.copytree(source, tmp_path / f"step-{step}")
        texts = ["The cat sat on the mat and the dog sat too.", "One two three one two three."] * 3
        found = av.film(
            texts=[f"{n} {text}" for n, text in enumerate(texts)],
            model=f"{tmp_path}/step-*", probe=True, ablate=True, scores=("previous", "induction"),
            gold="sample_inputs/treebank.conllu",
        )  # fmt: skip
        assert found.probed == 60
        assert found.texts == len(texts)
        report = av.ablate([f"{n} {text}" for n, text in enumerate(texts)], method="mean,resample")
        effects = {e.heads[0]: e.change for e in report.effects if len(e.heads) == 1}
        for head in found.heads:
            assert head.effect is not None
            assert head.effect.mean[0] == pytest.approx(effects[head.head], abs=1e-4)
            assert head.effect.mean[0] == head.effect.mean[1]
        best = max(found.heads, key=lambda head: head.scores["induction"].mean[0] or 0)
        assert (best.scores["induction"].mean[0] or 0) > 0.5
        roles = {title for head in found.heads for title in head.roles[0]}
        gold = av.syntax("sample_inputs/treebank.conllu").annotated_roles()
        wanted = {role.title for several in gold.values() for role, _ in several}
        assert wanted <= roles


class TestRuns:
    def test_jobs_and_resumed_runs_give_the_same_bits(self, run: Path, tmp_path: Path) -> None:
        texts = run / "texts.txt"
        keep = tmp_path / "kept"
        whole = av.film(texts, model=f"{run}/step-*", state=keep)
        assert av.film(texts, model=f"{run}/step-*", jobs=2) == whole
        files = sorted(keep.iterdir())
        assert [path.name for path in files] == [
            f"step-{step:08}.film.npz" for step in (0, 60, 120)
        ]
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
            av.film(texts=lines, model=[run / "step-00000", run / "step-00120"],
                    state=tmp_path / str(start))  # fmt: skip
        shutil.copy(steps.path_of(tmp_path / "5", 120), steps.path_of(tmp_path / "0", 120))
        with pytest.raises(UsageError, match="measured with other texts"):
            av.read(tmp_path / "0")

    def test_damaged_files_are_refused(self, tmp_path: Path) -> None:
        (tmp_path / "step-00000001.film.npz").write_bytes(b"PK nothing")
        with pytest.raises(InputError, match="no step of a film"):
            av.read(tmp_path)
        with pytest.raises(InputError, match="holds no steps"):
            av.read(tmp_path.parent)


class TestForms:
    def test_it_is_read_back_equal(self, two: Film, tmp_path: Path) -> None:
        assert av.read(two.save(tmp_path / "film.json")) == two
        jsonschema_rs.validate(Film.json_schema(), two.to_dict())
        assert read_film(tmp_path / "film.json", baseline={"more": 1.0}).baselines["more"] == 1.0

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

    @pytest.mark.parametrize("suffix", mostly_slow([".png", ".svg", ".pdf"], ".svg"))
    def test_pictures(self, two: Film, suffix: str, tmp_path: Path) -> None:
        data = two.save(tmp_path / f"film{suffix}", width=6.0).read_bytes()
        assert data == two.to_bytes(suffix, width=6.0)
        if suffix == ".svg":
            assert "training step" in data.decode()
            assert "bigram" in data.decode()

    def test_the_command(self, two: Film, run: Path, tmp_path: Path) -> None:
        invoke = CliRunner().invoke
        two.save(tmp_path / "film.json")
        path = str(tmp_path / "film.json")
        shown = invoke(app, ["film", path, "--baseline", "best=1.0", "--json"])
        assert shown.exit_code == 0, shown.output
        assert Film.from_json(shown.stdout).baselines["best"] == 1.0
        done = invoke(
            app,
            ["film", "-m", str(run / "step-0000?"), "-m", str(run / "step-00120"),
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
            found.documents.add(page.as_uri())
            found.page.goto(page.as_uri())
            yield found

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
        maps = unpacked(two)
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


@pytest.mark.parametrize("name", ["s.txt", "absent.csv"])
def test_texts_are_no_film(name: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.txt").write_text("a b\n")
    assert main(["film", name, "--device", "cuda"]) == 1
    said = capsys.readouterr().err
    assert f"{name} is no film" in said
    assert f"--texts {name}" in said
    assert "measured already" not in said
