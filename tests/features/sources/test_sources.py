"""Sources of a score on the bundled models: contrasts, tokens one level down, refusals, forms."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.captures import inputs
from attnviz.captures.settings import KeptSettings, ModelSettings
from attnviz.captures.trials import Activations
from attnviz.cli import main
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.sources import run as splitting
from attnviz.features.sources.measure import _sides
from attnviz.features.sources.result import Sources, SourceShares, SourcesSettings
from attnviz.features.sources.run import answer
from attnviz.models.decomposition import Decomposition, follow
from attnviz.models.hooked.residual import _none
from attnviz.models.hooked.source import Hooked
from tests.features.sources import reference
from tests.models import tiny
from tests.repeated import REPEATED

WORDS = "the cat river moon stone bread the cat river moon stone"
LINES = [
    WORDS, "stone door lamp table stone door lamp table house",
    "dog bird tree house dog bird tree house water", "road king fire gold road king fire gold snow",
    "ship bell rope sail ship bell rope sail wind",
    "milk corn salt bread milk corn salt bread wine",
]  # fmt: skip


@pytest.fixture(scope="module")
def capture(gpt2):
    return av.capture(WORDS, model=gpt2, select="2.0", why="2.0")


@pytest.fixture(scope="module")
def score(gpt2) -> Sources:
    return av.sources(WORDS, select="2.0", model=gpt2)


@pytest.fixture(scope="module")
def shares(gpt2) -> SourceShares:
    return av.sources(LINES, select="2.0", role="induction", model=gpt2)


def test_the_score_is_the_models(score: Sources, capture) -> None:
    why = capture.why("2.0", -1, 6)
    assert (score.query, score.key, score.keys[score.key]) == (11, 6, " bread")
    assert score.score == pytest.approx(why.scaled, rel=1e-6)
    assert score.sum == pytest.approx(score.score, rel=1e-5)
    assert sum(map(sum, score.matrix)) == pytest.approx(score.score, rel=1e-5)
    for side in ("query", "key"):
        assert sum(one.value for one in score.side(side)) == pytest.approx(score.score, rel=1e-5)
        assert sum(one.share for one in score.side(side)) == pytest.approx(1.0)


def test_the_row_is_split_by_key(score: Sources, capture) -> None:
    why = capture.why("2.0", -1, 6)
    assert [one.position for one in score.row] == list(range(12))
    for key in score.row:
        assert sum(key.by_key) == pytest.approx(why.row[key.position], abs=1e-4)
        assert key.score == pytest.approx(why.row[key.position], abs=1e-5)
    own = {one.origin: one.value for one in score.side("key")}
    assert score.row[6].by_key == pytest.approx(
        [own[origin] for origin in score.key_origins], abs=1e-4
    )


def test_contrasts_are_differences(gpt2, score: Sources, capture) -> None:
    row = capture.why("2.0", -1, 6).row
    other = av.sources(WORDS, select="2.0", key=3, model=gpt2)
    found = av.sources(WORDS, select="2.0", key=6, other_key=3, model=gpt2)
    assert np.allclose(found.matrix, np.array(score.matrix) - np.array(other.matrix), atol=1e-4)
    mean = av.sources(WORDS, select="2.0", other_key="mean", model=gpt2)
    assert mean.score == pytest.approx(row[6] - np.delete(row, 6).mean(), abs=1e-4)
    rest = av.sources(WORDS, select="2.0", other_key="rest", model=gpt2)
    # the derivative of log(α / (1 - α)) when every score is stretched by 1 + ε
    step = 1e-6
    odds = [s[6] - np.log(np.exp(np.delete(s, 6)).sum()) for s in (row, row * (1 + step))]
    assert rest.score == pytest.approx((odds[1] - odds[0]) / step, abs=1e-3)


def test_a_heads_part_is_the_sum_over_the_tokens_that_it_reads(gpt2, capture) -> None:
    inputs, head = gpt2.prepare(Prompt(WORDS)), gpt2.layout.head("2.0")
    found = splitting.split(gpt2, inputs, head, capture.terms[head], [6])
    names = [origin.name(gpt2.layout) for origin in found.keys.origins]
    earlier = found.keys.origins[names.index("1.4")].head
    weights, through = found.anatomist.by_token(found.keys, earlier, 6)
    assert torch.allclose(through.sum(0), found.keys.values[names.index("1.4"), 6], atol=1e-5)
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)


def test_gated_heads_are_refused(gpt2) -> None:
    with gpt2.gated({"1.4": 0.0}), pytest.raises(ModelError, match="nor can an ablated head"):
        av.sources(WORDS, select="2.0", key=6, model=gpt2)


def test_it_ranks_the_senders_as_patching_through_keys_does(gpt2, shares: SourceShares) -> None:
    """Each earlier head's output is taken from a run on other words, into the keys of 2.0 alone."""
    names = [gpt2.layout.name(head) for head in gpt2.layout if head.layer < 2]
    drops = dict.fromkeys(names, 0.0)
    for line, other in zip(LINES, LINES[1:] + LINES[:1], strict=True):
        clean, corrupted = (gpt2.prepare(Prompt(text)) for text in (line, other))
        state = _streams(gpt2, clean), _streams(gpt2, corrupted)
        ids = clean.sides["decoder"].queries.ids
        row = max(n for n, word in enumerate(ids) if word in ids[:n])
        key = ids.index(ids[row]) + 1
        for name in names:
            drops[name] += _change(gpt2, clean, *state, name, row, key)
    measured = max(drops, key=lambda name: drops[name])
    said = [one.origin.name(shares.layout) for one in shares.by_key if one.origin.head]
    assert measured == said[0] == "1.4"


