"""Ten short chat templates of different kinds, each beside what it writes, part by part.

They are in the manner of families in use, and copies of none. What a template writes is put
together here again without it: pieces of text, with the number of the message where one is it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Message = dict[str, str]
Pieces = list[tuple[str, int | None]]

START = "<|endoftext|>"
"""The demo tokenizer's token of that kind, for the beginning as for the end."""


class Template(NamedTuple):
    """A template in Jinja, and the pieces that it writes."""

    jinja: str
    pieces: Callable[[Sequence[Message]], Pieces]


def each(
    before: Callable[[str], str], after: Callable[[str], str], end: str
) -> Callable[[Sequence[Message]], Pieces]:
    """What is before and after a message depends on its role alone."""

    def pieces(chat: Sequence[Message]) -> Pieces:
        found: Pieces = []
        for number, message in enumerate(chat):
            role = message["role"]
            found += [(before(role), None), (message["content"], number), (after(role), None)]
        return [*found, (end, None)]

    return pieces


def inst(chat: Sequence[Message]) -> Pieces:
    """The system message inside the first turn, everything trimmed."""
    found: Pieces = []
    opened = False
    for number, message in enumerate(chat):
        piece = (message["content"].strip(), number)
        if message["role"] == "system":
            found += [(f"{START}[INST] <<SYS>>\n", None), piece, ("\n<</SYS>>\n\n", None)]
            opened = True
        elif message["role"] == "user":
            found += [("" if opened else f"{START}[INST] ", None), piece, (" [/INST]", None)]
            opened = False
        else:
            found += [(" ", None), piece, (f" {START}", None)]
    return found


def headers(chat: Sequence[Message]) -> Pieces:
    found: Pieces = [(START, None)]
    for number, message in enumerate(chat):
        found.append((f"<|head|>{message['role']}<|/head|>\n\n", None))
        found += [(message["content"].strip(), number), ("<|turn|>", None)]
    return [*found, ("<|head|>assistant<|/head|>\n\n", None)]


def turns(chat: Sequence[Message]) -> Pieces:
    """The system message in front of the first one of the user, both trimmed as one."""
    found: Pieces = [(START, None)]
    first = 0
    if chat[0]["role"] == "system":
        found.append(("<turn>user\n", None))
        found += [(chat[0]["content"].lstrip(), 0), ("\n\n", None)]
        first = 1
    for number, message in enumerate(chat[first:], first):
        if number > 1 or not first:
            role = {"assistant": "model"}.get(message["role"], message["role"])
            found.append((f"<turn>{role}\n", None))
            content = message["content"].strip()
        else:
            content = message["content"].rstrip()
        found += [(content, number), ("</turn>\n", None)]
    return [*found, ("<turn>model\n", None)]


def late(chat: Sequence[Message]) -> Pieces:
    """The system message in front of the last one of the user."""
    last = max(n for n, message in enumerate(chat) if message["role"] == "user")
    found: Pieces = [(START, None)]
    for number, message in enumerate(chat):
        if message["role"] == "assistant":
            found += [(" ", None), (message["content"], number), (START, None)]
        elif message["role"] == "user":
            found.append(("[INST] ", None))
            if number == last and chat[0]["role"] == "system":
                found += [(chat[0]["content"], 0), ("\n\n", None)]
            found += [(message["content"], number), ("[/INST]", None)]
    return found


def thoughts(chat: Sequence[Message]) -> Pieces:
    """What the model thought is cut from its answers."""
    found: Pieces = [(START, None)]
    for number, message in enumerate(chat):
        content = message["content"]
        if message["role"] == "user":
            found += [("<|User|>", None), (content, number)]
        elif message["role"] == "assistant":
            answer = content.rpartition("</think>")[2]
            found += [("<|Assistant|>", None), (answer, number), (START, None)]
        else:
            found.append((content, number))
    return [*found, ("<|Assistant|>", None)]


