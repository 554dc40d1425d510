"""Chats: ids as transformers makes them, and every message where it stands."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from transformers import AutoTokenizer

import attnviz as av
from attnviz.core.source import Source
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models import chat as messages
from attnviz.models import pretrained
from attnviz.models.chat import as_text
from attnviz.models.demo import DEMOS
from attnviz.models.hooked.tokenizer import load_texts
from tests.models.templates import TEMPLATES

CHAT = [
    {"role": "system", "content": "  Answer with one word of the user. "},
    {"role": "user", "content": "user"},
    {"role": "assistant", "content": "<think>user? system?</think>The keys"},
    {"role": "user", "content": "And the user\nagain, [INST] The keys?\n"},
]
"""Hard to find again: what is said is also what templates write, twice, and in white space."""
NAMES = ("system", "user", "assistant", "user 2")


Load = Callable[[str], Source]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="memory has no limit elsewhere")
LOOP = "{% for i in range(100000) %}{% for j in range(100000) %}INNER{% endfor %}{% endfor %}"
MEMORY = "takes more than 512 MiB of memory"
DOUBLED = (
    "{% set ns = namespace(x='ab') %}{% for i in range(60) %}"
    "{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}"
)


def with_any_template(backend: Any) -> Load:
    source: Any = pretrained.load("demo-gpt2", backend=backend)
    source._texts = texts = load_texts(DEMOS["demo-gpt2"], "demo-gpt2")

    def with_template(jinja: str) -> Source:
        texts._tokenizer.chat_template = jinja
        return source

    return with_template


@pytest.fixture(scope="module")
def native() -> Load:
    """The demo model, loaded once, with any template."""
    return with_any_template("native")


def tokens(source: Source, **prompt: Any) -> tuple[Tokens, tuple[str, ...]]:
    inputs = source.prepare(av.Prompt(**prompt))
    return inputs.sides["decoder"].queries, inputs.notes


def reference_ids(jinja: str, chat: list[dict[str, str]]) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(DEMOS["demo-gpt2"])
    tokenizer.chat_template = jinja
    made = tokenizer.apply_chat_template(
        chat, add_generation_prompt=chat[-1]["role"] != "assistant", return_dict=True
    )
    return made["input_ids"]


def standing(pieces: list[tuple[str, int | None]]) -> Iterator[tuple[int, int, int]]:
    """The message, first character and end of every piece that is one."""
    end = 0
    for text, message in pieces:
        start, end = end, end + len(text)
        if message is not None:
            yield message, start, end


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_chat_is_what_transformers_makes_of_it(family: str, native: Load) -> None:
    """Every message where the template puts it, in characters and in tokens.

    Both are put together again without Jinja or offsets.
    """
    template = TEMPLATES[family]
    found, notes = tokens(native(template.jinja), chat=CHAT)
    assert list(found.ids) == reference_ids(template.jinja, CHAT)
    pieces = template.pieces(CHAT)
    text = "".join(piece for piece, _ in pieces)
    assert "".join(found.texts) == text
    expected = {NAMES[message]: (start, end) for message, start, end in standing(pieces)}
    spans = {span.name: span for span in found.spans}
    assert {name: span.characters for name, span in spans.items()} == {
        name: (where,) for name, where in expected.items()
    }
    ends = [0]
    for piece in found.texts:
        ends.append(ends[-1] + len(piece))
    for name, (start, end) in expected.items():
        inside = [
            place
            for place, piece in enumerate(found.texts)
            if any(
                start <= at < end and (not character.isspace() or not piece.strip())
                for at, character in enumerate(piece, ends[place])
            )
        ]
        assert spans[name].positions == tuple(inside), name
    changed = {
        name for name, message in zip(NAMES, CHAT, strict=True)
        if text[slice(*expected[name])] != message["content"]
    }  # fmt: skip
    assert {name for name in NAMES if any(f"'{name}'." in note for note in notes)} == changed


def test_a_hooked_model_reads_the_same(native: Load) -> None:
    jinja = TEMPLATES["chatml"].jinja
    assert tokens(with_any_template("hooked")(jinja), chat=CHAT) == tokens(native(jinja), chat=CHAT)


def test_an_answer_at_the_end_begins_no_other(native: Load) -> None:
    source = native(TEMPLATES["chatml"].jinja)
    found, _ = tokens(source, chat=CHAT[:3])
    assert "".join(found.texts).endswith("keys<|im_end|>\n")
    assert list(found.ids) == reference_ids(TEMPLATES["chatml"].jinja, CHAT[:3])


def test_what_is_left_out_is_said(native: Load) -> None:
    source = native(TEMPLATES["thoughts"].jinja)
    _, notes = tokens(source, chat=CHAT)
    cut = len("<think>user? system?</think>")
    assert notes == (
        f"The chat template of demo-gpt2 leaves out {cut} characters before what is left of "
        "'assistant'.",
    )


@pytest.mark.parametrize(
    ("jinja", "note"),
    [
        ("{% for m in messages %}{{ m.content | upper }}{% endfor %}", "does not show 'user'"),
        ("{{ messages[-1].content }}", "does not show 'system'"),
        ("{{ messages[0].content[:9] ~ messages[-1].content }}", "does not show 'system'"),
    ],
)
def test_a_message_that_is_rewritten_is_no_span(native: Load, jinja: str, note: str) -> None:
    source = native(jinja)
    found, notes = tokens(source, chat=CHAT)
    assert any(note in one for one in notes)
    for span in found.spans:
        for start, end in span.characters:
            assert "".join(found.texts)[start:end] in CHAT[NAMES.index(span.name)]["content"]


def test_a_message_that_is_written_twice_is_one_span(native: Load) -> None:
    jinja = "{{ messages[0].content ~ ' | ' ~ messages[0].content }}"
    source = native(jinja)
    found, _ = tokens(source, chat=[{"role": "user", "content": "The keys"}])
    (span,) = found.spans
    pieces = [found.texts[place].strip() for place in span.positions]
    assert pieces == ["The", "keys"] * 2
    assert len(span.ranges) == 2


def test_named_parts_lie_inside_of_messages(native: Load) -> None:
    source = native(TEMPLATES["chatml"].jinja)
    found, _ = tokens(source, chat=CHAT, spans={"thing": "#2:The keys"})
    spans = {span.name: set(span.positions) for span in found.spans}
    assert spans["thing"] < spans["user 2"]
    found, _ = tokens(source, chat=CHAT, spans={"end": "#4:regex:.+$", "role": "all:user"})
    (end, role) = [span for span in found.spans if span.name in ("end", "role")]
    text = "".join(found.texts)
    assert [text[a:b] for a, b in end.characters] == ["again, [INST] The keys?"]
    content = " ".join(message["content"] for message in CHAT)
    assert len(role.characters) == content.count("user"), "not what the template itself writes"
    with pytest.raises(UsageError, match="'user' is a message of the chat"):
        tokens(source, chat=CHAT, spans={"user": "The keys"})


def test_a_template_that_refuses_is_quoted(native: Load) -> None:
    source = native(TEMPLATES["late"].jinja)
    with pytest.raises(InputError, match="refuses these messages: one system message, at the"):
        tokens(source, chat=[*CHAT, CHAT[0]])


def test_a_model_without_a_template_says_so() -> None:
    with pytest.raises(ModelError, match="demo-bert has no chat template"):
        av.capture(av.Prompt(chat=CHAT), model="demo-bert")
    with pytest.raises(UsageError, match="a fresh layer has no chat template"):
        av.capture(av.Prompt(chat=CHAT), model="fresh")


@pytest.mark.parametrize(
    ("chat", "said"),
    [
        ([], "the chat has no messages"),
        ([{"content": "a"}], "message 1 has no role"),
        ([{"role": "user"}], "the content of message 1"),
        ([{"role": "user", "content": [{"type": "image"}]}], "is no text but list"),
        ([{"role": "user", "content": "\ud800"}], "not valid Unicode"),
    ],
)
def test_what_is_no_chat_is_refused(chat: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        as_text(av.Prompt(chat=chat), lambda chat: "", "a model")


def test_a_chat_beside_a_text_is_refused() -> None:
    with pytest.raises(UsageError, match="the messages of a chat"):
        av.capture(av.Prompt("The keys", chat=CHAT))


@pytest.mark.parametrize(
    ("jinja", "said"),
    [
        (LOOP.replace("INNER", ""), "was not done after 0.3 s"),
        (LOOP.replace("INNER", "more and more of it"), "was not done after 0.3 s"),
        ("{% if messages[0].content != 'a' %}" + LOOP.replace("INNER", "") + "{% endif %}a",
         "was not done after 0.3 s"),
        pytest.param(DOUBLED, MEMORY, marks=on_linux),
        pytest.param("{{ 'a' * 10**10 }}", MEMORY, marks=on_linux),
        pytest.param("{{ 'a'|center(10**10) }}", MEMORY, marks=on_linux),
    ],
    ids=["time", "output", "only-with-a-mark", "doubled", "repeated", "padded"],
)  # fmt: skip
def test_a_template_without_end_is_stopped(
    native: Load, jinja: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert messages.SECONDS == 5
    if said != MEMORY:
        monkeypatch.setattr(messages, "SECONDS", 0.3)
    source = native(jinja)
    traced, limits = sys.gettrace(), resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(InputError, match=f"the chat template of demo-gpt2 was stopped: it {said}"):
        source.prepare(av.Prompt(chat=[{"role": "user", "content": "a"}]))
    assert sys.gettrace() is traced
    assert resource.getrlimit(resource.RLIMIT_AS) == limits


def test_a_template_that_writes_too_much_is_refused(native: Load) -> None:
    source = native("{{ messages[0].content * 70000000 }}")
    with pytest.raises(InputError, match="makes a text of 70,000,000 characters, more than"):
        source.prepare(av.Prompt(chat=[{"role": "user", "content": "a"}]))


def test_a_template_is_bounded_in_any_thread(native: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "SECONDS", 0.1)
    source = native(LOOP.replace("INNER", ""))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(source.prepare, av.Prompt(chat=[{"role": "user", "content": "a"}]))
        with pytest.raises(InputError, match=r"was stopped: it was not done after 0\.1 s"):
            waiting.result()
