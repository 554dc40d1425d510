"""``attnviz.thoughts``: which sentences of reasoning traces later ones read, and need."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.core.settings import Progress
from attnviz.errors import InputError
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.thoughts.run import run
from attnviz.features.thoughts.settings import ThoughtsSettings


@interface
def thoughts(
    text: Input | Iterable[Input],
    *,
    settings: ThoughtsSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> Thoughts:
    """Measure which sentences of a reasoning trace later ones read, and which they need.

    With A[a, b] the mean weight of a head from the tokens of sentence a to those of sentence b, the
    vertical score of b is the mean of A[a, b] over a ≥ b + ``apart``, and a head whose vertical
    scores have a large kurtosis over sentences is a receiver head. Where attention to b is
    suppressed for all that follows, in all heads, the effect on a later sentence a is the mean over
    its tokens of log KL, minus the mean over b of that of a.

    Args:
        text: a trace or a prompt, or several. Of a prompt with ``generate`` the trace is what the
            model writes, of a ``chat`` its last message; what stands before is not split. Spans of
            a prompt are the sentences where it names any.
        progress: called again and again with a stage, how much is done and how much there is.

    Returns:
        Every head with its kurtosis, that of the sentences in random order, and their difference
        with an interval over traces; of every trace the matrices from sentence to sentence
        (natural logarithms of nats).

    Raises:
        InputError: no trace, one of fewer than two sentences or with spans that overlap, or one
            that is longer than the model takes.
        UsageError: recorded attention; ModelError: a model that is not causal, or cannot be cut.

    Source:
        Bogdan et al. 2025 (arXiv:2506.19143).
    """
    lacks = "cannot be suppressed, since that needs the model"
    prompts, model = prompts_of(text, lacks, model)
    if not prompts:
        raise InputError("no trace to read; give at least one")
    result = run(light(model.load()), prompts, settings, progress)
    return replace(result, identity=model.identity)
