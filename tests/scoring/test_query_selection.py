"""The query rows that somebody means: by default, by name, by place, by number."""

from __future__ import annotations

import numpy as np
import pytest

from attnviz.core.media import Picture
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.scoring.merged import selected_query

PICTURE = Picture(np.zeros((2, 2, 3), np.uint8), 2, 2)
PATCHES = ((0, 0), (0, 1), (1, 0), (1, 1))


def seen(*before: str, after: tuple[str, ...] = ()) -> Tokens:
    """Four patches, between tokens of text; the first of those before is special."""
    texts = (*before, "p", "q", "r", "s", *after)
    places = (*((),) * len(before), *PATCHES, *((),) * len(after))
    special = tuple(text == "[CLS]" for text in texts)
    return Tokens(texts, special=special, places=places)


@pytest.mark.parametrize(
    ("tokens", "query", "rows"),
    [
        (seen("[CLS]"), None, (0,)),
        (seen(), None, (0, 1, 2, 3)),
        (Tokens(("a", "cat", "sits")), None, (2,)),
        (Tokens(("[CLS]", "cat"), special=(True, False)), None, (0,)),
        (seen("[CLS]", after=("a", "cat")), None, (6,)),
        (seen("[CLS]"), "cls", (0,)),
        (seen("[CLS]"), "mean", (1, 2, 3, 4)),
        (seen("[CLS]"), "1,0", (3,)),
        (seen("[CLS]"), "4", (4,)),
    ],
)
def test_rows(tokens: Tokens, query: str | None, rows: tuple[int, ...]) -> None:
    assert selected_query(tokens, PICTURE, query).rows == rows


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("cls", "has no [CLS]"),
        ("2,0", "rows go from 0 to 1, columns from 0 to 1"),
        ("4", "from 0 to 3"),
        ("left", "no query 'left'"),
    ],
)
def test_what_is_not_there_is_refused(query: str, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        selected_query(seen(), PICTURE, query)
    assert says in str(raised.value)


def test_words_beside_a_picture_have_no_patches() -> None:
    with pytest.raises(UsageError) as raised:
        selected_query(Tokens(("a", "cat")), PICTURE, "mean")
    assert "no patches" in str(raised.value)
