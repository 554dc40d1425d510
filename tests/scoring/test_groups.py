"""Which heads are ablated together."""

from __future__ import annotations

import pytest

from attnviz.core.heads import Head, Layout, Site
from attnviz.errors import SelectionError
from attnviz.scoring.select import read_groups

LAYOUT = Layout({"decoder": (3, 3)})


@pytest.mark.parametrize(
    ("text", "names", "heads"),
    [
        ("0.1", ["0.1"], ["0.1"]), ("0.*", ["0.0", "0.1", "0.2"], ["0.0", "0.1", "0.2"]),
        ("0.1, 0.1,1.2", ["0.1", "1.2"], ["0.1", "1.2"]), ("0.1+1.2", ["0.1+1.2"], ["0.1 1.2"]),
        ("layer:1", ["layer:1"], ["1.0 1.1 1.2"]),
        ("layer:dec:1", ["layer:dec:1"], ["1.0 1.1 1.2"]),
        ("layer:0+1.0", ["layer:0+1.0"], ["0.0 0.1 0.2 1.0"]),
        ("role:sleeps", ["role:sleeps"], ["0.0 1.1"]),
        ("all-but:0.*", ["all-but:0.*"], ["1.0 1.1 1.2"]),
        ("all-but:0.0+role:sleeps", ["all-but:0.0+role:sleeps"], ["0.1 0.2 1.0 1.2"]),
        ("0.1+1.2, 1.2", ["0.1+1.2", "1.2"], ["0.1 1.2", "1.2"]),
    ],
)  # fmt: skip
def test_groups(text: str, names: list[str], heads: list[str]) -> None:
    sleeping = (Head(Site("decoder", 0), 0), Head(Site("decoder", 1), 1))
    found = read_groups(text, LAYOUT, lambda name: sleeping)
    assert [group.name for group in found] == names
    assert [" ".join(map(LAYOUT.name, group.heads)) for group in found] == heads


@pytest.mark.parametrize("text", ["", "0.7", "layer:9", "layer:x", "all-but:*.*", "0.1+", "role:x"])
def test_groups_that_are_none(text: str) -> None:
    with pytest.raises(SelectionError):
        read_groups(text, LAYOUT, lambda name: ())
