"""Commands of records: what typer makes of a declaration, and what the command then gets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import typer

from attnviz import cli
from attnviz.cli import COMMANDS
from attnviz.cli.declared import ALL, adapted, changed, command, shorten, speak_for
from attnviz.core.settings import Settings, declarations, setting
from attnviz.errors import UsageError
from tests.cli.calling import ok


def _half(text: str) -> float:
    return float(text) / 2


@dataclass(frozen=True)
class Options(Settings):
    """One of each kind."""

    text: str | None = setting(None, "What. And why.", argument=True)
    count: int | None = setting(
        None, "So many. At most as many as {names}.", short="c", metavar="N", least=1,
        common=True,
    )  # fmt: skip
    share: float = setting(0.5, "A share.")
    mask: Literal["some", "each"] = setting("some", "Which.", common=True)
    layout: Literal["heads", "layers", "grid", "overview"] = setting("heads", "Pictures.")
    names: tuple[str, ...] | None = setting(None, "Names; repeatable.")
    files: tuple[Path, ...] = setting((), "Files; repeatable.")
    scale: bool = setting(True, "Do not scale.", shown="")
    loud: bool = setting(False, "Say more.", panel="Saying")
    bias: bool | None = setting(None, "Biases.", shown="bias")
    ray: str | None = setting(None, "Run on Ray.", bare="local", metavar="ADDRESS")
    half: float | None = setting(None, "Halved.", parser=_half)
    hidden: str = setting("x", "Only in Python.", command=False)


@dataclass(frozen=True)
class More(Settings):
    """A second record."""

    deep: int = setting(0, "Depth.")


GIVEN: list[tuple[Options, More]] = []


@command
def act(options: Options, more: More) -> None:
    """Do something.

    [bold]Examples[/]

      act one

      act two
    """
    GIVEN.append((options, more))


def made(function: Callable[..., None] = act) -> Any:
    """The command as ``cli`` makes it."""
    app = typer.Typer(rich_markup_mode="rich", add_completion=False)
    app.command("act", context_settings={"help_option_names": ["-h", "--help", ALL]})(function)
    single: Any = typer.main.get_command(app)
    adapted(single, function)
    return single


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    GIVEN.clear()
    yield
    speak_for(())


def run(*arguments: str) -> tuple[Options, More]:
    made().main(list(arguments), standalone_mode=False)
    return GIVEN[-1]


def refused(*arguments: str) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - click's own, or ours
        made().main(list(arguments), standalone_mode=False)
    error: Any = caught.value
    return error.format_message() if hasattr(error, "format_message") else str(error)


def test_nothing_given_is_the_defaults() -> None:
    assert run() == (Options(), More())


@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (["words"], {"text": "words"}), (["-c", "3"], {"count": 3}),
        (["--share", "1"], {"share": 1.0}), (["--mask", "each"], {"mask": "each"}),
        (["--names", "a", "--names", "b"], {"names": ("a", "b")}),
        (["--files", "x"], {"files": (Path("x"),)}), (["--no-scale"], {"scale": False}),
        (["--loud"], {"loud": True}), (["--bias"], {"bias": True}),
        (["--no-bias"], {"bias": False}), (["--ray"], {"ray": "local"}),
        (["--ray", "ray://host:10001"], {"ray": "ray://host:10001"}),
        (["--ray", "--loud"], {"ray": "local", "loud": True}), (["--half", "3"], {"half": 1.5}),
    ],
)  # fmt: skip
def test_what_is_typed_is_what_the_record_holds(
    arguments: list[str], values: dict[str, Any]
) -> None:
    assert run(*arguments)[0] == Options(**values)


def test_records_are_made_each_of_its_own() -> None:
    assert run("--deep", "2", "-c", "1") == (Options(count=1), More(2))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-c", "0"], "count must be at least 1, not 0"), (["-c", "x"], "'x' is not a valid int"),
        (["--mask", "all"], "mask takes 'some' or 'each', not 'all'"),
        (["--scale"], "No such option"), (["--no-loud"], "No such option"),
        (["--hidden", "y"], "No such option"), (["--c", "1"], "No such option"),
    ],
)  # fmt: skip
def test_what_it_does_not_take_is_refused(arguments: list[str], says: str) -> None:
    assert says in refused(*arguments)


def parameters(name: str | None = None) -> dict[str, Any]:
    """The options of the command above, or of one of ours, by name."""
    root: Any = typer.main.get_command(cli.app)
    single = made() if name is None else root.get_command(None, name)
    return {parameter.name: parameter for parameter in single.params}


def test_completion_offers_the_choices() -> None:
    complete = parameters()["mask"]._custom_shell_complete
    offered = [getattr(item, "value", item) for item in complete(None, None, "e")]
    assert offered == ["each"]


def test_help_names_the_choices_beside_the_option_or_behind_the_sentence() -> None:
    known = parameters()
    assert known["mask"].metavar == "some|each"
    assert known["layout"].metavar == "LAYOUT"
    assert known["layout"].help == "Pictures. One of: heads, layers, grid, overview."
    assert known["count"].help == "So many. At most as many as --names."


@pytest.fixture
def helped(capsys: pytest.CaptureFixture[str]) -> Callable[[bool], str]:
    """The help of the command, short or long, on a terminal of 80 columns."""

    def printed(short: bool) -> str:
        single = made()
        if short:
            shorten(single)
        single.main(["--help"], standalone_mode=False)
        return capsys.readouterr().out

    return printed


def test_the_short_help_has_common_options_and_first_sentences(
    helped: Callable[[bool], str],
) -> None:
    told = helped(True)
    assert "--count" in told
    assert "At most as many" not in told
    assert "And why" not in told
    for name in ("--share", "--loud", "--names"):
        assert name not in told
    assert re.search(rf"\d+ more options: attnviz act {ALL}", told)


def test_the_long_help_has_all(helped: Callable[[bool], str]) -> None:
    told = " ".join(helped(False).split())
    for name, (_, declared) in declarations(Options).items():
        if declared.command and not declared.argument:
            flag = "--no-scale" if name == "scale" else f"--{name}"
            assert flag in told
    assert "Saying" in told
    assert "more options" not in told


def test_examples_stand_on_lines_of_their_own(helped: Callable[[bool], str]) -> None:
    lines = [line.strip() for line in helped(True).splitlines()]
    assert lines.index("act two") == lines.index("act one") + 1


def test_hidden_options_work() -> None:
    single = made()
    shorten(single)
    single.main(["--share", "0.25"], standalone_mode=False)
    assert GIVEN[-1][0].share == 0.25


def test_changed_options_are_named_as_they_are_typed() -> None:
    speak_for(made().params)
    options = Options(count=2, scale=False, bias=True, loud=True)
    assert changed(options) == ["--count", "--no-scale", "--loud", "--bias"]
    assert changed(options, More(1), but=("count", "loud")) == ["--no-scale", "--bias", "--deep"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_sentence(name: str) -> None:
    for parameter in parameters(name).values():
        if parameter.name not in ("help", "plugin"):
            assert (parameter.help or "").endswith((".", "?", ")")), parameter.name
        assert parameter.help, parameter.name
        assert parameter.name != "jobs" or "-j" in parameter.opts


@pytest.mark.parametrize("name", COMMANDS)
def test_the_short_help_fits_a_screen_and_says_no_default_of_a_switch(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = ok(capsys, name, "--help")
    assert len(shown.splitlines()) <= 50
    assert not re.search("default: (True|False)", shown)


@pytest.mark.parametrize("name", ["heatmap", "knockout", "thoughts", "shapes", "export"])
def test_no_name_of_an_option_is_cut(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = ok(capsys, name, "--help-all")
    assert "…" not in shown
    for parameter in parameters(name).values():
        for flag in (*parameter.opts, *parameter.secondary_opts):
            assert not flag.startswith("-") or re.search(rf"{flag}(?![\w-])", shown), flag


@dataclass(frozen=True)
class Pair(Settings):
    """Two that do not go together."""

    one: bool = setting(False, "One.")
    other: bool = setting(False, "Other.")

    def check(self) -> None:
        """Refuse both."""
        if self.one and self.other:
            raise UsageError("{one} and {other} exclude each other", one=..., other=...)


@command
def paired(pair: Pair) -> None:
    """Take one."""


def test_a_record_that_does_not_go_together_stops_the_command() -> None:
    with pytest.raises(UsageError, match="one and other exclude"):
        made(paired).main(["--one", "--other"], standalone_mode=False)
