"""When something changed, by hand; series of names; in-context scores."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from attnviz.core.heads import Head, Site
from attnviz.core.provenance import SourceInfo
from attnviz.errors import InputError, UsageError
from attnviz.features.film.description import headline, title
from attnviz.features.film.measure import in_context
from attnviz.features.film.series import series
from attnviz.features.film.summary import (
    apart,
    drawn,
    jitter,
    jittered,
    passed,
    shifted,
    weights,
    when,
)


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
        assert passed(np.array(curves)).tolist() == [3, 4, 1, 0, 0, 3, 0]

    def test_against_a_plain_loop(self) -> None:
        rng = np.random.default_rng(0)
        for curve in rng.random((200, 9)):
            top = int(curve.argmax())
            middle = (curve[: top + 1].min() + curve[top]) / 2
            rises = [s for s in range(1, top + 1) if curve[s - 1] < middle <= curve[s]]
            assert passed(curve[None])[0] == (rises[-1] if rises else 0)


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
    draws = drawn(a, np.broadcast_to(rows, a.shape), rng.poisson(1, (400, 30)).astype(float))
    if noisy:
        draws = jittered(draws, curve, (0, int(rng.integers(1 << 30))))
    return int(passed(curve[None])[0]), passed(draws)


class TestJitter:
    """Training goes up and down between checkpoints by more than texts explain."""

    def test_it_is_the_deviation_of_what_neighbours_do(self) -> None:
        rng = np.random.default_rng(3)
        line = np.linspace(0, 5, 4000)
        assert jitter(line) == pytest.approx(0, abs=1e-12)
        assert jitter(line + rng.normal(0, 0.08, 4000)) == pytest.approx(0.08, rel=0.05)
        assert jitter(line[:5] + rng.normal(0, 0.08, 5)) == 0  # too few to tell

    def test_intervals_of_steps_hold_where_checkpoints_jump(self) -> None:
        held = {}
        for noisy in (False, True):
            rng, steps, inside = np.random.default_rng(4), range(24), []
            for _ in range(80):
                middle = 8 + 4 * rng.random()
                index, draws = simulated(rng, middle, 0.08, noisy=noisy)
                if index:
                    found = when(index, draws, steps, texts=30)
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
            low, _, _ = apart(events[0][1], events[1][1], range(24), texts=30)
            named += low > 0
        assert named / 60 <= 0.05


class TestDraws:
    def test_means_of_draws_are_ratios_of_sums(self) -> None:
        rng = np.random.default_rng(1)
        a, b = rng.random((3, 7)), rng.integers(0, 5, (3, 7))
        often = rng.integers(0, 3, (4, 7)).astype(float)
        found = drawn(a, b, often)
        for r in range(4):
            for s in range(3):
                texts = np.repeat(np.arange(7), often[r].astype(int))
                assert found[r, s] == pytest.approx(a[s, texts].sum() / b[s, texts].sum())

    def test_intervals_of_steps_begin_at_the_checkpoint_before(self) -> None:
        steps = (0, 100, 200, 300, 400)
        at = when(2, np.full(1000, 2), steps, texts=50)
        assert (at.step, at.low, at.high) == (200, 100, 200)
        mixed = np.repeat([1, 2, 3], [100, 800, 100])
        at = when(2, mixed, steps, texts=50)
        assert (at.low, at.high) == (0, 300)
        assert when(2, mixed, steps, texts=4).low is None

    def test_events_between_the_same_checkpoints_are_in_no_order(self) -> None:
        steps = (0, 100, 200, 300)
        low, high, share = apart(np.full(1000, 1), np.full(1000, 3), steps, texts=50)
        assert (low, high, share) == (100, 300, 1.0)
        low, high, share = apart(np.full(1000, 2), np.full(1000, 2), steps, texts=50)
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
            index = int(passed(a.mean(1)[None])[0])
            often = weights([f"{sample}/{n}" for n in range(40)], 0)
            at = when(index, passed(drawn(a, rows, often)), steps, 40)
            assert at.low is not None
            assert at.high is not None
            held += at.low <= 500 <= at.high
        assert 0.90 <= held / 200 <= 1.0

    def test_shifts(self) -> None:
        draws = np.stack([np.zeros(1000), np.linspace(0, 1, 1000)], 1)
        low, high = shifted(draws, 0, 1, 50)
        assert low == pytest.approx(0.025, abs=1e-3)
        assert high == pytest.approx(0.975, abs=1e-3)
        assert shifted(draws, 0, 1, 4) == (None, None)


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
