"""A user's score and role in the page: a chip, a row of the card, where they come from, CSV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from tests import ROOT
from tests.features.view.test_view import HOSTILE
from tests.viewing import opened

TEXT = "The keys to the cabinet are on the table and the cat sat on a mat"


def test_a_score_of_ones_own_is_in_the_page(browser: Any, tmp_path: Path) -> None:
    av.load_plugins(ROOT / "sample_inputs" / "my_scores.py")

    @av.score("hostile", formula=HOSTILE[0], targets=True, source=HOSTILE[0])
    def hostile(block: av.ScoreBlock) -> Any:
        return block.on(block.key_positions == 0)

    found = next(head for head in av.heads(TEXT).heads if head.head.name == "1.3")
    path = av.view(TEXT).save(tmp_path / "own.html")
    with opened(browser, color_scheme="light") as page:
        page.open(path, "view=card&head=1.3")
        assert page.page.locator("button:has-text('articles 1')").count() == 1
        card = page.text("#card-body")
        score = found.scores["articles"]
        assert f"On this text: does articles {score.mean:.2f}." in card
        row = page.page.locator("tr:has(th:text-is('articles')) td").all_inner_texts()[-4:]
        assert [float(row[0]), float(row[1])] == pytest.approx([score.mean, score.chance], rel=0.02)
        assert row[3] == str(score.rows)
        marked = "User-defined: role articles (my_scores.articles); score articles "
        assert f"{marked}(my_scores.articles: sum of w[j] over articles); score hostile (" in card
        assert " ".join(HOSTILE[0].split())[:20] in " ".join(card.split())
        assert page.page.evaluate("window.pwned === undefined")
        names, lines = page.table()
        values = dict(zip(names, next(one for one in lines if one[0] == "1.3"), strict=True))
        assert float(values["articles"]) == pytest.approx(score.mean, rel=1e-4)
        assert page.console == []
