"""Every planted bug gets its name, and no right module gets one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import attnviz as av
from attnviz.cli import main
from attnviz.features.check import module as calls
from proofs.hand_written import RIGHT, WRONG, Einsum, Written

SAMPLE = Path(__file__).parents[3] / "sample_inputs" / "attention.py"
SIZES = ((24, 4), (40, 5))
MANY = ((16, 2), (48, 3), (64, 8))


def made(make: Any, d_model: int, heads: int) -> nn.Module:
    torch.manual_seed(0)
    module: nn.Module = make(d_model, heads)
    return module


@pytest.fixture(autouse=True)
def few_tokens(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Five queries and seven keys of cross-attention: each token is a run of the module."""
    if request.node.get_closest_marker("slow") is None:
        monkeypatch.setattr(calls, "LENGTH", 5)
        monkeypatch.setattr(calls, "SOURCE_LENGTH", 7)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_module_gets_no_bugs_name(name: str) -> None:
    checked = av.check(made(RIGHT[name], *SIZES[0]))
    assert checked.bugs == ()
    assert checked.right, checked.failed
    assert checked.heads == SIZES[0][1]


@pytest.mark.parametrize("name", WRONG)
def test_a_planted_bug_gets_its_name(name: str) -> None:
    make, bug = WRONG[name]
    checked = av.check(made(make, *SIZES[0]))
    assert [found.name for found in checked.bugs] == [bug]
    assert not checked.right
    (found,) = checked.bugs
    assert found.change
    assert ("w_k.weight is never used" in found.what) == (name == "one matrix")
    if found.after is not None:  # what is left, against the formula between the module's matrices
        assert found.off is not None
        assert found.off > 1e-3
        assert found.after < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [*SIZES[1:], *MANY], ids=str)
def test_names_hold_at_other_sizes(sizes: tuple[int, int]) -> None:
    for name, make in RIGHT.items():
        checked = av.check(made(make, *sizes))
        assert not checked.bugs, (name, checked.bugs)
    for name, (make, bug) in WRONG.items():
        if "tiled" in name and sizes[1] in (2, 3, 5):  # a query head for each key head, or one
            continue
        if name == "by H" and sizes[1] ** 2 == sizes[0]:  # which is d
            continue
        assert bug in [found.name for found in av.check(made(make, *sizes)).bugs], name


def test_a_view_is_named_with_as_many_heads_as_tokens_and_more() -> None:
    """A map, and with as many each, would be of one token alone, as where heads of a token meet."""
    for heads in (5, 12):
        (found,) = av.check(made(WRONG["view"][0], 6 * heads, heads)).bugs
        assert found.name == "view"
        (found,) = av.check(made(WRONG["heads"][0], 6 * heads, heads)).bugs
        assert found.name == "heads"


class Scored(Einsum):
    """Says for itself how weights come about, and what is given back."""

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1)

    def back(self, y: torch.Tensor, weights: torch.Tensor) -> Any:
        return y

    def forward(self, x: torch.Tensor) -> Any:
        q, k, v = (
            w(x).unflatten(-1, (self.h, -1)).transpose(1, 2) for w in (self.q, self.k, self.v)
        )
        weights = self.weights(q @ k.mT / q.shape[-1] ** 0.5, k)
        return self.back(self.o((weights @ v).transpose(1, 2).flatten(2)), weights)


class ShiftedSink(Scored):
    """A sink, and the row's largest score taken away before softmax, as gpt-oss is written."""

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        scores = scores + torch.full(scores.shape[-2:], -1e9, dtype=scores.dtype).triu(1)
        sink = torch.arange(self.h, dtype=scores.dtype).view(1, -1, 1, 1)
        scores = torch.cat([scores, sink.expand(*scores.shape[:-1], 1)], -1)
        return (scores - scores.max(-1, keepdim=True).values).softmax(-1)[..., :-1]


class BothSides(Scored):
    """A window to both sides, as local layers of encoders have it."""

    reach = 1

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        places = torch.arange(scores.shape[-1])
        far = (places[:, None] - places).abs() > self.reach
        return scores.masked_fill(far, -torch.inf).softmax(-1)


