"""The lens against transformers' own states, norm and head in float64; and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.attention.contributions import scaled
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.lens import function as lens_run
from attnviz.features.lens.function import run
from attnviz.features.lens.result import Lens, LensSettings
from attnviz.models import pretrained
from attnviz.models.demo import DEMOS
from tests.models.tiny import GAIN, LONG, SHORT, Blocks, build, hooked_only, inputs_of
from tests.repeated import REPEATED

transformers = pytest.importorskip("transformers")

TEXT = "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

CLOSING: dict[str, tuple[str, Any]] = {
    "gpt2": ("transformer.h", lambda m, x: m.lm_head(m.transformer.ln_f(x))),
    "llama": ("model.layers", lambda m, x: m.lm_head(m.model.norm(x))),
    "qwen3": ("model.layers", lambda m, x: m.lm_head(m.model.norm(x))),
    "gemma2": (
        "model.layers",
        lambda m, x: 30 * torch.tanh(m.lm_head(m.model.norm(x)) / 30),
    ),
    "gpt_neox": (
        "gpt_neox.layers",
        lambda m, x: m.get_output_embeddings()(m.gpt_neox.final_layer_norm(x)),
    ),
    "opt": (
        "model.decoder.layers",
        lambda m, x: m.lm_head(m.model.decoder.final_layer_norm(x)),
    ),
    "bert": ("bert.encoder.layer", lambda m, x: m.cls(x)),
    "t5": (
        "decoder.block",
        lambda m, x: m.lm_head(m.decoder.final_layer_norm(x)
                               * (16**-0.5 if m.config.scale_decoder_outputs else 1.0)),
    ),
    "bart": (
        "model.decoder.layers",
        lambda m, x: m.lm_head(x) + m.final_logits_bias,
    ),
}  # fmt: skip
"""Where the layers of a family are, and what comes behind them, written down by hand."""


def expected(family: str, folder: Path) -> np.ndarray:
    """Log-probabilities [L + 1, T, V] by transformers in float64: a hook on every layer's input."""
    kind = {"bert": "MaskedLM", "t5": "Seq2SeqLM", "bart": "Seq2SeqLM"}.get(family, "CausalLM")
    model = getattr(transformers, f"AutoModelFor{kind}").from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float64
    )
    path, close = CLOSING[family]
    layers = model.eval().get_submodule(path)
    states: list[torch.Tensor] = []
    for layer in layers:
        layer.register_forward_pre_hook(
            lambda _, args, kwargs: states.append(args[0] if args else kwargs["hidden_states"]),
            with_kwargs=True,
        )
    layers[-1].register_forward_hook(
        lambda _, args, out: states.append(out[0] if isinstance(out, tuple) else out)
    )
    given = {"input_ids": torch.tensor([LONG])}
    if kind == "Seq2SeqLM":
        given["decoder_input_ids"] = torch.tensor([SHORT])
    with torch.no_grad():
        logits = model(**given).logits
        read = torch.stack([close(model, state)[0] for state in states])
    assert torch.allclose(read[-1], logits[0], atol=1e-9)
    return read.log_softmax(-1).numpy()


@pytest.mark.parametrize("family", sorted(CLOSING))
def test_states_against_transformers(family: str, tmp_path: Path) -> None:
    build(family, tmp_path, GAIN.get(family, 3.0), words=True)
    source = pretrained.load(str(tmp_path), backend="hooked")
    hooked_only(source)
    log = expected(family, tmp_path)
    found = run(
        source, inputs_of(source, LONG, SHORT), LensSettings(position="all", predictions=41)
    )
    length = len(SHORT) if family in ("t5", "bart") else len(LONG)
    assert len(found.states()) == len(log)
    assert found.positions == tuple(range(length))
    assert np.abs(log[0] - log[-1]).max() > 0.1  # layers differ, and a wrong one would be seen
    for state, row in zip(found.states(), log, strict=True):
        for cell, one, last in zip(state, row, log[-1], strict=True):
            told = {word.id: word.probability for word in cell.top}
            shares = np.array([told[n] for n in range(41)])
            assert np.abs(shares - np.exp(one)).max() < 1e-5
            assert [w.probability for w in cell.top] == sorted(told.values(), reverse=True)
            assert cell.entropy == pytest.approx(-(np.exp(one) * one).sum(), abs=1e-4)
            assert cell.kl == pytest.approx((np.exp(last) * (last - one)).sum(), abs=1e-4)
            answer = int(last.argmax())
            assert cell.probability == pytest.approx(np.exp(one[answer]), abs=1e-5)
            assert cell.rank == int((one > one[answer] + 1e-9).sum()) + 1
    assert [word.id for word in found.states()[-1][-1].top[:3]] == log[-1][-1].argsort()[
        :-4:-1
    ].tolist()


