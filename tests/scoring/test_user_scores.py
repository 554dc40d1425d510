"""Scores, roles, metrics and fills of users: registered, checked, and used as attnviz's own."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.cli import main
from attnviz.errors import UsageError
from attnviz.scoring import plugins, roles, scores
from attnviz.scoring.roles import ROLES, SHOWN
from attnviz.scoring.scores import SCORES

TEXT = "The keys to the cabinet are on the table and the cat sat on a mat"
ARTICLES = ("the", "a", "an", "one", "this", "that")
ONE_SCORE = """
import attnviz as av

@av.role("articles", mean=0.4, lift=1.5, code="art", short="ar")
@av.score("articles", formula="sum of w[j] over articles", targets=True)
def articles(block):
    return block.on([text.strip().lower() in ("the", "a", "an") for text in block.key_texts])
"""
PLUGIN = f"""{ONE_SCORE}
@av.score("first_half", chance=0.25, rows=lambda block: block.positions % 2 == 0)
def first_half(block):
    return block.on(block.key_positions < 8)

@av.metric("accuracy", unit="share", worse=-1)
def accuracy(seen):
    return (seen.logits.argmax(-1) == seen.targets).double()
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    """What is registered is tried at once, on many blocks: a single score."""
    path = tmp_path / "my_scores.py"
    path.write_text(ONE_SCORE)
    return path


def test_attnvizs_own_scores_registered_again_give_the_same_numbers() -> None:
    """The way of users' functions, chance included, is that of attnviz's own."""

    @av.score("own_previous", targets=True)
    def own_previous(block: av.ScoreBlock) -> torch.Tensor:
        plain = torch.tensor(
            [j > 0 and not special for j, special in enumerate(block.keys.special)]
        )
        there = plain[block.key_start : block.key_start + block.weights.shape[2]]
        return block.on((block.key_positions == block.positions[:, None] - 1) & there)

    @av.score("own_entropy", unit="bits")
    def own_entropy(block: av.ScoreBlock) -> torch.Tensor:
        return -torch.xlogy(block.weights, block.weights).sum(-1) / math.log(2)

    for look, model in ((TEXT, "demo-gpt2"), (av.Prompt(TEXT, pair="It slept."), "demo-bert")):
        for head in av.heads(look, model=model).heads:
            for own, ours in (("own_previous", "previous"), ("own_entropy", "entropy")):
                mine, theirs = head.scores[own], head.scores[ours]
                assert mine.rows == theirs.rows
                assert mine.mean == pytest.approx(theirs.mean, abs=1e-5)
                assert mine.chance == pytest.approx(theirs.chance, abs=1e-5)


