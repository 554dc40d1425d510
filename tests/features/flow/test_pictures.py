"""What is shown of a flow: terminal, figures, the page."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import attnviz as av
import attnviz.attention.blocks as attending
from attnviz.attention import contributions
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.tokens import Tokens
from attnviz.errors import ModelError, UsageError
from attnviz.features.flow import description
from attnviz.features.flow.description import Dots, formula
from attnviz.features.flow.function import follow, run, run_recorded
from attnviz.features.flow.page import LARGEST, page
from attnviz.features.flow.result import Flow
from attnviz.models.demo import DEMOS
from tests.features.flow.reference import PLACES, alti
from tests.models.tiny import LONG, SHORT, build, hooked_only, inputs_of
from tests.viewing import Opened, encoder_decoder, made, opened, until

ODD = Tokens(("<b>@</script>", "\x1b[31m", "שלום", "\n", " x ", "{{}}", "a" * 40))


def shown(part: object, width: int = 100, encoding: str = "utf-8") -> str:
    out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=out, width=width, color_system=None, emoji=False, markup=False)
    console.print(part)
    out.flush()
    return out.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def report() -> Flow:
    return av.flow("one two three one two", method="rollout")


def test_a_line_is_as_thick_as_its_share() -> None:
    counts = []
    for share in (0.6, 0.3, 0.1, 0.03):
        dots = Dots(3, 6, braille=True)
        dots.line((1, 0), (1, 5), share)
        counts.append(sum(bin(bits).count("1") for bits in dots.bits.ravel().tolist()))
        assert dots.shares.max() == share
    assert counts == [36, 24, 12, 4]
    plain = Dots(1, 2, braille=False)
    plain.line((0, 0), (0, 1), 0.1)
    plain.line((0, 0), (0, 1), 0.6)  # the thicker line stays
    plain.line((0, 0), (0, 1), 0.1)
    assert plain.character(0, 0) + plain.character(0, 1) == "##"


def test_a_line_ends_where_it_should() -> None:
    dots = Dots(5, 8, braille=True)
    dots.line((0, 0), (4, 7), 0.1)
    assert dots.character(0, 0) != " "
    assert dots.character(4, 7) != " "
    assert dots.character(4, 0) == dots.character(0, 7) == " "


def test_terminal_fits_any_width(report: Flow) -> None:
    followed = follow(report, "to", "-1")
    for width in (20, 33, 60, 100, 200):
        for one in (report, followed, follow(report, "from", "three")):
            lines = shown(description.lines(one), width).splitlines()
            assert max(map(len, lines)) <= width
        for line in shown(description.shares_table(followed), width).splitlines():
            assert len(line) <= width


def test_plain_terminals_get_plain_signs(report: Flow) -> None:
    for one in (report, follow(report, "from", "three")):
        assert shown(description.lines(one), encoding="ascii").isascii()
    assert shown(description.shares_table(follow(report, "to", "0")), encoding="ascii").isascii()


def test_odd_tokens_reach_no_terminal_raw() -> None:
    flow = follow(run_recorded(made(2, 2, ODD)), "to", "1")
    for part in (description.lines(flow), description.shares_table(flow)):
        assert "\x1b" not in shown(part)


def test_lines_carry_what_the_report_says(report: Flow) -> None:
    followed = follow(report, "to", "-1")
    found = description.drawing(followed, columns=99, least=0.0)
    for column in range(len(report.layers)):
        carried = sum(line.share for line in found.lines if line.column == column)
        assert carried == pytest.approx(1, abs=1e-6)
    np.testing.assert_allclose(found.ends, report.total[-1], atol=1e-6)
    assert found.columns == ["0", "1", "2", "3"]


def test_layers_that_do_not_fit_are_multiplied() -> None:
    flow = follow(run_recorded(made(2, 7)), "to", "3")
    found = description.drawing(flow, columns=3, least=0.0)
    assert found.columns == ["0–2", "3–5", "6"]
    np.testing.assert_allclose(found.ends, flow.total[3], atol=1e-6)
    both = description.drawing(run_recorded(encoder_decoder()), columns=2, least=0.0)
    assert both.columns == ["enc 0–1", "dec 0–1"]


def test_of_many_tokens_those_are_drawn_through_which_most_goes() -> None:
    flow = follow(run_recorded(made(1, 2, Tokens(tuple(map(str, range(30)))))), "to", "7")
    found = description.drawing(flow, columns=9, tokens=10, least=0.0)
    assert len(found.nodes) == 10
    assert 7 in found.nodes
    given = set(np.argsort(-flow.total[7])[:3].tolist())
    assert given <= set(found.nodes)


def test_the_sentences_beside_the_maps_are_measured() -> None:
    capture = made(2, 3, causal=True)
    flow = run_recorded(capture)
    said = " ".join(description.beside(flow))
    several = slice(1, None)  # the first position has nothing but itself
    assert f"keeps {100 * flow.kept[several].mean():.0f} % on average" in said
    gap = abs(flow.total - flow.weights)
    np.fill_diagonal(gap, 0)
    i, j = np.unravel_index(gap.argmax(), gap.shape)
    assert f"farthest apart at w{i} ({i}): w{j} ({j}) gives" in said
    assert not list(description.beside(run_recorded(made(1, 1, Tokens(("alone",))))))


@pytest.mark.parametrize(
    ("tokens", "followed"),
    [(ODD, True), *((Tokens(tuple(map(str, range(n)))), n == 1) for n in (1, 41))],
)
def test_figures_of_odd_few_and_many_tokens(tokens: Tokens, followed: bool) -> None:
    flow = run_recorded(made(1, 3, tokens, causal=True))
    one = follow(flow, "from", "0") if followed else flow
    assert one.to_bytes("svg").count(b"<text") > min(len(tokens), 20)


def test_the_command_says_what_is_drawn(capsys: Any) -> None:
    assert main(["flow", "one two three " * 12, "-q"]) == 0
    out = capsys.readouterr().out
    assert "(share of the position)" in out
    assert "→ tokens; blank: cannot be reached" in out
    assert "→ keys (attended to); blank: not allowed" in out
    assert main(["flow", "one two three one two", "--position", "-1", "-q"]) == 0
    out = capsys.readouterr().out
    assert "what reaches ·two (5) from each token (ALTI through 4 layers)" in out
    assert "pre-norm" in out


def test_a_flow_names_itself() -> None:
    flow = av.flow("one two three", position="two")
    assert repr(flow).startswith("<Flow demo-gpt2, alti, 4 tokens, 4 layers, to two: own token")


def test_a_page_that_no_browser_would_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = run_recorded(made(1, 3, Tokens(("a",) * 300)))
    assert LARGEST == 100e6
    monkeypatch.setattr("attnviz.features.flow.page.LARGEST", 1e6)
    with pytest.raises(UsageError, match="the page would take about 1 MB, and 1 MB is the limit"):
        page(flow)


@pytest.fixture(scope="module")
def tab(browser: Any) -> Iterator[Opened]:
    with opened(browser) as found:
        yield found


def written(folder: Path, flow: Flow) -> Path:
    path = folder / "flow.html"
    path.write_bytes(page(flow))
    return path


def bars(tab: Opened, side: str) -> list[str]:
    return tab.page.eval_on_selector_all(
        f"#{side} .row", "rows => rows.map(row => row.querySelector('.share').textContent)"
    )


def test_page_follows_what_is_pointed_at_and_moves_by_keys(tab: Opened, tmp_path: Path) -> None:
    flow = run_recorded(made(2, 3, causal=True))
    tab.open(written(tmp_path, flow))
    assert tab.text("#said") == "all tokens, layer by layer"
    tab.page.focus("#stage")
    tab.press("End")  # what stands at the last position in the end
    assert tab.page.get_attribute("#stage", "data-node") == "3:6"
    shares = [f"{100 * share:.0f} %" for share in flow.total[6]]
    assert bars(tab, "before") == shares
    strongest = int(flow.total[6].argmax())
    assert tab.text("#said").startswith(f"w6 (6) is {shares[strongest]} from w{strongest}")
    tab.press("ArrowLeft", "ArrowUp")
    assert tab.page.get_attribute("#stage", "data-node") == "2:5"
    two = flow.layers[1].shares @ flow.layers[0].shares
    assert bars(tab, "before")[:6] == [f"{100 * share:.0f} %" for share in two[5][:6]]
    assert bars(tab, "after")[5] == f"{100 * flow.layers[2].shares[5, 5]:.0f} %"
    tab.press("ArrowLeft", "ArrowLeft")  # a token, where does it go?
    given = [f"{100 * share:.0f} %" for share in flow.total[5:, 5]]
    assert bars(tab, "after")[5:] == given
    assert bars(tab, "after")[:5] == [""] * 5
    tab.press("Escape")
    assert tab.text("#said") == "all tokens, layer by layer"
    box = tab.page.query_selector("#lines").bounding_box()
    tab.page.mouse.move(box["x"] + 3, box["y"] + box["height"] - 3)
    tab.settle()
    until(tab.page, "document.getElementById('stage').dataset.node === '0:6'")
    tab.page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 3)  # held from now on
    tab.page.mouse.move(box["x"] + 3, box["y"] + box["height"] - 3)
    tab.settle()
    until(tab.page, "document.getElementById('stage').dataset.node === '3:0'")


def test_what_is_said_of_tokens_is_a_sentence(tab: Opened, tmp_path: Path) -> None:
    flow = run_recorded(made(2, 3, causal=True))
    tab.open(written(tmp_path, flow), "at=0:2,3", again=True)
    given = flow.total[:, 2] + flow.total[:, 3]
    most = int(given.argmax())
    said = tab.text("#said")
    assert said.startswith(f"{100 * given[most]:.0f} % of w{most} ({most})")
    assert said.endswith(" comes from w2 (2) and w3 (3)")
    end = flow.total[6].copy()
    own, end[6] = end[6], 0
    other = int(end.argmax())
    assert tab.text("h1").replace("\u00a0", " ") == (
        f"made by hand: w6 (6) keeps {100 * own:.0f} % of itself and takes in most from "
        f"w{other} ({other}), {100 * end[other]:.0f} %"
    )


def test_page_opens_on_the_followed_token(tab: Opened, tmp_path: Path) -> None:
    flow = follow(run_recorded(encoder_decoder()), "to", "tgt2")
    tab.open(written(tmp_path, flow), again=True)
    assert tab.page.get_attribute("#stage", "data-node") == "4:7"
    assert tab.text("#said").startswith("tgt2 (2) is ")
    assert "of the weight]" in tab.text("#said")


def test_page_draws_lines_in_the_colour_of_flow(tab: Opened, tmp_path: Path) -> None:
    flow = follow(run_recorded(made(2, 2)), "to", "0")
    tab.open(written(tmp_path, flow), again=True)
    box = tab.page.query_selector("#lines").bounding_box()
    red, _, blue = tab.pixel("#lines", box["width"] - 40, 11)  # what token 0 kept in layer 1
    assert blue > red + 40


def test_odd_tokens_are_text_in_the_page(tab: Opened, tmp_path: Path) -> None:
    flow = run_recorded(made(2, 2, ODD))
    made_page = page(flow)
    assert made_page.count(b"</script>") == 3  # the result stands in one
    path = tmp_path / "odd.html"
    path.write_bytes(made_page)
    tab.open(path, again=True)
    texts = tab.page.eval_on_selector_all("#before bdi", "all => all.map(one => one.textContent)")
    assert texts[0] == "<b>@</script>"
    assert texts[1] == "␛[31m"
    assert len(texts) == len(ODD)


@pytest.mark.parametrize("family", PLACES)
def test_tiny_models_equal_vectors_written_out(family: str, tmp_path: Path) -> None:
    build(family, tmp_path, words=True)
    source = av.load(tmp_path)
    if source.info.backend != "native":
        hooked_only(source)
    two = len(source.layout.kinds) > 1
    inputs = inputs_of(source, LONG, SHORT)
    report = run(source, inputs, "alti")
    expected = alti(family, tmp_path, LONG, SHORT if two else ())
    np.testing.assert_allclose(report.total, expected, atol=2e-5)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)
    assert report.targets == (len(LONG) if two else 0)


@pytest.mark.parametrize(
    ("family", "name"), [("gpt2", "demo-gpt2"), ("bert", "demo-bert"), ("bert", "minilm")]
)
def test_trained_models_equal_vectors_written_out(family: str, name: str, minilm: str) -> None:
    source = av.load(minilm if name == "minilm" else name)
    inputs = source.prepare(Prompt("The keys to the cabinet are on the table"))
    (sides,) = inputs.sides.values()
    report = run(source, inputs)
    assert report.method == "alti"
    expected = alti(family, DEMOS.get(name, minilm), sides.queries.ids)
    np.testing.assert_allclose(report.total, expected, atol=2e-5)


def test_long_texts_go_by_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than a block and more keys than are written out at a time change nothing."""
    source = av.load("demo-gpt2")
    inputs = source.prepare(Prompt("one two three four five " * 12))
    whole = run(source, inputs)
    monkeypatch.setattr(attending, "BLOCK_ELEMENTS", 1)
    monkeypatch.setattr(contributions, "PART_ELEMENTS", 1 << 13)
    parts = run(source, inputs)
    np.testing.assert_allclose(parts.total, whole.total, atol=1e-5)


