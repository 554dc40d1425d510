"""Public functions: records make their keywords, their checks and their documentation."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Literal

import pytest

import attnviz as av
from attnviz.core.interface import interface
from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError


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

    assert placed("x") == placed(select="x") == ("x", "x")


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


def test_nonsense_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="nonsense"):
        av.heads("a", nonsense=1)