def test_a_score_is_a_mean_over_its_rows_by_hand(plugin: Path) -> None:
    """Compared with float64 NumPy over the whole maps; batches of padded texts give the same."""
    before = av.heads(TEXT)
    plugin.write_text(PLUGIN)
    av.load_plugins(plugin)
    capture = av.capture(TEXT)
    tokens = capture.inputs.sides["decoder"].keys
    articles = np.array([t.strip().lower() in ("the", "a", "an") for t in tokens.texts])
    allowed = np.tril(np.ones((len(tokens), len(tokens))))
    uniform = allowed / allowed.sum(1, keepdims=True)
    chance = uniform @ articles
    rows = (chance > 0) & (chance < 1) & (np.arange(len(tokens)) > 0)
    found = av.heads(TEXT)
    for head in found.heads:
        weights = np.asarray(capture[head.head], np.float64)
        score = head.scores["articles"]
        assert score.rows == rows.sum()
        assert score.mean == pytest.approx((weights @ articles)[rows].mean(), abs=1e-6)
        assert score.chance == pytest.approx(chance[rows].mean(), abs=1e-6)
        even = np.arange(2, len(tokens), 2)
        half = head.scores["first_half"]
        assert (half.rows, half.chance) == (len(even), 0.25)
        assert half.mean == pytest.approx(weights[even][:, :8].sum(1).mean(), abs=1e-6)
    kept = [[role for role in head.roles if role.name != "articles"] for head in found.heads]
    assert kept == [list(head.roles) for head in before.heads]  # attnviz's own stay as they were
    marked = json.loads(found.to_json())["user_defined"][0]
    assert marked.pop("formula") == "sum of w[j] over articles"
    assert marked == {"what": "score", "name": "articles", "function": "my_scores.articles"}
    texts = ["A cat sat.", TEXT, "The end of the story was the beginning of a friendship."]
    several = av.profile(texts=texts)
    alone = [av.heads(text) for text in texts]
    for number, head in enumerate(several.heads):
        each = [one.heads[number].scores["articles"] for one in alone]
        total = sum(score.rows for score in each)
        mean = sum((score.mean or 0) * score.rows for score in each) / total
        assert head.estimates["articles"].rows == total
        assert head.estimates["articles"].mean == pytest.approx(mean, abs=1e-6)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (lambda block: block.weights[..., 0], "depends on the block that a row comes in"),
        (lambda block: block.weights.amax(-1).cumsum(1) / 30, "depends on the block"),
        (lambda block: block.weights.softmax(0).amax(-1), "in one head at a time"),
        (lambda block: block.weights.log().sum(-1), "gives -inf for a row"),
        (lambda block: 2 * block.weights.sum(-1), "gives 2 for a row; a score in share"),
        (lambda block: block.weights.mul_(0.5).sum(-1), "changes the weights"),
        (lambda block: block.weights.sum((1, 2)), "RuntimeError"),
        (lambda block: 1 / 0, "ZeroDivisionError"),
        (lambda block: block.no, "AttributeError"),
    ],
)  # fmt: skip
def test_what_cannot_be_added_up_is_refused_by_name(function: object, why: str) -> None:
    with pytest.raises(UsageError, match=f"(?s)score 'wrong'.*lambda.*{why}"):
        av.score("wrong")(function)
    assert "wrong" not in SCORES


def test_names_codes_and_bounds_are_checked() -> None:
    @av.score("mine")
    def mine(block: av.ScoreBlock) -> torch.Tensor:
        return block.weights.amax(-1)

    av.score("mine")(mine)  # a cell that runs again
    for wrong in (
        lambda: av.score("previous")(mine),
        lambda: av.score("Not A Name")(mine),
        lambda: av.score("layer")(mine),
        lambda: av.score("other", spaces=["moon"])(mine),
        lambda: av.role("induction", mean=0.5)(mine),
        lambda: av.role("peak", mean=1.5)(mine),
        lambda: av.role("peak", mean=0.5, code="prev")(mine),
        lambda: av.role("peak", mean=0.5, color="red")(mine),
        lambda: av.role("peak", mean=0.5, score="nothing")(mine),
        lambda: av.role("peak", mean=0.5, score="entropy")(mine),
        lambda: av.role("peak", mean=0.5)(lambda block: None),
        lambda: av.role("peak", mean=0.5, unless=["nobody"])(mine),
    ):
        with pytest.raises(UsageError):
            wrong()
    assert set(SHOWN) == set(ROLES) | {"syntactic", "coreference"}
    assert not [role for role in ROLES.values() if role.user]


def test_chance_is_what_the_user_says() -> None:
    def one_key(block: av.ScoreBlock) -> torch.Tensor:
        return 1 / block.allowed[0].sum(-1)

    @av.score("largest", chance=one_key)
    def largest(block: av.ScoreBlock) -> torch.Tensor:
        return block.weights.amax(-1)

    head = av.heads(TEXT).heads[0]
    mine, ours = head.scores["largest"], head.scores["top"]
    assert (mine.mean, mine.rows) == (ours.mean, ours.rows)
    assert mine.chance == pytest.approx(ours.chance, abs=1e-6)


def test_a_role_over_scores_holds_where_its_function_says_so() -> None:
    @av.role("sharp_previous", score="previous", mean=0.5, code="shrp", short="sh")
    def sharp(found: dict[str, av.Score]) -> bool:
        return found["entropy"].mean < 0.5

    for head in av.heads(TEXT).heads:
        names = [role.name for role in head.roles]
        mean = head.scores["entropy"].mean
        assert ("sharp_previous" in names) == ("previous" in names and mean < 0.5)


def test_results_are_read_where_the_role_is_not_registered(plugin: Path, tmp_path: Path) -> None:
    av.load_plugins(plugin)
    found = av.heads(TEXT)
    assert any(role.name == "articles" for head in found.heads for role in head.roles)
    path = tmp_path / "heads.json"
    found.save(path)
    for registered in (scores._REGISTERED, roles._REGISTERED):
        del registered["articles"]
    again = av.read(path)
    assert again == found
    assert again.to_bytes("png")[:4] == b"\x89PNG"
    assert "articles" in again.described()