def _streams(source, inputs):
    """What enters layer 2, and what every head writes, by name."""
    kept = Activations(["z"], source.layout.sites[:2])
    output = source.forward([inputs], [kept], ForwardRequest(hidden=False, states=True, terms=True))
    written = {}
    for site in source.layout.sites[:2]:
        z, weight = kept.values["z"][site][0], source.output(site).weight
        for head in range(len(weight)):
            written[f"{site.layer}.{head}"] = z[head] @ weight[head]
    return output.states[2], written


def _change(source, inputs, clean, corrupted, name: str, row: int, key: int) -> float:
    """How much the score of a key falls against the others when a sender's difference enters."""
    states, written = clean
    length = states.shape[1]
    other = corrupted[1][name]
    delta = torch.zeros_like(states)
    size = min(length, len(other))
    delta[0, :size] = other[:size] - written[name][:size]
    site = source.layout.sites[2]
    scores = []
    queries = None
    for x in (states, states + delta):
        kept = Activations(["q", "k"], [site])
        start = av.core.source.Start(2, x, 3)
        source.forward([inputs], [kept], ForwardRequest(hidden=False, terms=True, start=start))
        queries = kept.values["q"][site][0, 0] if queries is None else queries
        scores.append(queries[row] @ kept.values["k"][site][0, 0].T)
    sets_apart = [float(s[key] - s[1:].mean()) for s in scores]
    return sets_apart[0] - sets_apart[1]


def test_shares_are_ratios_of_means_over_texts(gpt2, shares: SourceShares) -> None:
    """Of every text the mean over its rows, so that no text counts for more than another."""
    totals, parts, rows = [], {}, 0
    for number, line in enumerate(LINES):
        words = gpt2.prepare(Prompt(line)).sides["decoder"].queries.ids
        apart = []
        for i, word in enumerate(words):
            wanted = [j + 1 for j in range(i) if words[j] == word and j + 1 <= i]
            others = [j for j in range(i + 1) if j not in wanted]
            if not wanted or not others:
                continue
            found = av.sources(line, select="2.0", query=i, key=wanted[0], model=gpt2)
            mean = np.array([key.by_key for key in found.row])
            apart.append(mean[wanted].mean(0) - mean[others].mean(0))
        rows += len(apart)
        values = np.mean(apart, 0)
        totals.append(values.sum())
        for origin, value in zip(found.key_origins, values, strict=True):
            parts.setdefault(origin, np.zeros(len(LINES)))[number] = value
    assert shares.rows == rows
    assert shares.contrast == pytest.approx(np.mean(totals), rel=1e-4)
    for one in shares.by_key:
        assert one.share == pytest.approx(parts[one.origin].sum() / sum(totals), abs=1e-4)
        assert one.low is not None
        assert one.low <= one.share <= one.high
    assert shares.texts == len(LINES)
    assert sum(one.share for one in shares.by_query) == pytest.approx(1.0, abs=1e-4)
    adds, takes = shares.both_signs("key")
    assert adds + takes == pytest.approx(1.0, abs=1e-4)
    assert adds > 1 > 0 > takes


