"""Roles: thresholds, order, nothing without evidence, and heads that do one thing only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import attnviz as av
from attnviz.core.heads import Head, Site, SiteKind
from attnviz.core.scores import HeadScores, Rival, Score
from attnviz.scoring.block import LOCAL_WINDOW, SINK_REST
from attnviz.scoring.roles import FEW_ROWS, MIN_ROWS, ROLES, SHOWN, Evidence, assign, role_name
from attnviz.scoring.scores import SCORES
from tests import ROOT
from tests.scoring.test_scores import observe

Array = NDArray[np.float64]
PAGE = ROOT / "docs" / "roles.md"

EVIDENCE = [(role, item) for role in ROLES.values() for item in role.evidence]


def score(mean: float, lift: float | None, rows: int = 20) -> Score:
    return Score(mean, mean / lift if lift else None, lift, rows)


# -- the table --------------------------------------------------------------------------------


def test_the_table() -> None:
    """The thresholds that docs/roles.md promises."""
    table = {
        name: [(e.score, e.mean, e.lift) for e in role.evidence] for name, role in ROLES.items()
    }
    assert table == {
        "previous": [("previous", 0.5, 2)], "next": [("next", 0.5, 2)], "self": [("self", 0.5, 2)],
        "first": [("first", 0.5, 2)], "separator": [("separator", 0.5, 2)],
        "punctuation": [("punctuation", 0.5, 2)], "local": [("local", 0.6, 2)],
        "duplicate": [("duplicate", 0.3, 3), ("duplicate_no_sink", 0.5, 3)],
        "induction": [("induction", 0.3, 3), ("induction_no_sink", 0.5, 3)],
        "monotonic": [("diagonal", 0.85, 1.7)], "registers": [("registers", 0.5, 2)],
        "diffuse": [("entropy_share", 0.9, 0)],
    }  # fmt: skip
    for role in SHOWN.values():
        assert role.reason
        assert "arXiv:" in role.source
        assert {e.score for e in role.evidence} <= set(SCORES)
        assert set(role.unless) < set(ROLES)
    assert set(ROLES["diffuse"].unless) == set(ROLES) - {"diffuse"}


@pytest.mark.parametrize(("role", "evidence"), EVIDENCE, ids=[e.score for _, e in EVIDENCE])
def test_thresholds(role: object, evidence: Evidence) -> None:
    """At the threshold yes; below it in mean, lift or rows no."""
    name = role.name  # type: ignore[attr-defined]
    mean, lift = evidence.mean, evidence.lift or 1.0

    def roles(s: Score) -> list[str]:
        return [r.name for r in assign({evidence.score: s})]

    assert roles(score(mean, lift)) == [name]
    assert roles(score(mean - 1e-9, 10.0)) == []
    if evidence.lift:
        assert roles(score(mean, lift - 1e-9)) == []
        assert roles(score(mean, None)) == []
    assert roles(score(mean, lift, MIN_ROWS)) == [name]
    assert roles(score(mean, lift, MIN_ROWS - 1)) == []


def test_no_evidence_no_role() -> None:
    assert assign({}) == ()
    assert assign({name: Score(None, None, None, 0) for name in SCORES}) == ()
    assert assign({name: score(0.1, 9.0) for name in SCORES}) == ()
    assert assign({name: score(0.99, 1.0) for name in set(SCORES) - {"entropy_share"}}) == ()


def test_few_rows_are_marked() -> None:
    for rows in range(MIN_ROWS, 12):
        (role,) = assign({"previous": score(0.9, 5.0, rows)})
        assert role.few_rows is (rows < 8)
        assert role.evidence.rows == rows
    assert FEW_ROWS == 8


def test_what_a_head_does_comes_before_where_it_rests() -> None:
    """The rarest thing first, the commonest place first, few rows last; each with its evidence."""
    found = {
        "first": score(0.95, 4.0, 99),
        "self": score(0.5, 9.0, 100),
        "previous": score(0.8, 6.0, 90),
        "induction": score(0.4, 6.0, 12),
        "duplicate": score(0.9, 9.0, FEW_ROWS - 1),
    }
    roles = assign(found, rows=120)
    assert [r.name for r in roles] == ["induction", "previous", "duplicate", "self", "first"]
    assert [r.rests for r in roles] == [False, False, False, True, True]
    assert all(r.evidence is found[r.score] for r in roles)
    assert [r.possible for r in roles] == [r.evidence.rows / 120 for r in roles]
    assert assign(found)[0].possible is None
    head = HeadScores(Head(Site("decoder", 0), 0), found, roles)
    assert (head.does, head.rests) == (roles[0], roles[3])
    for kind, other in ((True, "does"), (False, "rests")):
        some = replace(head, roles=tuple(r for r in roles if r.rests is kind))
        assert getattr(some, other) is None


def test_a_role_is_judged_on_its_own_rows() -> None:
    """Whatever a head does elsewhere: there no other target may get as much."""
    found = {"first": score(0.7, 4.0, 100), "induction": score(0.6, 6.0, 12)}
    on_its_rows = {"induction": 0.6, "first": 0.3, "self": 0.1}
    shares = {"first": {"first": 0.7, "induction": 0.07}, "induction": on_its_rows}
    does, rests = assign(found, shares, 100)
    assert (does.name, does.rival) == ("induction", Rival("first", 0.3))
    assert (rests.name, rests.rival) == ("first", Rival("induction", 0.07))
    for most in (0.6, 0.61):  # as much is too much
        shares["induction"] = {**on_its_rows, "first": most}
        assert [r.name for r in assign(found, shares, 100)] == ["first"]


def test_targets_within_targets_are_no_rivals() -> None:
    """What is on the token before is within two tokens."""
    shares = {"previous": {"previous": 0.7, "local": 0.9}, "local": {"local": 0.9, "self": 0.3}}
    found = {"previous": score(0.7, 5.0), "local": score(0.9, 4.0)}
    (role,) = assign(found, shares)
    assert (role.name, role.rival) == ("previous", None)
    (role,) = assign({"local": found["local"]}, shares)
    assert (role.name, role.rival) == ("local", None)


def test_off_the_sink_the_sink_is_no_rival() -> None:
    """Evidence without the sink is compared with what else is there without the sink."""
    found = {"induction": score(0.3, 6.0), "induction_no_sink": score(0.8, 6.0)}
    shares = {
        "induction": {"induction": 0.3, "first": 0.6},
        "induction_no_sink": {"induction": 0.8, "first": 0.0, "self": 0.1},
    }
    (role,) = assign(found, shares)
    assert (role.score, role.rival) == ("induction_no_sink", Rival("self", 0.1))


def test_the_first_evidence_that_holds_is_shown() -> None:
    """Induction by its plain share, else by its share without the sink."""
    both = {"induction": score(0.4, 5.0), "induction_no_sink": score(0.9, 5.0)}
    (role,) = assign(both)
    assert role.score == "induction"
    (role,) = assign({**both, "induction": score(0.2, 5.0)})
    assert (role.name, role.score, role.evidence) == (
        "induction",
        "induction_no_sink",
        both["induction_no_sink"],
    )


@pytest.mark.parametrize("name", sorted(set(ROLES) - {"diffuse"}))
def test_diffuse_only_by_entropy_and_alone(name: str) -> None:
    evidence = ROLES[name].evidence[0]
    wide = {"entropy_share": score(0.95, 0.95)}
    assert [r.name for r in assign(wide)] == ["diffuse"]
    assert [r.name for r in assign({"entropy_share": score(0.89, 0.89)})] == []
    both = {**wide, evidence.score: score(evidence.mean, evidence.lift)}
    assert [r.name for r in assign(both)] == [name]


def test_local_is_for_heads_without_a_single_place() -> None:
    near = {"local": score(0.9, 4.0)}
    assert [r.name for r in assign(near)] == ["local"]
    for name in ("previous", "next", "self"):
        assert [r.name for r in assign({**near, name: score(0.7, 4.0)})] == [name]
    found = assign({**near, "punctuation": score(0.5, 4.0)})
    assert [r.name for r in found] == ["local", "punctuation"]


# -- attention made to be one role ------------------------------------------------------------

HALF = "q w e r t y u i o p a s"
BERT = "[CLS] the keys , to the old cabinet are on the big table . they fit . [SEP]"
REPEATED = f"[BOS] {HALF} {HALF}"


Target = Callable[[int, list[str]], list[int]]


def same(i: int, texts: list[str], after: int = 0) -> list[int]:
    return [j + after for j in range(i - 1) if texts[j] == texts[i]]


MADE: dict[str, tuple[str, Target]] = {
    "previous": (BERT, lambda i, t: [i - 1]), "next": (BERT, lambda i, t: [i + 1]),
    "self": (BERT, lambda i, t: [i]), "first": (BERT, lambda i, t: [0]),
    "separator": (BERT, lambda i, t: [len(t) - 1]),
    "punctuation": (BERT, lambda i, t: [j for j, x in enumerate(t) if x in ",."]),
    "local": (BERT, lambda i, t: [i - 2, i - 1, i, i + 1, i + 2]), "duplicate": (REPEATED, same),
    "induction": (REPEATED, lambda i, t: same(i, t, 1)),
    "diffuse": (BERT, lambda i, t: list(range(len(t)))),
}  # fmt: skip


def made(text: str, targets: Target, strength: float, causal: bool) -> tuple[Array, Array]:
    """So much of each row's weight on its targets, the rest spread over all keys it may see."""
    texts = text.split()
    n = len(texts)
    allowed = np.tril(np.ones((n, n))) if causal else np.ones((n, n))
    weights = allowed / allowed.sum(1, keepdims=True)
    for i in range(n):
        wanted = [j for j in targets(i, texts) if 0 <= j < n and allowed[i, j]]
        if wanted:
            weights[i] *= 1 - strength
            weights[i, wanted] += strength / len(wanted)
    return weights, allowed


