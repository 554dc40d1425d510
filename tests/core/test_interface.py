"""Public functions: records make their keywords, their checks and their documentation."""

from __future__ import annotations

import inspect
import math
import pickle
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import attnviz as av
from attnviz.cli.declared import option
from attnviz.core.interface import interface
from attnviz.core.settings import Settings, declarations, like, plain_type, setting
from attnviz.errors import SizeError, UsageError


@dataclass(frozen=True)
class Where(Settings):
    """Where something is done."""

    place: Literal["here", "there"] = setting(
        "here", "Where, before {times}.", shown="here and now"
    )
    inside: str = setting("", "Only the command line knows.", python=False)


@dataclass(frozen=True)
class HowOften(Settings):
    """How often."""

    select: str = setting(..., "Which.")
    times: int = setting(1, "So many times.", least=1, most=9)


@interface
def act(
    text: str, loud: bool = False, *more: int, where: Where, often: HowOften, progress: Any = None
) -> tuple[Any, ...]:
    """Do something.

    Args:
        text: on what.
        progress: called meanwhile.

    Returns:
        What it was called with.
    """
    return text, loud, more, where, often, progress


@interface
def joined(first: str, second: str = "b", third: str = "c") -> str:
    return first + second + third


def test_fields_are_keywords_with_their_types_and_defaults() -> None:
    parameters = inspect.signature(act).parameters
    assert list(parameters) == ["text", "loud", "more", "place", "select", "times", "progress"]
    assert parameters["place"].annotation == Literal["here", "there"]
    assert parameters["place"].default == "here"
    assert parameters["select"].default is Parameter.empty
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    assert kinds["place"] is kinds["progress"] is Parameter.KEYWORD_ONLY
    assert kinds["more"] is Parameter.VAR_POSITIONAL


def test_records_are_made_of_them() -> None:
    text, loud, more, where, often, progress = act("a", True, 1, 2, times=3, select="x")
    assert (text, loud, more, progress) == ("a", True, (1, 2), None)
    assert (where, often) == (Where(), HowOften("x", 3))


def test_a_keyword_behind_a_default_keeps_its_place() -> None:
    assert joined("a", third="z") == "abz"
    assert joined("a", "y") == "ayc"


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"text": 3}, "text takes a string, not 3"),
        ({"loud": 1}, "loud takes True or False, not 1"),
        ({"place": "nowhere"}, "place takes 'here' or 'there', not 'nowhere'"),
        ({"times": 10}, "times must be from 1 to 9, not 10"),
        ({"times": "1"}, "times takes a whole number, not '1'"),
    ],
)
def test_what_is_wrong_is_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        act(**{"text": "a", "select": "x", **values})
    assert str(caught.value) == says


def test_each_of_several_arguments_is_checked() -> None:
    with pytest.raises(UsageError, match="more takes a whole number, not 'b'"):
        act("a", False, 1, "b", select="x")


@pytest.mark.parametrize("values", [{"nonsense": 1}, {"inside": "x"}, {"select": ...}])
def test_what_no_function_would_take_is_a_type_error(values: dict[str, Any]) -> None:
    """An unknown keyword, one of the command line alone, and one that is missing."""
    given = {name: value for name, value in {"select": "x", **values}.items() if value is not ...}
    with pytest.raises(TypeError):
        act("a", **given)


def test_the_docstring_has_every_setting_in_its_args() -> None:
    assert act.__doc__ is not None
    said = act.__doc__
    assert said.startswith("Do something.\n\nArgs:\n    text: on what.\n")
    assert "    place: Where, before ``times``. By default here and now." in said
    assert "    times: So many times. (at least 1, at most 9)" in said
    assert "    select: Which." in said
    assert "inside" not in said
    assert said.index("progress:") < said.index("place:") < said.index("Returns:")
    assert max(map(len, said.splitlines())) <= 100


def test_args_are_made_where_a_docstring_has_none() -> None:
    @interface
    def short(where: Where) -> None:
        """Do it.

        Raises:
            UsageError: never.
        """

    assert short.__doc__ is not None
    assert "Do it.\n\nArgs:\n    place: Where" in short.__doc__
    assert short.__doc__.index("Args:") < short.__doc__.index("Raises:")


def test_two_records_cannot_have_the_same_setting() -> None:
    with pytest.raises(TypeError, match="two settings called place"):

        @interface
        def unclear(one: Where, other: Where) -> None:
            """Do it."""


