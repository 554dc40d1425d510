"""``attnviz.logits``: the next token, and which heads it comes from."""

from __future__ import annotations

from dataclasses import replace

from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import answering, light
from attnviz.captures.settings import ModelSettings
from attnviz.core.interface import interface
from attnviz.features.logits.result import Logits, LogitsSettings
from attnviz.features.logits.run import run


@interface
def logits(text: Input, *, settings: LogitsSettings, model: ModelSettings) -> Logits:
    """Say what a model predicts, and split one logit into what every part of the model adds to it.

    Direct logit attribution, see :mod:`attnviz.features.logits.split`; only for models whose
    residual stream is normalized before a layer and at the end (GPT-2, Llama and their kind,
    hybrids such as Qwen3-Next). Others, such as BERT, give predictions and the reason.

    Args:
        text: a text or prompt.

    Raises:
        AttnvizError: see :mod:`attnviz.errors`; ModelError where the parts do not add up.
    """
    lacks = "holds no logits, since those need the model"
    (prompt,), model = prompts_of(text, lacks, model)
    source = answering(light(model.load()))
    result = run(source, source.prepare(prompt), settings)
    return replace(result, identity=model.identity)