def roles_of(weights: Array, allowed: Array, text: str, kind: SiteKind) -> list[str]:
    (head,) = observe(weights, text, kind=kind, allowed=allowed).result()
    return [role.name for role in head.roles]


def test_one_made_head_for_every_role() -> None:
    elsewhere = ("monotonic", "registers")  # not of texts: test_places.py
    assert list(MADE) == [name for name in ROLES if name not in elsewhere]


BOTH_WAYS = [
    pytest.param(name, causal, id=f"{name}-{'causal' if causal else 'bidirectional'}")
    for name in MADE
    for causal in (False, True)
    if not (causal and name in ("next", "separator"))  # those come after the row
]


@pytest.mark.parametrize("strength", [0.75, 1.0])
@pytest.mark.parametrize(("name", "causal"), BOTH_WAYS)
def test_a_head_made_for_a_role_has_it_and_no_other(
    name: str, causal: bool, strength: float
) -> None:
    text, targets = MADE[name]
    if causal and name == "punctuation":  # marks that every row can look back at
        text = "[BOS] so , " + text.removeprefix("[CLS] ")
    weights, allowed = made(text, targets, strength, causal)
    found = roles_of(weights, allowed, text, "decoder" if causal else "encoder")
    assert found == [name]


def test_an_induction_head_that_rests_on_the_sink_is_both() -> None:
    weights, allowed = made(REPEATED, lambda i, t: [0], 1.0, True)
    texts = REPEATED.split()
    for i in range(13, 25):
        weights[i, same(i, texts, 1)] = 0.2
        weights[i, 0] = 0.8
    found = roles_of(weights, allowed, REPEATED, "decoder")
    assert found == ["induction", "first"]