def test_one_setting_may_be_given_by_its_place() -> None:
    @interface
    def placed(select: str, *, often: HowOften) -> tuple[str, str]:
        """Which is an argument, and a setting of the record."""
        return select, often.select

    assert placed("x") == placed(select="x") == placed(often=HowOften("x")) == ("x", "x")


PUBLIC = [name for name in av.__all__ if inspect.isfunction(getattr(av, name))]


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_function_is_checked_and_documented(name: str) -> None:
    function = getattr(av, name)
    assert hasattr(function, "__wrapped__"), "without @interface"
    assert pickle.loads(pickle.dumps(function)) is function
    assert function.__doc__
    parameters = inspect.signature(function).parameters
    assert not [one for one in parameters.values() if one.kind is Parameter.VAR_KEYWORD]
    missing = [one for one in parameters if f"{one}:" not in function.__doc__]
    assert not missing or len(parameters) <= 1, missing


@dataclass(frozen=True)
class Sampling(Settings):
    """Something to sample."""

    text: str = setting(..., "What is sampled.", argument=True)
    draws: int | None = setting(None, "So many draws; see {share_of}.", metavar="N", least=1)
    share_of: float = setting(0.5, "A share.", least=0, most=1)
    mask: Literal["some", "each"] | None = setting(None, "Which are masked.")
    places: tuple[int, ...] = setting((), "Where.", least=0, items=3)
    file: Path | None = setting(None, "A file.", command=False)
    loud: bool = setting(False, "Say more.", python=False)
    given: Any = setting(None, "Anything.")
    plain: int = 7

    def check(self) -> None:
        """Refuse what does not go together."""
        if self.mask is not None and self.draws == 13:
            raise UsageError("{mask} and 13 {draws} do not go together", mask=..., draws=...)


GOOD: list[dict[str, Any]] = [
    {}, {"draws": 1}, {"share_of": 0}, {"share_of": 1}, {"mask": "each"}, {"places": (1, 2, 3)},
    {"places": [0]}, {"file": Path("x")}, {"given": object()},
]  # fmt: skip

BAD: list[tuple[dict[str, Any], str]] = [
    ({"text": 3}, "text takes a string, not 3"),
    ({"draws": 0}, "draws must be at least 1, not 0"),
    ({"draws": 1.0}, "draws takes a whole number or None, not 1.0"),
    ({"draws": True}, "draws takes a whole number or None, not True"),
    ({"share_of": 1.5}, "share_of must be from 0 to 1, not 1.5"),
    ({"share_of": -1}, "share_of must be from 0 to 1, not -1"),
    ({"share_of": math.inf}, "share_of must be from 0 to 1, not inf"),
    ({"share_of": math.nan}, "share_of takes a number, not nan"),
    ({"share_of": None}, "share_of takes a number, not None"),
    ({"mask": "all"}, "mask takes 'some' or 'each', not 'all'"),
    ({"places": (1, -1)}, "places must be at least 0, not -1"),
    ({"places": (1, 2, 3, 4)}, "places has 4 values; take 3 at most"),
    ({"places": ("1",)}, "places takes several, each a whole number, not tuple"),
    ({"file": "x"}, "file takes a path or None, not 'x'"),
    ({"loud": 1}, "loud takes True or False, not 1"),
    ({"mask": "some", "draws": 13}, "mask and 13 draws do not go together"),
]


@pytest.mark.parametrize("values", GOOD)
def test_what_is_sound_is_kept_as_it_is(values: dict[str, Any]) -> None:
    made = Sampling("a", **values)
    assert {name: getattr(made, name) for name in values} == values


