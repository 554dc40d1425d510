"""``attnviz heads``, as a user calls it."""

from __future__ import annotations

import re

import pytest

from tests.cli.calling import SENTENCE, call, heads_of, ok


def test_heads_of_a_real_bert(capsys, minilm: str) -> None:
    out = ok(capsys, "heads", SENTENCE, "--model", minilm)
    assert "native" in out
    assert "11 tokens" in out
    document = heads_of(capsys, SENTENCE, "--model", minilm)
    assert document["source"]["backend"] == "native"
    assert len(document["heads"]) == 72
    head = next(h for h in document["heads"] if h["head"] == "0.2")
    assert head["roles"][0]["name"] == "previous"
    assert head["scores"]["previous"]["mean"] > 0.95
    texts = document["tokens"]["encoder"]["keys"]["texts"]
    assert texts[0] == "[CLS]"
    assert "keys" in texts


def test_heads_filters_and_orders(capsys, minilm: str) -> None:
    some = heads_of(capsys, SENTENCE, "-m", minilm, "--select", "0.*,3.5")
    assert [h["head"] for h in some["heads"]] == [*(f"0.{i}" for i in range(12)), "3.5"]
    entropy = heads_of(capsys, SENTENCE, "-m", minilm, "--sort", "entropy", "--top", "5")
    means = [h["scores"]["entropy"]["mean"] for h in entropy["heads"]]
    assert len(means) == 5
    assert means == sorted(means, reverse=True)
    previous = heads_of(capsys, SENTENCE, "-m", minilm, "--role", "previous")
    assert previous["heads"]
    assert all(any(r["name"] == "previous" for r in h["roles"]) for h in previous["heads"])


def test_probe_runs_on_random_tokens_beside_the_sentence(capsys, minilm: str) -> None:
    document = heads_of(capsys, SENTENCE, "-m", minilm, "--probe")
    assert [one["head"] for one in document["probe"]] == [one["head"] for one in document["heads"]]
    probe = document["probe"][0]["scores"]
    assert set(probe) == {"duplicate", "duplicate_no_sink", "induction", "induction_no_sink"}
    assert probe["induction"]["rows"] > 50
    assert document["heads"][0]["scores"]["previous"]["rows"] < 12


@pytest.mark.parametrize(
    ("options", "heads", "kind"),
    [
        (["-m", "fresh", "--heads", "4"], 4, "encoder"),
        (["-m", "fresh", "--kind", "gqa", "--layers", "3", "--causal"], 24, "decoder"),
        (["-m", "fresh", "--kind", "mla", "--d-model", "64"], 8, "encoder"),
        (["-m", "fresh", "--pair", "Die Schlüssel liegen"], 8, "cross"),
    ],
)
def test_fresh_layers(capsys, options: list[str], heads: int, kind: str) -> None:
    document = heads_of(capsys, SENTENCE, *options)
    assert document["source"]["backend"] == "untrained"
    assert len(document["heads"]) == heads
    assert set(document["tokens"]) == {kind}
    ok(capsys, "heatmap", SENTENCE, *options, "-s", "0.1")


def test_pair_ids_and_special_tokens(capsys, minilm: str) -> None:
    pair = heads_of(capsys, "The cat sat.", "--pair", "It slept.", "-m", minilm)
    texts = pair["tokens"]["encoder"]["keys"]["texts"]
    assert texts.count("[SEP]") == 2
    bare = heads_of(capsys, "The cat sat.", "--no-special-tokens", "-m", minilm)
    assert bare["tokens"]["encoder"]["keys"]["texts"] == ["the", "cat", "sat", "."]
    ids = ",".join(map(str, pair["tokens"]["encoder"]["keys"]["ids"]))
    again = heads_of(capsys, "--ids", ids, "-m", minilm)
    assert again["tokens"]["encoder"]["keys"]["texts"] == texts


def test_truncate_says_what_it_cut(capsys) -> None:
    text = "word " * 300
    code, _, err = call(capsys, "heads", text, "-m", "demo-bert")
    assert code == 1
    assert "302" in err
    assert "256" in err
    assert "--truncate" in err
    code, out, err = call(capsys, "heads", text, "-m", "demo-bert", "--truncate")
    assert code == 0
    assert "256 tokens" in out
    assert "46" in err


def test_the_table_leads_with_what_heads_do_and_counts_those_that_rest(capsys) -> None:
    text = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
    _, said, _ = call(capsys, "heads", text, "-q")
    table = said[said.index("\nhead ") :]
    assert "\n1.4 " in table
    assert "\n0.0 " not in table  # diffuse, and nothing else
    assert re.search(
        r"^5 heads attend only to sinks or diffusely: first 1, diffuse 4 \(--top all lists "
        r"them\)$",
        said,
        re.M,
    )
    _, said, _ = call(capsys, "heads", text, "-q", "--top", "all")
    assert "\n0.0 " in said
    assert "only to sinks" not in said


def test_a_table_sorted_by_a_score_shows_it(capsys) -> None:
    text = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
    _, said, _ = call(capsys, "heads", text, "-q", "--sort", "entropy", "--top", "all")
    header, _, *rows = said[said.index("\nhead ") + 1 :].splitlines()
    place = header.split().index("entropy")
    assert place == 2
    shown = [float(re.findall(r"\d+\.\d+", row)[1]) for row in rows[:24]]
    assert shown == sorted(shown, reverse=True)
    assert len(set(shown)) > 10