def test_the_role_is_the_heads_own(gpt2, shares: SourceShares) -> None:
    own = av.sources(LINES, select="2.0", model=gpt2)
    assert own.score == "induction"
    assert not own.chosen
    assert own.by_key == shares.by_key


def test_every_form_has_it(score: Sources, shares: SourceShares) -> None:
    for found in (score, shares):
        assert b"head 1.4" in found.to_bytes("svg")
        assert "1.4" in found.to_csv()
    assert len(score.to_records()) == len(score.matrix) * len(score.matrix[0])
    total = sum(record["value"] for record in score.to_records())
    assert total == pytest.approx(score.score, rel=1e-5)
    text = str(score)
    assert "score of 2.0, ·stone (11) to ·bread (6)" in text
    assert "head 1.4" in text
    assert "2.0 finds its key through" in str(shares)
    finding = shares.finding("sources.json")
    assert finding is not None
    assert finding.measures[0].values["1.4"][0] == pytest.approx(shares.by_key[0].share)
    assert "comes through it" in " ".join(finding.said["1.4"])
    assert score.finding("sources.json") is None


def test_beside_the_composition_scores_of_weights(score: Sources, shares: SourceShares) -> None:
    measured = replace(shares, identity={})
    found = av.circuits(select="2.0", sample=64, evidence=measured)
    edge = next(e for e in found.of("K") if (e.writer.name, e.reader.name) == ("1.4", "2.0"))
    assert found.measured["K", edge.writer, edge.reader][0] == shares.by_key[0].share
    assert f"1.4 → 2.0  {edge.excess:+.3f} ({100 * shares.by_key[0].share:.0f} %)" in str(found)
    row = next(r for r in found.to_records() if (r["side"], r["writer"]) == ("K", "1.4"))
    assert row["share"] == shares.by_key[0].share
    with pytest.raises(UsageError, match="measures nothing between heads"):
        av.circuits(select="2.0", sample=64, evidence=replace(score, identity={}))


@pytest.mark.parametrize(
    ("error", "words", "options"),
    [
        (UsageError, "means 6 heads", {"select": "2.*"}),
        (UsageError, "no position 40", {"query": 40}),
        (UsageError, "a key is one token, and '1-2' are 2", {"key": "1-2"}),
        (InputError, "may not attend to key 9", {"query": 3, "key": 9}),
        (UsageError, "cannot be compared with itself", {"key": 4, "other_key": 4}),
        (InputError, "which has no rest", {"query": 0, "other_key": "rest"}),
        (UsageError, "no token 'catt'", {"key": "catt"}),
    ],
)
def test_what_makes_no_sense(gpt2, error, words: str, options) -> None:
    with pytest.raises(error, match=words):
        av.sources(WORDS, **{"select": "2.0", "model": gpt2, **options})