def test_the_command_line_runs_a_plugin_in_every_process(
    plugin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, states = tmp_path / "texts.txt", []
    texts.write_text("".join(f"The cat sat on {article} mat.\n" for article in ARTICLES))
    for jobs in ("1", "2"):
        out = tmp_path / f"{jobs}.profile"
        states.append(out)
        command = [
            "profile", str(texts), "--plugin", str(plugin), "--jobs", jobs, "--state", str(out),
        ]  # fmt: skip
        assert main([*command, "-q"]) == 0
        assert "user-defined: score articles (my_scores.articles)" in capsys.readouterr().out
    one, two = (av.read(state) for state in states)
    assert one == two
    assert one.heads[0].estimates["articles"].low is not None
    for registered in (scores._REGISTERED, roles._REGISTERED):
        del registered["articles"]
    assert main(["show", str(states[0])]) == 2
    assert "the score articles (my_scores.articles)" in capsys.readouterr().err


def test_plugins_that_cannot_be_loaded_say_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text, why in (
        ("others.py", "import nothing_like_this", "ModuleNotFoundError"),
        ("others.py", "def", "SyntaxError"),
        ("json.py", "", "there already, json"),
        ("others.txt", "", "no Python file"),
    ):
        path = tmp_path / name
        path.write_text(text)
        sys.modules.pop("others", None)
        assert main(["heads", TEXT, "--plugin", str(path)]) in (1, 2)
        assert why in capsys.readouterr().err
    assert main(["heads", TEXT, "--plugin", str(tmp_path / "gone.py")]) == 1


NOISY = """
import sys
import attnviz as av
print("loading")
{at_import}

@av.role("first_key", mean=0.5)
@av.score("first_key")
def first_key(block):
    print("scoring")
    {in_score}
    return block.on(block.key_positions == 0)

@av.role("always", score="previous", mean=0.01, lift=0)
def always(found):
    print("judging")
    return True
"""


def test_what_a_plugin_prints_is_no_part_of_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(NOISY.format(at_import="", in_score=""))
    assert main(["heads", TEXT, "--json", "--plugin", str(path)]) == 0
    captured = capsys.readouterr()
    assert "first_key" in json.loads(captured.out)["heads"][0]["scores"]
    assert {"loading", "scoring", "judging"} <= set(captured.err.splitlines())


@pytest.mark.parametrize("where", ["at_import", "in_score"])
@pytest.mark.parametrize("code", ["0", "'enough'"])
def test_a_plugin_cannot_end_a_command(
    where: str, code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"quits_{where}_{len(code)}.py"
    calls = {"at_import": "", "in_score": ""} | {where: f"sys.exit({code})"}
    path.write_text(NOISY.format(**calls))
    assert main(["heads", TEXT, "--json", "--plugin", str(path)]) == 2
    captured = capsys.readouterr()
    assert not captured.out
    assert re.search(r"(plugin .*quits_.*py|score 'first_key').* failed.*: it calls sys.exit",
                     captured.err)  # fmt: skip


def test_installed_packages_are_found_by_their_entry_points(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my_scores.py").write_text(ONE_SCORE)
    about = tmp_path / "own_scores-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: own-scores\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[attnviz.scores]\nmine = my_scores\n")
    monkeypatch.syspath_prepend(tmp_path)
    plugins._installed.cache_clear()
    try:
        assert main(["heads", TEXT, "--plugin", "none"]) == 0
        assert "user-defined" not in capsys.readouterr().out
        assert main(["heads", TEXT]) == 0
        assert "my_scores.articles" in capsys.readouterr().out
    finally:
        plugins._installed.cache_clear()


def test_functions_of_a_notebook_stay_in_one_process() -> None:
    @av.score("mine")
    def mine(block: av.ScoreBlock) -> torch.Tensor:
        return block.weights.amax(-1)

    assert av.profile(texts=[TEXT]).heads[0].estimates["mine"].mean is not None
    with pytest.raises(UsageError, match="not known to other processes"):
        av.profile(texts=[TEXT], jobs=2)
