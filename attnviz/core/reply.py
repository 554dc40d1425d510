"""What a server wrote after a prompt, token by token, for the same model to be compared with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reply:
    """The output of an inference server.

    Attributes:
        span: the name of the part of the prompt that it is.
        texts: its tokens as the server spells them; empty where their ids are known.
        log_probs: of each, the natural logarithm; None where the server gave none.
    """

    span: str
    texts: tuple[str, ...] = ()
    log_probs: tuple[float | None, ...] = ()
