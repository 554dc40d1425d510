"""The gallery: pages are the same when they are built again, and every picture is there."""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from attnviz.cli import main
from docs import gallery
from tests import ROOT
from tests.viewing import chromium

DOCS = ROOT / "docs"


@pytest.mark.slow
def test_a_page_is_the_same_to_the_byte_when_built_again(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (gallery.build("demo-bert", folder, limit=6).read_bytes() for folder in folders)
    assert one == two
    assert str(tmp_path).encode() not in one
    assert str(ROOT).encode() not in one


def test_a_page_that_differs_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    written = iter(("a", "b"))

    def build(model: str, folder: Path) -> Path:
        path = folder / f"{model}.html"
        path.write_text(next(written))
        return path

    monkeypatch.setattr(gallery, "build", build)
    assert gallery.main([str(tmp_path), "--models", "demo-bert"]) == 1
    assert capsys.readouterr().err == "pages that differ when built again: demo-bert\n"


def test_every_model_has_its_picture_of_modest_size() -> None:
    said = (DOCS / "gallery.md").read_text("utf-8")
    for model in gallery.MODELS:
        assert f"](gallery/{model}.png)" in said
        assert (DOCS / "gallery" / f"{model}.png").stat().st_size < 150_000


def test_every_page_has_its_pictures_and_its_command() -> None:
    said = (DOCS / "gallery.md").read_text("utf-8")
    for shown in gallery.PAGES:
        name = shown.command.partition(" ")[0]
        assert f"\nattnviz {shown.command} -o {name}.html\n" in said
        assert f"](gallery/{shown.name}.png)" in said
    kept = sorted((DOCS / "gallery").iterdir())
    assert {path.stem for path in kept} == {*gallery.MODELS, *(one.name for one in gallery.PAGES)}
    assert max(path.stat().st_size for path in kept) < 150_000
    assert sum(path.stat().st_size for path in kept) < 1_500_000


@pytest.fixture
def camera(monkeypatch: pytest.MonkeyPatch) -> None:
    """A browser for what takes pictures of pages."""
    browser = chromium()
    if browser is None:
        pytest.skip("NO BROWSER, SO PICTURES ARE NOT TAKEN: install chromium")
    monkeypatch.setenv("CHROMIUM", browser)


@pytest.mark.usefixtures("camera")
@pytest.mark.slow
def test_a_picture_is_the_same_when_it_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a pass took another time, and on a later day."""
    taken = []
    for n, day in enumerate(("1767225600", "1777225600")):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", day)
        folder = tmp_path / str(n)
        folder.mkdir()
        gallery.photograph(gallery.written(folder, ["live", "flow"]), folder)
        taken.append([(folder / f"{name}.png").read_bytes() for name in ("live", "flow")])
    assert taken[0] == taken[1]


PAGE = (ROOT / "docs" / "courses.md").read_text("utf-8")


def command(section: str) -> list[str]:
    """The command of a section, without the program."""
    text = PAGE.partition(f"## {section}")[2]
    line = re.search(r"```sh\nattnviz (.*?)\n```", text, re.DOTALL)
    assert line is not None
    return shlex.split(line[1])


def printed(monkeypatch, arguments: list[str]) -> str:
    monkeypatch.chdir(ROOT)
    with redirect_stdout(io.StringIO()) as out:
        assert main(arguments) == 0
    return out.getvalue()


def test_raschkas_numbers(monkeypatch) -> None:
    """Those of the book, to its four digits."""
    lines = printed(monkeypatch, command("Raschka")).splitlines()
    journey = [line for line in lines if line.startswith("journey")]
    said = " ".join(PAGE.partition("The scores of *journey* are ")[2].partition("`")[0].split())
    numbers = re.findall(r"\d\.\d{4}", said)
    assert len(numbers) == 15
    for some in (numbers[:6], numbers[6:12], numbers[12:]):
        assert any(" ".join(some) in " ".join(line.split()) for line in journey), some


def test_the_parameters_of_gpt3(monkeypatch) -> None:
    assert f"{4 * 12288**2 * 96:,}" == "57,982,058,496"
    assert " 57,982,058,496 " in printed(monkeypatch, command("3Blue1Brown"))
    assert "\n57,982,058,496, a third" in PAGE
    whole = printed(monkeypatch, ["shapes", "--model", "gpt3"])
    assert re.search(r"attention is 33\.\d % of it +174,600,000,000", whole)


def test_one_head_and_two() -> None:
    block, told = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)[0]
    with redirect_stdout(io.StringIO()) as out:
        exec(block, {})
    assert out.getvalue() == told


@pytest.mark.parametrize("section", ["Dive into Deep Learning", "ARENA"])
def test_the_others_are_commands_that_examples_run(section: str) -> None:
    assert command(section)[0] in ("ablate", "heads")