@pytest.mark.parametrize("asked", [{"query": 99}, {"key": 99}, {"key": 0, "other_key": 99}])
def test_a_position_that_is_not_there_is_refused_before_any_pass(
    asked: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = av.load("demo-gpt2")
    monkeypatch.setattr(type(source), "forward", None)
    with pytest.raises(UsageError, match=r"no position 99: the text has 12 tokens"):
        av.sources(WORDS, model=source, select="2.0", **asked)


def test_a_model_without_attention_says_so_as_other_commands_do(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.MambaConfig(
        vocab_size=41, hidden_size=16, state_size=4, num_hidden_layers=1, pad_token_id=0,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    transformers.MambaForCausalLM(config).save_pretrained(tmp_path)
    said = r"no layer that attends, only .* a state \(Mamba\)"
    prompt = Prompt(ids=(3, 5, 8))
    with pytest.raises(ModelError, match=said):
        av.logits(prompt, model=str(tmp_path))
    with pytest.raises(ModelError, match=said):
        av.sources(prompt, model=str(tmp_path), select="0.0")


def test_texts_without_rows(gpt2) -> None:
    with pytest.raises(InputError, match="no row of these texts"):
        av.sources(["a few words"], select="2.0", role="induction", model=gpt2)
    with pytest.raises(UsageError, match="has target keys"):
        av.sources([WORDS], select="2.0", role="diffuse", model=gpt2)
    with pytest.raises(UsageError, match="recorded"):
        av.sources(
            dataclasses.replace(av.capture(WORDS, model=gpt2, select="2.0"), asked=None),
            select="2.0",
        )


def test_experts_behind_a_router_are_held_whole(tmp_path: Path) -> None:
    """Experts weighted by what enters them are one more product, which no derivative splits."""
    tiny.build("gpt_oss", tmp_path)
    source, prompt = av.load(str(tmp_path)), Prompt(ids=tiny.LONG)
    for head in ("0.1", "1.1"):
        result = av.sources(prompt, select=head, model=source)
        assert result.sum == pytest.approx(result.score, abs=1e-4)
    assert "mlp" in {origin.kind for origin in result.key_origins}
    batch, terms = source.prepare(prompt), av.capture(prompt, model=source, why="1.1").terms
    split_head = splitting.split(source, batch, result.head, terms[result.head], [8])
    plain = Decomposition(follow(source, batch), source)
    with pytest.raises(ModelError, match=r"not one vector a token|add up to"):
        replace(split_head, anatomist=plain, keys=plain.key(result.head, range(9))).by_key(8)


def test_what_latent_attention_reads_by_two_ways_is_summed(tmp_path: Path) -> None:
    """Keys have a part with positions and one without; each reads the stream by itself."""
    tiny.build("deepseek_v3", tmp_path)
    source, prompt = av.load(str(tmp_path)), Prompt(ids=tiny.LONG)
    batch, terms = source.prepare(prompt), av.capture(prompt, model=source, why="1.1").terms
    head = source.layout.head("1.1")
    split_head = splitting.split(source, batch, head, terms[head], [6])
    for number, origin in enumerate(split_head.keys.origins):
        if origin.head is not None:
            _, through = split_head.anatomist.by_token(split_head.keys, origin.head, 6)
            whole = split_head.keys.values[number, 6]
            torch.testing.assert_close(through.sum(0), whole, rtol=1e-4, atol=1e-5)


def test_what_is_held_whole_is_what_its_matrices_give(tmp_path: Path) -> None:
    tiny.build("llama", tmp_path)
    source = av.load(str(tmp_path))
    batch = source.prepare(Prompt(ids=tiny.LONG))
    plain, whole = (
        Decomposition(follow(source, batch, held=held), source).key(
            source.layout.head("1.1"), range(len(tiny.LONG))
        )
        for held in (False, True)
    )
    assert plain.origins == whole.origins
    torch.testing.assert_close(plain.values, whole.values, rtol=1e-4, atol=1e-5)


def test_heads_behind_a_layer_without_attention_are_split_with_that_whole(folders: Any) -> None:
    source = av.load(str(folders("lfm2", 3.0, words=True)))
    result = av.sources(Prompt(ids=tiny.LONG), select="1.0", model=source)
    assert result.sum == pytest.approx(result.score, rel=1e-4)
    names = [origin.name(result.layout) for origin in result.key_origins]
    assert names[:3] == ["token", "mixer 0", "MLP 0"]


def test_heads_behind_a_layer_that_does_not_add_up_are_refused_at_once(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the layer carries from token to token was shown as what the tokens' embeddings add."""
    source = av.load(str(folders("lfm2", 3.0, words=True)))
    reason = "layer 0 has no attention, and does not simply add what its modules give to its input"
    monkeypatch.setitem(vars(source), "_residual", _none(reason))
    prompt = Prompt(ids=tiny.SHORT)
    assert source.no_sum == reason
    monkeypatch.setattr(source, "forward", None)  # nothing runs
    with pytest.raises(ModelError, match=f"1.0 of .* cannot be told: {reason}"):
        av.sources(prompt, select="1.0", model=source)
    with pytest.raises(ModelError, match=reason):
        av.sources([prompt], select="1.0", model=source)


@pytest.mark.parametrize("held", [True, False])
def test_a_page_explains_such_heads_with_their_sources_where_these_add_up(
    held: bool, folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not held:
        monkeypatch.setattr(Hooked, "stream_parts", ())
    folder = str(folders("lfm2", 3.0, words=True))
    (ready,) = inputs.prepare(
        Prompt(ids=tiny.SHORT), model=ModelSettings(model=folder),
        maps=KeptSettings(select="1.0", why="1.0", origins=True),
    )  # fmt: skip
    (terms,) = ready.capture().terms.values()
    assert (terms.origins is not None) == held


def test_a_wrong_sum_is_refused(gpt2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "tolerance", lambda source: 1e-12)
    with pytest.raises(ModelError, match="nothing is shown"):
        av.sources(WORDS, select="2.0", model=gpt2)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, lines = tmp_path / "sources.svg", tmp_path / "lines.txt"
    one = ["sources", WORDS, "--select", "2.0"]
    assert main([*one, "--other-key", "rest", "--json", "-o", str(picture)]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["schema"] == "attnviz.sources/1"
    assert read["other_key"] == "rest"
    assert picture.exists()
    lines.write_text("\n".join(LINES))
    several = ["sources", "--texts", str(lines), "--select", "2.0"]
    assert main([*several, "--role", "induction", "--csv"]) == 0
    assert "key,1.4,head," in capsys.readouterr().out
    assert main([*several, "--query", "3"]) == 2
    assert "of several every row is looked at" in capsys.readouterr().err
    assert main([*one, "--role", "induction"]) == 2
    assert "--role induction is for several texts" in capsys.readouterr().err


def test_a_role_is_chosen_on_texts_that_no_share_is_from() -> None:
    texts = list(REPEATED)
    found = av.sources(texts, select="2.0", split="hash:0.5")
    assert isinstance(found, SourceShares)
    source = av.load("demo-gpt2")
    ready = [source.prepare(Prompt(text)) for text in texts]
    chosen, measured = _sides(ready, "hash:0.5", 0)
    assert found.chosen_on == len(chosen)
    assert found.texts <= len(measured) < len(texts)
    assert f"the role chosen on {found.chosen_on} other ones (hash:0.5)" in " ".join(
        str(found).split()
    )
    others = [text for text, inputs in zip(texts, ready, strict=True) if inputs in measured]
    alone = av.sources(others, select="2.0", role="induction")
    assert isinstance(alone, SourceShares)
    assert found.score == alone.score
    assert found.by_key == alone.by_key
    assert found.corpus != alone.corpus
    with pytest.raises(UsageError, match="nothing is chosen; leave out split"):
        av.sources(texts, select="2.0", split="hash:0.5", role="induction")
    with pytest.raises(InputError, match=r"leaves [01] texts to choose the role on"):
        av.sources(texts[:1], select="2.0", split="hash:0.5")


transformers = pytest.importorskip("transformers")

IDS, TARGET = tiny.LONG, (0, 9, 2, 31, 17)
LAYERS = 3
GEMMA3: dict[str, Any] = {
    **tiny.NARROW, "num_hidden_layers": LAYERS, "sliding_window": 6, "query_pre_attn_scalar": 4,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    **tiny.GROUPED, "num_hidden_layers": LAYERS, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 8,
}  # fmt: skip
FAMILIES = {
    "gpt2": (reference.gpt2, {"n_layer": LAYERS}),
    "llama": (reference.llama, {"num_hidden_layers": LAYERS}),
    "qwen3": (reference.llama, {"num_hidden_layers": LAYERS}),
    "gemma2": (reference.llama, {"num_hidden_layers": LAYERS, "sliding_window": 6}),
    "gemma3": (reference.llama, {}), "mixtral": (reference.llama, {}),
    "qwen3_moe": (reference.llama, {}), "bert": (reference.bert, {"num_hidden_layers": LAYERS}),
    "bloom": (reference.bloom, {"n_layer": LAYERS}),
    "falcon": (reference.falcon, {"num_hidden_layers": LAYERS}),
    "falcon-alibi": (reference.falcon, {"num_hidden_layers": LAYERS, "alibi": True}),
}  # fmt: skip


def model(family: str, changes: dict[str, Any], folder: Path) -> Any:
    """A tiny model whose biases and normalizations say something, saved; and itself in float64."""
    known = {
        **tiny.FAMILIES,
        "gemma3": ("Gemma3Text", GEMMA3),
        "mixtral": ("Mixtral", EXPERTS),
        "qwen3_moe": ("Qwen3Moe", EXPERTS),
    }
    name, sizes = known[family.partition("-")[0]]
    config = getattr(transformers, f"{name}Config")(**{**sizes, **changes})
    torch.manual_seed(3)
    kind = transformers.AutoModelForSeq2SeqLM if family == "t5" else transformers.AutoModel
    made = kind.from_config(config, attn_implementation="eager").eval()
    for parameter in made.parameters():
        if parameter.ndim > 1:
            parameter.data *= tiny.GAIN.get(family, 12.0)
        else:
            parameter.data += torch.randn_like(parameter) / 3
    made.save_pretrained(folder)
    made.config._experts_implementation = "eager"  # others have no float64
    return made.double().requires_grad_(False)


def compared(found: av.features.sources.result.Sources, split: reference.Split) -> None:
    """Every entry of the matrix, the score, the bias and the weight, to 1e-4 of the score."""
    wanted = split.matrix(found.head.index, found.query, found.key)
    score = sum(wanted.values())
    bias = float(split.bias[found.head.index, found.query, found.key])
    allowed = 1e-4 * max(1.0, abs(score))
    rows = [one.name(found.layout) for one in found.query_origins]
    columns = [one.name(found.layout) for one in found.key_origins]
    ours = {
        (a, b): value
        for a, row in zip(rows, found.matrix, strict=True)
        for b, value in zip(columns, row, strict=True)
    }
    assert ours.keys() == wanted.keys()
    assert max(abs(ours[pair] - wanted[pair]) for pair in wanted) <= allowed
    assert abs(found.score - (score + bias)) <= allowed
    assert abs(found.sum - (score + bias)) <= allowed
    assert abs(found.added - bias) <= allowed
    weight = float(split.weights[found.head.index, found.query, found.key])
    assert found.weight == pytest.approx(weight, abs=1e-4)


ASKED = (("0.1", -1, 8), ("1.2", -1, None), ("2.3", -2, 9), ("2.0", -1, -1))
"""A head, its query and its key: every other family has two of them."""


@pytest.mark.parametrize(("number", "family"), enumerate(FAMILIES))
def test_every_pair_of_sources(number: int, family: str, tmp_path: Path) -> None:
    compute, changes = FAMILIES[family]
    exact = model(family, changes, tmp_path)
    splits = compute(exact, torch.tensor(IDS))
    source = av.load(str(tmp_path))
    for head, at, key in ASKED[number % 2 :: 2]:
        found = av.sources(Prompt(ids=IDS), select=head, query=at, key=key, model=source)
        compared(found, splits[found.head.layer])
        assert (found.softcap is not None) == (family == "gemma2")


def test_two_stacks(tmp_path: Path) -> None:
    exact = model("t5", {}, tmp_path)
    splits = reference.t5(exact, torch.tensor(IDS), torch.tensor(TARGET))
    source = av.load(str(tmp_path))
    inputs = tiny.inputs_of(source, IDS, TARGET)
    for head in ("enc:0.1", "enc:1.3", "dec:2.2", "cross:0.1", "cross:2.0"):
        found = answer(source, inputs, SourcesSettings(select=head, query=4))
        compared(found, splits[head.partition(":")[0]][found.head.layer])