@pytest.mark.parametrize(("values", "says"), BAD)
def test_what_is_not_is_refused_in_one_line(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        Sampling(**{"text": "a", **values})
    assert str(caught.value) == says


def test_on_the_command_line_a_message_names_the_option() -> None:
    with pytest.raises(UsageError) as caught:
        Sampling("a", share_of=2)
    assert caught.value.message.worded(option) == "--share-of must be from 0 to 1, not 2"


def test_a_default_is_no_choice() -> None:
    """It may be of no value that could be chosen, such as a function's own sentinel."""

    @dataclass(frozen=True)
    class Odd(Settings):
        count: int = setting(-1, "Chosen later.", least=0)

    assert Odd().count == -1
    with pytest.raises(UsageError, match="count must be at least 0, not -2"):
        Odd(-2)


def test_what_functions_and_the_command_line_have() -> None:
    made = Sampling("a", draws=2)
    assert made.asked() == {
        "text": "a", "draws": 2, "share_of": 0.5, "mask": None, "places": (), "file": None,
        "given": None,
    }  # fmt: skip
    assert "plain" not in declarations(Sampling)  # a field that nobody declared
    assert not declarations(Sampling)["file"][1].command


@pytest.mark.parametrize(
    ("hint", "kind", "choices"),
    [
        (Literal[8, 16] | None, int, ()),
        (Literal["some", "each"], str, ("some", "each")),
        (int | Literal["mean"] | None, int, ("mean",)),
        (tuple[float, ...] | None, list[float], ()),
        (Any, str, ()),
    ],
)
def test_what_is_typed_for_an_annotation(hint: Any, kind: Any, choices: tuple[str, ...]) -> None:
    assert plain_type(hint) == (kind, choices)


def test_too_many_values_are_refused_before_they_are_looked_at() -> None:
    with pytest.raises(UsageError, match="places has 1,000,000,000,000 values; take 3 at most"):
        Sampling("a", places=range(10**12))  # type: ignore[arg-type]


def test_what_was_changed() -> None:
    made = Sampling("a", draws=2, loud=True)
    assert made.changed() == ["text", "draws", "loud"]
    assert made.changed(but=("text", "loud")) == ["draws"]
    assert made.but(draws=None).changed() == ["text", "loud"]
    with pytest.raises(UsageError, match="draws must be"):
        made.but(draws=0)


@dataclass(frozen=True)
class Other(Settings):
    """A record whose settings are declared elsewhere."""

    draws: int | None = like(Sampling, "draws", default=5, most=9)
    text: str = like(Sampling, "text", default="b", help="Another text.")
    share_of: float = like(Sampling, "share_of")


@dataclass(frozen=True)
class Needed(Settings):
    """One that must be given, where the other need not."""

    draws: int = like(Sampling, "draws", default=...)


def test_what_is_like_another_setting() -> None:
    assert (Other().draws, Other().text, Other().share_of) == (5, "b", 0.5)
    _, declared = declarations(Other)["draws"]
    assert (declared.metavar, declared.least, declared.most) == ("N", 1, 9)
    assert declarations(Other)["text"][1].help == "Another text."
    with pytest.raises(UsageError, match="draws must be from 1 to 9, not 10"):
        Other(10)
    assert declarations(Sampling)["draws"][1].most is None  # which is as it was
    with pytest.raises(TypeError, match="draws"):
        Needed()  # type: ignore[call-arg]


def test_help_speaks_of_other_settings_as_its_reader_does() -> None:
    _, declared = declarations(Sampling)["draws"]
    assert declared.said(option) == "So many draws; see --share-of."
    assert declared.said(str.upper) == "So many draws; see SHARE_OF."


def test_a_record_that_fills_in_is_whole_when_it_is_made() -> None:
    """``RunSizes`` names its dtype in full, and what a walk of shapes takes is checked there."""
    from attnviz.attention.spec import RunSizes
    from attnviz.features.shapes.settings import Layer

    assert RunSizes(dtype="bf16").dtype == "bfloat16"
    with pytest.raises(UsageError, match="unknown dtype 'int7'"):
        RunSizes(dtype="int7")
    with pytest.raises(SizeError, match="sliding_window must be at least 1"):
        Layer(sliding_window=0).spec()


def test_arrays_and_lists_in_the_place_of_a_name_are_refused() -> None:
    with pytest.raises(UsageError, match="device takes a name"):
        av.capture("a b", device=np.ones(3))
    with pytest.raises(UsageError, match="dtype"):
        av.capture("a b", dtype=np.ones(3))
    with pytest.raises(UsageError, match=r"no metric=\[\]; choose one of loss"):
        av.ablate("a b", metric=[])


def test_a_record_may_be_handed_over_whole() -> None:
    """As commands do, which have checked it; what it lacks is asked for as ever."""
    where, often = Where("there"), HowOften("x", 3)
    found = act("a", where=where, often=often)
    assert (found[3] is where, found[4] is often) == (True, True)
    assert act("a", where=where, select="y")[4] == HowOften("y")
    for missing in ({"often": often}, {"text": "a", "where": where}):
        with pytest.raises(TypeError, match=r"text|select"):
            act(**missing)