@pytest.mark.parametrize("reach", [1, 2, 3])
def test_a_window_to_both_sides_is_right(reach: int) -> None:
    module = made(BothSides, *SIZES[0])
    module.reach = reach  # type: ignore[assignment]
    checked = av.check(module)
    assert checked.bugs == ()
    assert checked.right, checked.failed


class FlatAcross(Scored):
    """Scores heads first, which a mask lays anew, and flat for softmax."""

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        heads, tokens = scores.transpose(0, 1), scores.shape[-1]
        later = torch.ones(tokens, tokens).triu(1).bool().expand(len(heads), 1, tokens, tokens)
        masked = heads.masked_fill(later, -torch.inf)
        flat = masked.contiguous().view(-1, tokens, tokens).softmax(-1)
        return flat.view(heads.shape).transpose(0, 1)


def test_scores_that_are_laid_anew_for_softmax_are_followed() -> None:
    checked = av.check(made(FlatAcross, *SIZES[0]))
    assert checked.right, checked.failed


class LogSumExp(Scored):
    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (scores - scores.logsumexp(-1, keepdim=True)).exp()


class LogSoftmax(Scored):
    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return scores.log_softmax(-1).exp()


class MeanWeightsFirst(Scored):
    def back(self, y: torch.Tensor, weights: torch.Tensor) -> Any:
        return weights.mean(1), y


class Halved(Scored):
    """Turns its input into 16 bits, as its weights once were, and prints."""

    def forward(self, x: torch.Tensor) -> Any:
        print(x.shape)
        return super().forward(x.half())


class Core(nn.Module):
    """Takes queries, keys and values as they are, and has no heads of its own."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return weights @ v


class HeadWide(Scored):
    """Its first matrix takes what one head has, not D."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        width = d_model // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.embed_size = d_model

    def forward(self, x: torch.Tensor) -> Any:
        cut = x.unflatten(-1, (self.h, -1)).transpose(1, 2)
        q, k, v = (part(cut) for part in (self.q, self.k, self.v))
        weights = self.weights(q @ k.mT / q.shape[-1] ** 0.5, k)
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class NarrowValues(Scored):
    """Queries and keys are wider than values, whose width it divides by."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        self.q, self.k = (nn.Linear(d_model, 2 * d_model) for _ in range(2))

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (scores * 2**0.5).softmax(-1)


class Listed(Scored):
    """Matrices in a list, the second of which nobody uses."""

    def __init__(self, d_model: int, heads: int) -> None:
        super().__init__(d_model, heads)
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(2))

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(self.linears[0](x))


class Deaf(Scored):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        return super().forward(x)


class Unsqueezed(Scored):
    """A mask [B, T, S] gets its axis of heads here, and a fill that does not mask."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> Any:
        self.mask = None if mask is None else mask.unsqueeze(1)
        return super().forward(x)

    def weights(self, scores: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        return (scores if self.mask is None else scores.masked_fill(self.mask == 0, 1e-9)).softmax(
            -1
        )


@pytest.mark.parametrize(
    ("make", "bugs"),
    [(ShiftedSink, []), (LogSumExp, []), (LogSoftmax, []), (MeanWeightsFirst, []), (Halved, []),
     (HeadWide, []), (lambda *_: Core(), []), (NarrowValues, ["scale"]), (Listed, ["unused"]),
     (Deaf, ["mask ignored"]), (Unsqueezed, ["fill"])],
)  # fmt: skip
def test_other_ways_to_write_it(make: Any, bugs: list[str], capsys: Any) -> None:
    """Sizes that no other test has; what a module prints is not printed."""
    module = made(make, 28, 2)
    checked = av.check(module, torch.randn(2, 7, 28) if isinstance(module, Core) else None)
    assert [bug.name for bug in checked.bugs] == bugs, (checked.bugs, checked.failed)
    assert checked.right is not bool(bugs)
    assert capsys.readouterr().out == ""


def test_the_module_stays_as_it_is() -> None:
    module = Einsum(24, 4).float().train()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    av.check(module)
    assert module.training
    assert next(module.parameters()).dtype == torch.float32
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("name", "value"),
    [("rope_theta", None), ("rope_scaling", {"factor": 2.0}), ("rope_theta", 500.0)],
)
def test_a_base_is_wrong_only_where_another_is_named(name: str, value: Any) -> None:
    module = made(WRONG["another base than named"][0], *SIZES[0])
    theta = module.rope_theta
    if name == "rope_theta":  # rotates by 500 whatever it names

        class Unnamed(type(module)):  # type: ignore[misc]
            rope_theta = theta if value is None else value

        module.__class__ = Unnamed
        del module.rope_theta
        if value is not None:
            module.rope_theta = value
    else:
        setattr(module, name, value)
    checked = av.check(module)
    assert checked.right, checked.bugs