TEMPLATES = {
    "chatml": Template(
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
        each(
            lambda role: f"<|im_start|>{role}\n",
            lambda role: "<|im_end|>\n",
            "<|im_start|>assistant\n",
        ),
    ),
    "inst": Template(
        "{% set ns = namespace(sys=none) %}{% for m in messages %}"
        "{% if m.role == 'system' %}{% set ns.sys = m.content.strip() %}"
        "{% elif m.role == 'user' %}{{ bos_token + '[INST] ' }}"
        "{% if ns.sys is not none %}{{ '<<SYS>>\n' + ns.sys + '\n<</SYS>>\n\n' }}"
        "{% set ns.sys = none %}{% endif %}{{ m.content.strip() + ' [/INST]' }}"
        "{% else %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% endif %}{% endfor %}",
        inst,
    ),
    "headers": Template(
        "{{ bos_token }}{% for m in messages %}"
        "{{ '<|head|>' + m['role'] + '<|/head|>\n\n' + m['content'] | trim + '<|turn|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|head|>assistant<|/head|>\n\n' }}"
        "{% endif %}",
        headers,
    ),
    "turns": Template(
        "{{ bos_token }}{% set first = '' %}{% set rest = messages %}"
        "{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
        "{% set rest = messages[1:] %}{% endif %}"
        "{% for m in rest %}{% set role = 'model' if m.role == 'assistant' else m.role %}"
        "{{ '<turn>' + role + '\n' + ((first if loop.first else '') + m.content) | trim }}"
        "{{ '</turn>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<turn>model\n' }}{% endif %}",
        turns,
    ),
    "bars": Template(
        "{%- for m in messages -%}\n{{- '<|' ~ m.role ~ '|>\n' ~ m.content ~ '<|end|>\n' -}}\n"
        "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>\n' -}}{%- endif -%}",
        each(lambda role: f"<|{role}|>\n", lambda role: "<|end|>\n", "<|assistant|>\n"),
    ),
    "lines": Template(
        "{% for m in messages %}\n{% if m['role'] == 'user' %}\n"
        "{{ '<|user|>\n' + m['content'] + eos_token }}\n{% elif m['role'] == 'system' %}\n"
        "{{ '<|system|>\n' + m['content'] + eos_token }}\n{% else %}\n"
        "{{ '<|assistant|>\n' + m['content'] + eos_token }}\n{% endif %}\n"
        "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n"
        "{% endfor %}",
        each(lambda role: f"<|{role}|>\n", lambda role: f"{START}\n", "<|assistant|>\n"),
    ),
    "late": Template(
        "{% if messages[0].role == 'system' %}{% set before = messages[0].content %}"
        "{% set rest = messages[1:] %}{% else %}{% set before = '' %}{% set rest = messages %}"
        "{% endif %}{{ bos_token }}{% for m in rest %}{% if m.role == 'system' %}"
        "{{ raise_exception('one system message, at the beginning') }}{% elif m.role == 'user' %}"
        "{% if loop.last and before %}{{ '[INST] ' + before + '\n\n' + m.content + '[/INST]' }}"
        "{% else %}{{ '[INST] ' + m.content + '[/INST]' }}{% endif %}"
        "{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}",
        late,
    ),
    "sections": Template(
        "{% for m in messages %}{% if m.role == 'user' %}{{ '### Question:\n' }}"
        "{% elif m.role == 'assistant' %}{{ '### Response:\n' }}{% endif %}"
        "{{ m.content + '\n\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '### Response:\n' }}{% endif %}",
        each(
            {"system": "", "user": "### Question:\n", "assistant": "### Response:\n"}.__getitem__,
            lambda role: "\n\n",
            "### Response:\n",
        ),
    ),
    "speakers": Template(
        "{% macro said(who, what, end) %}{{ who ~ what ~ end ~ ' ' }}{% endmacro %}"
        "{% for m in messages %}{% if m.role == 'user' %}{{ said('USER: ', m.content, '') }}"
        "{% elif m.role == 'assistant' %}{{ said('ASSISTANT: ', m.content, eos_token) }}"
        "{% else %}{{ said('', m.content, '') }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}",
        each(
            {"system": "", "user": "USER: ", "assistant": "ASSISTANT: "}.__getitem__,
            {"system": " ", "user": " ", "assistant": f"{START} "}.__getitem__,
            "ASSISTANT:",
        ),
    ),
    "thoughts": Template(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}"
        "{{ '<|User|>' + m.content }}{% elif m.role == 'assistant' %}{% set said = m.content %}"
        "{% if '</think>' in said %}{% set said = said.split('</think>')[-1] %}{% endif %}"
        "{{ '<|Assistant|>' + said + eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|Assistant|>' }}{% endif %}",
        thoughts,
    ),
}