def test_a_short_sentence_gives_no_role_where_three_rows_are_missing() -> None:
    weights, allowed = made("a b c d", lambda i, t: [i - 1], 1.0, False)
    assert roles_of(weights, allowed, "a b c d", "encoder") == []  # rows 2 and 3
    weights, allowed = made("a b c d e", lambda i, t: [i - 1], 1.0, False)
    assert roles_of(weights, allowed, "a b c d e", "encoder") == ["previous"]


# -- models -----------------------------------------------------------------------------------

TEXT = "The keys to the cabinet are on the table , and the cabinet is locked ."


@pytest.mark.parametrize("causal", [False, True])
def test_random_weights_give_nearly_no_roles(causal: bool) -> None:
    """Over 192 random heads; near-uniform ones are called diffuse, which is what they are."""
    specific = heads = 0
    for seed in range(3):
        model = av.load(av.FreshConfig(d_model=64, heads=16, layers=4, causal=causal, seed=seed))
        for head in av.heads(TEXT, model=model).heads:
            heads += 1
            names = [role.name for role in head.roles]
            specific += names not in ([], ["diffuse"])
            share = head.scores["entropy_share"].mean
            assert share is not None
            assert ("diffuse" in names) <= (share >= 0.9)
    assert heads == 192
    assert specific <= 4


KETTLE = "The kettle sang and the candle burned while the kettle sang and the candle burned."