def test_fewer_heads_than_asked_for() -> None:
    class Single(Einsum):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scores = self.q(x) @ self.k(x).transpose(1, 2) / x.shape[-1] ** 0.5
            output: torch.Tensor = self.o(scores.softmax(-1) @ self.v(x))
            return output

    assert av.check(Single(24, 4)).right
    (bug,) = av.check(Single(24, 4), heads=4).bugs
    assert bug.name == "heads"


def test_a_layer_that_reads_another_is_not_judged() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    checked = av.check(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    assert checked.verdict == "unknown"
    assert "check the attention by itself" in checked.failed[0]


def test_a_cache_that_is_off_by_one() -> None:
    torch.manual_seed(0)
    module = Written(24, 4, causal=True)
    module.double().eval()

    def step(late: int) -> Any:
        seen: list[torch.Tensor] = []

        def run(x: torch.Tensor, position: int) -> torch.Tensor:
            seen.append(x)
            text = torch.cat(seen[: max(len(seen) - late, 1)], 1)
            return module(text)[:, -1:]

        return run

    assert av.check(module, step=step(0)).right
    (bug,) = av.check(module, step=step(1)).bugs
    assert bug.name == "cache"


def test_what_is_no_attention_is_said_to_be_none() -> None:
    checked = av.check(nn.Linear(24, 24))
    assert checked.verdict == "unknown"
    assert "no softmax" in checked.failed[0]


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", f"{SAMPLE}:Attention", "--d-model", "32", "--heads", "4"]) == 0
    assert "is right" in capsys.readouterr().out
    for name, bug in {"Viewed": "view", "Unscaled": "scale", "WrongAxis": "axis",
                      "Glued": "merge"}.items():  # fmt: skip
        assert main(["check", f"{SAMPLE}:{name}", "--json"]) == 4
        document = json.loads(capsys.readouterr().out)
        assert [found["name"] for found in document["bugs"]] == [bug]
    files = [tmp_path / f"x{suffix}" for suffix in (".png", ".csv", ".json")]
    assert main(["check", f"{SAMPLE}:LateMask", *(f"--out={path}" for path in files)]) == 4
    assert all(path.stat().st_size > 100 for path in files)
    read = av.read(tmp_path / "x.json")
    assert read.bugs[0].name == "mask after softmax"


MADE = """
from torch import nn
class Ids(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.table = nn.Embedding(9, d_model)
    def forward(self, x):
        return self.table(x)
class Asking(Ids):
    def __init__(self, d_model, vocab):
        super().__init__(d_model)
class Leaving(Ids):
    def forward(self, x):
        raise SystemExit(3)
class Core(nn.Module):
    def forward(self, q, k, v):
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v
"""


def test_heads_are_asked_for_only_where_a_class_has_them(tmp_path: Path) -> None:
    (tmp_path / "made.py").write_text(MADE, encoding="utf-8")
    checked = av.check(f"{tmp_path / 'made.py'}:Core")
    assert checked.right, checked.bugs
    assert checked.heads == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (["nothing.py:X"], "no such file"), ([f"{SAMPLE}:X"], "it has Attention"),
        ([f"{SAMPLE}:Attention", "--d-model", "30"], "cannot be cut into 4 heads"),
        ([str(SAMPLE)], "attention.py:Class"), (["MADE:Ids"], "takes token ids"),
        (["MADE:Asking"], "needs vocab, whose value is not known; give it a default"),
        (["MADE:Leaving"], "cannot be called with [2, 5, 24]: SystemExit"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_one_line(line: list[str], said: str, capsys, tmp_path) -> None:
    (tmp_path / "made.py").write_text(MADE, encoding="utf-8")
    line[0] = line[0].replace("MADE", str(tmp_path / "made.py"))
    assert main(["check", *line]) in (1, 2)
    (error,) = capsys.readouterr().err.splitlines()
    assert said in error
