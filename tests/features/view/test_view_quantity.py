"""A page of weights and of what is written with them: the switch, both under the pointer, files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import attnviz as av
from attnviz.models import recorded
from tests.features.view.test_view_page import hover
from tests.viewing import Opened

TEXT = "The keys to the cabinet are on the table"
HEAD = "2.1"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    view = av.view(TEXT, quantity="norm", bits=16)
    assert [one.quantity for one in view.captures] == ["norm"]
    return view.save(tmp_path_factory.mktemp("quantity") / "page.html")


def of(quantity: str) -> np.ndarray:
    held = av.capture(TEXT, quantity=quantity)
    return held[av.select(HEAD, held)[0]]


def test_the_page_opens_with_norms_and_switches(shared: Opened, page: Path) -> None:
    shared.open(page, f"view=map&on={HEAD}&head={HEAD}", again=True)
    assert shared.pressed("#quantity") == ["‖αf(x)‖"]
    assert "Not weights but ‖αf(x)‖" in shared.text("#map-caption")
    norms = of("norm")
    most = 3e-5 * norms.max()
    np.testing.assert_allclose(shared.numbers(norms.shape)[0], norms, atol=most)
    shared.press("v")
    assert shared.pressed("#quantity") == ["weights"]
    np.testing.assert_allclose(shared.numbers(norms.shape)[0], of("weights"), atol=3e-5)
    assert "writes=0" in shared.hash()
    shared.click("#quantity [data-writes='1']")
    assert "writes=0" not in shared.hash()


def test_both_stand_under_the_pointer(shared: Opened, page: Path) -> None:
    norms, weights = of("norm"), of("weights")
    for writes, first, second in ((1, norms, weights), (0, weights, norms)):
        shared.open(page, f"view=map&on={HEAD}&head={HEAD}&writes={writes}")
        for r, c in ((5, 0), (9, 7), (len(norms) - 1,) * 2):
            told = hover(shared, r, c).split("\n")[1]
            name = "weight" if writes else r"‖αf\(x\)‖"
            shown, other = re.match(rf"≈?([\d.]+) {name} ≈?([\d.]+)", told).groups()
            assert float(shown) == pytest.approx(first[r, c], rel=0.02)
            assert float(other) == pytest.approx(second[r, c], rel=0.02)


def test_lines_and_full_colour_go_by_the_largest_norm(shared: Opened, page: Path) -> None:
    shared.open(page, f"view=lines&on={HEAD}&head={HEAD}")
    shared.go(f"view=overview&on={HEAD}&head={HEAD}&scale=one")
    assert "full colour is the largest ‖αf(x)‖ of all" in shared.text("#overview-said")
    shared.press("v")
    assert "full colour is a weight of 1" in shared.text("#overview-said")


def test_saved_arrays_name_their_quantity(shared: Opened, page: Path, tmp_path: Path) -> None:
    for writes, quantity in ((1, "norm"), (0, "weights")):
        shared.open(page, f"view=overview&on={HEAD}&writes={writes}")
        path = tmp_path / f"{quantity}.npz"
        path.write_bytes(shared.saved("all-npz"))
        read = recorded.load(path)
        assert read.quantity == quantity
        found = read[av.select(HEAD, read)[0]]
        np.testing.assert_allclose(found, of(quantity), atol=3e-5 * max(1, found.max()))


def test_layers_have_a_page_of_their_own_and_are_called_layers(
    shared: Opened, tmp_path: Path
) -> None:
    view = av.view(TEXT, quantity="norm-residual", bits=16)
    shared.open(view.save(tmp_path / "layers.html"))
    assert not shared.page.is_visible("#quantity-line")
    assert "‖Σαf(x) + x‖" in shared.text("#overview-said")
    assert (shared.page.text_content("#on-count") or "").endswith("of 4 on")
    shared.go("view=map&on=1.0")
    assert shared.text("#map-caption").startswith("layer 1")
    assert shared.text("#where") == "layer 1"
    shared.go("view=map&on=0.0,1.0&mix=mean")
    assert shared.text("#map-caption").startswith("mean of 2 layers")
    shared.go("view=card&head=1.0")
    assert shared.text("#card-body h2").startswith("Layer 1")
    for part in ("overview", "map", "lines", "text", "card"):
        shared.go(f"view={part}&on=1.0&who=q2k1")
        assert not re.search(r"\bhead \d", shared.text("main")), part
    named = shared.page.locator("#who-list strong").all_inner_texts()
    assert sorted(named) == ["0.*", "1.*", "2.*", "3.*"]
    assert ">1.*" in shared.go("view=overview").saved("svg").decode()