def test_the_demo_heads_that_do_induction_and_rest_elsewhere() -> None:
    """2.0 and 2.4 look at what followed last time; most rows have nothing of the kind."""
    heads = {head.head.name: head for head in av.heads(KETTLE).heads}
    for name, place in (("2.0", "first"), ("2.4", "self")):
        does, rests = heads[name].does, heads[name].rests
        assert does is not None
        assert rests is not None
        assert (does.name, rests.name) == ("induction", place)
        assert does.rival is not None
        assert does.evidence.mean is not None
        assert does.evidence.mean > 1.25 * does.rival.mean
        assert does.possible == does.evidence.rows / heads[name].scores["top"].rows
    assert heads["1.4"].does is not None
    assert heads["1.4"].does.name == "previous"
    assert heads["1.4"].rests is None


def test_minilm_has_a_previous_token_head(minilm: str) -> None:
    report = av.heads("The keys to the cabinet are on the table.", model=minilm)
    (head,) = [h for h in report.heads if h.head.name == "0.2"]
    assert [r.name for r in head.roles] == ["previous"]
    evidence = head.roles[0].evidence
    assert evidence.mean is not None
    assert evidence.mean > 0.95
    assert evidence == head.scores["previous"]


# -- the page ---------------------------------------------------------------------------------


def test_the_page_names_every_score_with_its_unit_and_source() -> None:
    page = PAGE.read_text("utf-8")
    rows = {
        line.split("|")[1].strip(): line for line in page.splitlines() if line.startswith("| `")
    }
    for entry in SCORES.values():
        row = rows[f"`{entry.name}`"]
        assert entry.unit in row, entry.name
        for number in entry.source.split("arXiv:")[1:]:
            assert number in page
        assert entry.source.split(" et al")[0] in row, entry.name
    scores = page.partition("## Scores")[2].partition("\n## ")[0]
    named = {line.split("|")[1].strip() for line in scores.splitlines() if line.startswith("| `")}
    assert named == {f"`{name}`" for name in SCORES}
    assert f"within {LOCAL_WINDOW} tokens" in page
    assert f"{SINK_REST:g} of its weight" in page


def test_the_page_has_the_table_of_roles() -> None:
    page = PAGE.read_text("utf-8")
    table = page.partition("## Roles")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| **")]
    assert [row.split("**")[1] for row in rows] == list(ROLES)
    for row, role in zip(rows, ROLES.values(), strict=True):
        conditions = [
            f"`{e.score}` ≥ {e.mean:g}" + (f" and lift ≥ {e.lift:g}" if e.lift else "")
            for e in role.evidence
        ]
        assert " or ".join(conditions) in row
        for source in role.source.split("; "):
            assert source.split(",")[0] in row, role.name
            assert source.rpartition("arXiv:")[2] in page
        for name in role.unless if role.name != "diffuse" else ():
            assert name in row
    assert f"fewer than {MIN_ROWS} rows" in page
    assert f"fewer than {FEW_ROWS} rows" in page
    for citation in (
        "1902.10186", "2004.10102", "2005.00928", "1905.10650", "1905.09418", "2209.11895"
    ):  # fmt: skip
        assert f"arXiv:{citation}" in page


def test_a_rival_counts_on_all_rows_of_the_role_also_where_it_has_none() -> None:
    """The only full stop looks at itself: no row of ``punctuation``, but one of ``self``."""
    cap = av.capture("The keys to the cabinet are on the table.")
    (found,) = (head for head in av.heads(cap).heads if head.head.name == "2.4")
    assert found.scores["punctuation"].rows == 0
    assert found.rests is not None
    assert found.rests.rival is not None
    assert (found.rests.name, found.rests.rival.name) == ("self", "punctuation")
    (stop,) = (place for place, text in enumerate(cap.tokens) if text == ".")
    weight = cap["2.4"][:, stop].sum() / found.rests.evidence.rows
    assert found.rests.rival.mean == pytest.approx(float(weight), abs=1e-6)


def test_a_score_without_a_role_is_no_rival() -> None:
    measured = {"previous": Score(0.6, 0.1, 6.0, 20)}
    (role,) = assign(measured, {"previous": {"previous": 0.6, "a new score": 0.9}})
    assert (role.name, role.rival) == ("previous", None)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("sink", "first"), ("attention sink", "first"), ("Previous-token head", "previous"),
        ("induction heads", "induction"), ("duplicate_token", "duplicate"),
        ("coref", "coreference"), ("king", "king"), ("head", "head"),
    ],
)  # fmt: skip
def test_roles_are_found_by_the_names_of_the_literature(asked: str, name: str) -> None:
    assert role_name(asked) == name


def test_every_role_is_found_by_its_own_name() -> None:
    assert [role_name(name) for name in SHOWN] == list(SHOWN)