@pytest.fixture(scope="module")
def found() -> Lens:
    return av.lens(TEXT)


@pytest.fixture(scope="module")
def theirs() -> tuple[Any, Any, dict[tuple[str, int], np.ndarray]]:
    """transformers' demo-gpt2, what it gives, and of each layer what W_O gets and MLPs give."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        DEMOS["demo-gpt2"], dtype=torch.float64
    ).requires_grad_(False)
    ids = av.load("demo-gpt2").prepare(Prompt(TEXT)).sides["decoder"].queries.ids
    kept: dict[tuple[str, int], np.ndarray] = {}
    for n, layer in enumerate(model.eval().transformer.h):
        layer.attn.c_proj.register_forward_hook(
            lambda _, args, out, n=n: kept.__setitem__(("z", n), args[0][0].numpy())
        )
        layer.mlp.register_forward_hook(
            lambda _, args, out, n=n: kept.__setitem__(("mlp", n), out[0].numpy())
        )
    return model, model(torch.tensor([ids]), output_hidden_states=True), kept


def test_the_native_backend_reads_like_transformers(found: Lens, theirs: Any) -> None:
    """demo-gpt2; transformers normalizes the last of its hidden states, so that it is left out."""
    model, output, _ = theirs
    read = [model.lm_head(model.transformer.ln_f(x))[0] for x in output.hidden_states[:-1]]
    for state, logits in zip(found.states(), [*read, output.logits[0]], strict=True):
        shares = logits.softmax(-1)
        for cell, share in zip(state, shares, strict=True):
            best = cell.top[0]
            assert best.probability == pytest.approx(float(share[best.id]), abs=1e-4)
            assert best.id == int(share.argmax())
    assert found.difference is not None
    assert found.difference < 1e-4
    assert found.followed == tuple(cell.top[0].token for cell in found.states()[-1])


def test_what_a_layer_added_against_modules(found: Lens, theirs: Any) -> None:
    """Each head's part from W_O of transformers' module and its input, by NumPy."""
    model, output, kept = theirs
    states, gamma = output.hidden_states, model.transformer.ln_f.weight.numpy()
    for position in (4, 19):
        for n, cell in enumerate(found.along(position)[1:-1]):
            x = states[n + 1][0, position].numpy()
            u = gamma * model.lm_head.weight.numpy()[cell.top[0].id]
            d = (u - u.mean()) / np.sqrt(x.var() + model.config.layer_norm_epsilon)
            w = model.transformer.h[n].attn.c_proj.weight.numpy().reshape(6, -1, len(x))
            z = kept["z", n][position].reshape(6, -1)
            assert cell.added is not None
            assert cell.added.heads == pytest.approx([z[h] @ w[h] @ d for h in range(6)], abs=1e-4)
            assert cell.added.mlp == pytest.approx(kept["mlp", n][position] @ d, abs=1e-4)
            assert cell.added.before == pytest.approx(states[n][0, position].numpy() @ d, abs=1e-4)
            assert cell.added.logit == pytest.approx(cell.top[0].logit, abs=1e-4)


def test_parts_are_of_the_token_that_is_asked_for() -> None:
    asked = av.lens(TEXT, answer="clock", position=-1)
    assert asked.token == " clock"
    assert {cell.added.token for cell in asked.cells if cell.added} == {" clock"}
    ranks = [cell.rank for cell in asked.cells]
    assert ranks[-1] == 1
    assert ranks[0] > 1000
    first, *later = asked.cells
    assert first.added is not None
    assert first.added.heads == ()
    for cell in later:
        parts = cell.added
        assert parts is not None
        whole = parts.before + sum(parts.heads) + parts.bias + parts.mlp + parts.constant
        assert whole == pytest.approx(parts.logit, abs=1e-9)


def test_heads_are_the_votes_of_logits() -> None:
    """At the last position, what a head adds to its words is what ``logits`` splits."""
    votes = av.logits(TEXT)
    heads = {one.head: one for one in av.lens(TEXT, by="head", predictions=5).heads}
    for vote in votes.votes:
        assert tuple(word.token for word in heads[vote.head].raises) == vote.raises
        assert tuple(word.token for word in heads[vote.head].lowers) == vote.lowers


def test_means_over_texts_by_hand() -> None:
    """One head, all rows of a few texts: its mean effect, the words that recur or stand there."""
    texts = REPEATED[:6]
    found = av.lens(texts, by="head", predictions=4)
    source, effects, top, copied, rows = av.load("demo-gpt2"), [], [], [], 0
    readout = source.readout()
    for text in texts:
        inputs = source.prepare(Prompt(text))
        blocks = Blocks()
        output = source.forward([inputs], [blocks], ForwardRequest(states=True))
        (site,) = (s for s in source.layout.sites if s.layer == 3)
        part = blocks.outputs(site)[0, 3].double() @ source.output(site).weight[3].double()
        x = output.states[-1][0].double()
        sigma = (x.var(-1, correction=0) + readout.eps).sqrt()[:, None]
        made = readout.scale.double() * (part - part.mean(-1, keepdim=True)) / sigma
        assert torch.allclose(made, scaled(readout, x, part))
        effect = made @ readout.table.double().T
        effects.append(effect)
        ids = inputs.sides["decoder"].queries.ids
        for n, row in enumerate(effect):
            best = row.topk(5).indices.tolist()
            top += best
            copied.append(best[0] in ids[: n + 1])
        rows += len(ids)
    mean = torch.cat(effects).mean(0)
    mean -= mean.mean()
    head = next(one for one in found.heads if found.layout.name(one.head) == "3.3")
    assert [word.id for word in head.raises] == mean.topk(4).indices.tolist()
    assert [word.value for word in head.raises] == pytest.approx(
        mean.topk(4).values.tolist(), abs=1e-4
    )
    assert found.rows == rows
    assert head.in_text is not None
    assert head.in_text.share == pytest.approx(np.mean(copied))
    assert head.in_text.low is not None
    assert {one.id: one.rows for one in head.recurring} == {
        one.id: pytest.approx(top.count(one.id) / rows) for one in head.recurring
    }
    assert head.recurring[0].rows == max(top.count(n) for n in set(top)) / rows


def test_masks_are_where_a_masked_model_is_read() -> None:
    found = av.lens("The cat [MASK] on the [MASK].", model="demo-bert")
    assert [found.tokens[n] for n in found.positions] == ["[MASK]", "[MASK]"]
    assert found.masked
    assert "normalizes the sum" in found.reason
    assert all(cell.added is None for cell in found.cells)
    with pytest.raises(InputError, match="no mask"):
        av.lens("The cat sat.", model="demo-bert")
    assert len(av.lens("A cat.", model="demo-bert", position="all").positions) > 3


def test_a_last_state_that_is_off_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = lens_run.unembedded
    monkeypatch.setattr(lens_run, "unembedded", lambda *a: (x + 1e-2 for x in whole(*a)))
    with pytest.raises(ModelError, match="off the model's own logits"):
        av.lens("The cat sat")


def test_long_texts_go_through_in_parts(found: Lens, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lens_run, "AT_ONCE", 1)
    parts = av.lens(TEXT)
    assert [cell.top[0].id for cell in parts.cells] == [cell.top[0].id for cell in found.cells]
    assert [c.kl for c in parts.cells] == pytest.approx([c.kl for c in found.cells], abs=1e-5)


def test_what_is_refused(minilm: str) -> None:
    with pytest.raises(ModelError, match="predicts no words"):
        av.lens("A cat.", model=minilm)
    with pytest.raises(ModelError, match="what a head of demo-bert writes"):
        av.lens("A [MASK].", model="demo-bert", by="head")
    with pytest.raises(UsageError, match="layers are read on one text"):
        av.lens(["A cat.", "A dog."])
    with pytest.raises(UsageError, match="followed along the layers"):
        av.lens("A cat.", by="head", answer="dog")
    with pytest.raises(UsageError, match="no position 99"):
        av.lens("A cat.", position=99)
    with pytest.raises(UsageError, match="predictions must be from 1 to 1,000, not 0"):
        av.lens("A cat.", predictions=0)
    with pytest.raises(UsageError, match="recorded attention holds no states"):
        av.lens(dataclasses.replace(av.capture("A cat."), asked=None))