def test_each_order_of_normalization_is_named() -> None:
    texts = {name: formula(av.flow("a cat sat", model=name)) for name in DEMOS}
    assert "pre-norm" in texts["demo-gpt2"]
    assert "post-norm" in texts["demo-bert"]


def test_what_a_model_does_not_tell_is_said(monkeypatch, tmp_path: Path) -> None:
    build("bloom", tmp_path)  # runs eagerly: weights and nothing else
    source = av.load(tmp_path)
    inputs = inputs_of(source, SHORT, ())
    report = run(source, inputs)
    assert report.method == "rollout"
    assert str(report.notes[0]).startswith("Rollout instead of ALTI: in ")
    with pytest.raises(ModelError, match="ALTI needs the vectors that attention moves, and in "):
        run(source, inputs, "alti")


def test_a_fresh_layer_flows() -> None:
    report: Any = av.flow("the cat sat", model=av.FreshConfig(layers=2))
    assert report.method == "alti"
    assert "post-norm" in formula(report)
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)


def test_two_texts_of_a_fresh_layer() -> None:
    report = av.flow(av.Prompt("the cat sat", pair="le chat"), model="fresh")
    assert report.targets == 2
    np.testing.assert_allclose(report.total.sum(1), 1, atol=1e-5)
    np.testing.assert_array_equal(report.total[:2], np.eye(2, 5))
    assert (report.total[2:, :2] > 0).all()


def test_layers_are_counted_as_they_go_by() -> None:
    told: list[tuple[str, int, int]] = []
    av.flow("a cat sat", progress=lambda *one: told.append(one))
    assert told[-1] == ("layers", 4, 4)
    told.clear()
    av.flow("a cat sat", method="max-flow", progress=lambda *one: told.append(one))
    assert told[-1] == ("max-flow", 4, 4)
