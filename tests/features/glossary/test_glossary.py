"""The glossary: its terms, its page, and ``attnviz help``."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from attnviz.cli import COMMANDS, Commands, main
from attnviz.core.questions import Term, about_head, nearest, questions, term, terms
from attnviz.errors import UsageError
from attnviz.scoring.roles import SHOWN
from tests import ROOT
from tests.cli.calling import ok

DOCS = ROOT / "docs" / "glossary.md"
ASKED = Path(__file__).with_name("asked.tsv")


def test_every_term_and_other_name_is_there_once_and_in_order() -> None:
    names = [name.lower() for one in terms() for name in (one.name, *one.also)]
    assert len(names) == len(set(names))
    assert [one.name.lower() for one in terms()] == sorted(one.name.lower() for one in terms())
    assert all(one.text.endswith(".") and not one.source.endswith(".") for one in terms())


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("induction", "induction head"), ("Induction-Heads", "induction head"),
        ("SINK", "attention sink"), ("dla", "direct logit attribution"), ("top p", "temperature"),
        ("W_O", "W_O"), ("nan", "NaN"),
        ("RuntimeError: view size is not compatible with input tensor's size and stride (at "
         "least one dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
         "contiguous"),
        ("AssertionError: embed_dim must be divisible by num_heads", "num_heads"),
        ("why is my loss nan", "NaN"),
        ("Attention weights don't sum to 1", "dropout"),
        ("RuntimeError: The shape of the 2D attn_mask is torch.Size([5, 5]), but should be (7, 7).",
         "attn_mask"),
        ("RuntimeError: value cannot be converted to type at::Half without overflow",
         "float16 overflow"),
        ("Total number of attention heads (28) must be divisible by tensor parallel size (8).",
         "tensor parallel"),
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 32.00 GiB", "quadratic cost"),
    ],
)  # fmt: skip
def test_terms_are_found_by_other_names(asked: str, name: str) -> None:
    assert term(asked).name == name


@pytest.mark.parametrize(
    "asked",
    ["softmax", "attention", "query", "key", "value", "√d", "scaling", "mask", "embedding",
     "multi-head", "KL", "logit", "token", "layer norm", "MLP", "self-attention", "loss"],
)  # fmt: skip
def test_the_words_of_a_first_lecture_are_terms(asked: str) -> None:
    assert term(asked).text


@pytest.mark.parametrize("known", terms(), ids=lambda known: known.name)
def test_every_term_has_a_command_that_its_options_allow(known: Term) -> None:
    program, name, *arguments = shlex.split(known.command)
    assert program == "attnviz"
    Commands().get_command(None, name).make_context(name, arguments)
    assert all((ROOT / word).is_file() for word in arguments if word.startswith("sample_inputs/"))


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted({known.command for known in terms()}))
def test_every_command_to_try_works(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(line)[1:]) == 0


def test_what_is_no_term_has_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no term 'indction'; did you mean induction"):
        term("indction")


@pytest.mark.parametrize("role", [name for name in SHOWN if name not in ("self", "next")])
def test_most_roles_are_terms(role: str) -> None:
    assert term({"separator": "sink", "punctuation": "sink", "coreference": "GAP"}.get(role, role))


def test_help_on_the_command_line(capsys) -> None:
    out = " ".join(ok(capsys, "help", "attention sink").split())
    assert out.startswith("attention sink (also: sink) A token that gets most of the attention")
    assert out.endswith('Try: attnviz sinks "The keys to the cabinet are on the table"')
    assert "attnviz help TERM" in ok(capsys, "help")
    assert "attnviz heatmap --help" in ok(capsys, "help", "heatmap")
    assert main(["help", "nonsense"]) == 2
    assert "  attnviz ablate --probe\n" in ok(capsys, "help", "which heads matter")


@pytest.mark.parametrize("line", ASKED.read_text("utf-8").splitlines())
def test_a_plain_question_finds_its_command(line: str) -> None:
    """What people ask in their own words; where several commands answer, any of them."""
    commands, asked = line.split("\t")
    assert nearest(asked)[0].command.split()[1] in commands.split()


def test_the_help_of_a_question_is_short_and_names_python_where_that_is_asked(capsys) -> None:
    out = ok(capsys, "help", "jupyter")
    assert '  av.view("The keys to the cabinet are on the table")\n' in out
    assert len(out.splitlines()) <= 12


@pytest.mark.parametrize("asked", ["2.3", "L2H3", "what does 2.3 do?", "where does head 2.3 look"])
def test_the_head_that_is_asked_about_is_that_of_the_command(asked: str, capsys) -> None:
    out = ok(capsys, "help", asked)
    assert 'attnviz heatmap "The keys to the cabinet are on the table" --select 2.3\n' in out
    assert "1.4" not in out


def test_numbers_that_are_no_heads_are_not_taken_for_some() -> None:
    assert not any(map(about_head, ("gpt-3.5", "v1.4.2", "llama-3.1-8b", "3", "1.4b", "l3")))
    assert [question.command for question in about_head("is cross:4.11 needed?")] == [
        "attnviz ablate --probe --select cross:4.11"
    ]


def test_what_shares_no_word_finds_nothing() -> None:
    assert nearest("is it") == nearest("zebra quilt") == []


def test_every_question_names_a_command_and_finds_itself() -> None:
    for question in questions():
        assert question.command.split()[1] in COMMANDS
        assert nearest(question.asks)[0] == question
    unasked = set(COMMANDS) - {question.command.split()[1] for question in questions()}
    assert unasked == {"show", "capture", "mcp", "demo", "help"}
