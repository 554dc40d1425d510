"""A server's response as a prompt: the very tokens that it read and wrote, to be run again here.

Read are responses of OpenAI's API and of the servers that speak it (vLLM, SGLang, llama.cpp):
``chat.completion`` and ``text_completion``, with both forms of ``logprobs``, and the ids that vLLM
adds (``return_token_ids``): ``prompt_token_ids`` and ``token_ids``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnviz.core.interface import interface
from attnviz.core.prompt import Prompt, Reply
from attnviz.errors import InputError, UsageError

OUTPUT = "output"
"""The span that the server wrote, where it is no message of a chat."""
_UNLIKELY = -9999.0
"""What servers write in place of the logarithm of next to nothing."""


@interface
def from_response(response: Any, *, request: Any = None, item: int | None = None) -> Prompt:
    """What a server read and wrote, as a prompt for the same model here.

    The prompt's ids are taken where the response has them; else the request's messages go through
    the chat template of the model, with the answer as the last of them, or its text through the
    tokenizer. When it is run, the server's log probabilities are compared with those of the model
    here, and a note of the result says how far they are apart.

    Args:
        response: what the server sent, as JSON holds it; or ``{"request": ..., "response": ...}``.
        request: what it was sent, for a response without the ids of its prompt.
        item: which of several choices, from 0.

    Raises:
        InputError: no response, one without text, or one whose prompt is nowhere; UsageError: a
            choice that is not there, or several and none chosen.
    """
    if isinstance(response, Mapping) and isinstance(response.get("response"), Mapping):
        request = response.get("request") if request is None else request
        response = response["response"]
    if not isinstance(response, Mapping) or not isinstance(response.get("choices"), Sequence):
        raise InputError(
            "no response of a server: it has no choices; give the JSON that the server sent, or "
            '{"request": ..., "response": ...}'
        )
    chosen = _chosen(response["choices"], item)
    request = request if isinstance(request, Mapping) else {}
    before = _ids(chosen.get("prompt_token_ids")) or _ids(response.get("prompt_token_ids"))
    before = before or _ids(request.get("prompt"))
    written = _ids(chosen.get("token_ids"))
    texts, log_probs, offsets = _logprobs(chosen.get("logprobs"))
    if before and written:
        ends = len(before), len(before) + len(written) - 1
        return Prompt(
            ids=(*before, *written),
            special_tokens=False,
            spans={OUTPUT: f"tokens:{ends[0]}-{ends[1]}"},
            reply=Reply(OUTPUT, log_probs=log_probs),
        )
    message = chosen.get("message")
    if isinstance(message, Mapping):
        return _of_chat(request, message, texts, log_probs)
    return _of_text(request, chosen.get("text"), texts, log_probs, offsets)


def _chosen(choices: Sequence[Any], item: int | None) -> Mapping[str, Any]:
    """One of the choices."""
    if not choices:
        raise InputError("the server's response has no choices: nothing was written")
    count = f"{len(choices)} choice{'s' * (len(choices) != 1)}"
    if item is None and len(choices) > 1:
        raise UsageError(
            "the server's response has {}; take one of them with {item}", count, item=0
        )
    number = item or 0
    if not 0 <= number < len(choices) or not isinstance(choices[number], Mapping):
        raise UsageError("the server's response has {}; there is no {item}", count, item=number)
    choice: Mapping[str, Any] = choices[number]
    return choice


def _ids(given: Any) -> tuple[int, ...]:
    """A list of ids; none where it is something else."""
    if not isinstance(given, list) or not all(type(number) is int for number in given):
        return ()
    return tuple(given)


def _logprobs(given: Any) -> tuple[tuple[str, ...], tuple[float | None, ...], tuple[int, ...]]:
    """Tokens, their log probabilities, and the character that each begins with, where given."""
    if not isinstance(given, Mapping):
        return (), (), ()
    listed = given.get("content")
    offsets: tuple[int, ...] = ()
    if isinstance(listed, list) and all(isinstance(token, Mapping) for token in listed):
        texts = [token.get("token") for token in listed]
        numbers = [token.get("logprob") for token in listed]
    else:
        texts, numbers = given.get("tokens") or [], given.get("token_logprobs") or []
        offsets = _ids(given.get("text_offset"))
    if not isinstance(texts, list) or not isinstance(numbers, list) or len(texts) != len(numbers):
        raise InputError(
            "the response's logprobs are none: it has no log probability for each token"
        )
    return tuple(map(str, texts)), tuple(map(_number, numbers)), offsets


def _number(given: Any) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > _UNLIKELY:
        return None
    return float(given)


def _of_chat(
    request: Mapping[str, Any],
    message: Mapping[str, Any],
    texts: tuple[str, ...],
    log_probs: tuple[float | None, ...],
) -> Prompt:
    """The messages of the request and the answer to them."""
    messages = request.get("messages")
    if not isinstance(messages, list) or not all(isinstance(m, Mapping) for m in messages):
        raise InputError(
            "the response does not hold what it answers; ask the server for the ids "
            '(return_token_ids), or give {"request": {"messages": [...]}, "response": ...}'
        )
    answer, role = message.get("content"), str(message.get("role") or "assistant")
    if not isinstance(answer, str) or not answer.strip():
        raise InputError("the response's message has no text; only text can be run again")
    others = sum(m.get("role") == role and bool(m.get("content")) for m in messages)
    name = role if not others else f"{role} {others + 1}"
    chat = (*messages, {"role": role, "content": answer})
    return Prompt(chat=chat, reply=Reply(name, texts, log_probs))


def _of_text(
    request: Mapping[str, Any],
    text: Any,
    texts: tuple[str, ...],
    log_probs: tuple[float | None, ...],
    offsets: tuple[int, ...],
) -> Prompt:
    """The request's text and what was written after it."""
    before = request.get("prompt")
    if not isinstance(text, str) or not text:
        raise InputError("the response's choice has no text; only text can be run again")
    if not isinstance(before, str):
        raise InputError(
            "the response does not hold what it goes on with; ask the server for the ids "
            '(return_token_ids), or give {"request": {"prompt": ...}, "response": ...}'
        )
    if text.startswith(before) and offsets and offsets[0] == 0:  # echoed, prompt and all
        some = [n for n, offset in enumerate(offsets) if offset >= len(before)]
        texts = tuple(texts[n] for n in some)
        log_probs = tuple(log_probs[n] for n in some)
        text = text.removeprefix(before)
    whole = before + text
    return Prompt(
        whole,
        spans={OUTPUT: f"chars:{len(before)}-{len(whole) - 1}"},
        reply=Reply(OUTPUT, texts, log_probs),
    )
