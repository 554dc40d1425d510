"""The walk, its verification against the real layer, the numeric walk, and the command."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from attnviz.answers import Request, shapes
from attnviz.attention.sizes import check_sizes
from attnviz.cli.shapes import shapes as command
from attnviz.errors import AttnvizError, InputError, SizeError, UsageError
from attnviz.render.shapes.table import Paint, cells_wide, wrapped
from attnviz.shapes.spec import KINDS, AttentionSpec, RunSizes, spec_of
from attnviz.shapes.walk.steps import walk
from attnviz.shapes.walk.verify import verify
from attnviz.shapes.worked.by_hand import compute
from attnviz.shapes.worked.softmax_scale import scaling
from attnviz.shapes.worked.tiny import EMBEDDINGS, from_text
from attnviz.shapes.worked.tiny_json import causal_example, from_json, read_json

SCHEMA = json.loads(
    (Path(__file__).parent.parent.parent / "docs" / "shapes.schema.json").read_text()
)
APP = typer.Typer()
APP.command()(command)


def spec(
    kind: str, d_model: int, heads: int, *, bias: bool = True, **options: Any
) -> AttentionSpec:
    causal, window = options.pop("causal", False), options.pop("window", None)
    sizes = check_sizes(d_model, heads, kind=kind, **options)
    return spec_of(sizes, bias=bias, causal=causal, window=window)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(APP, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def answer(*arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(run(*arguments, "--json"))
    jsonschema.validate(document, SCHEMA)
    return document


def answered(**request: Any) -> str:
    """The line with which a request is refused."""
    with pytest.raises(AttnvizError) as caught:
        shapes(Request(**request))
    return str(caught.value)


# the walk


def test_the_walk_of_two_by_four_by_eight() -> None:
    steps = walk(spec("mha", 8, 2), RunSizes(2, 4)).steps
    assert [step.sizes for step in steps] == [
        (2, 4, 8),  # X
        (2, 4, 8),  # Q
        (2, 4, 8),  # K
        (2, 4, 8),  # V
        (2, 4, 2, 4),  # view
        (2, 2, 4, 4),  # transpose
        (2, 2, 4, 4),  # scores
        (2, 2, 4, 4),  # scaled
        (2, 2, 4, 4),  # masked
        (2, 2, 4, 4),  # weights
        (2, 2, 4, 4),  # head outputs
        (2, 4, 2, 4),  # transpose back
        (2, 4, 8),  # concat
        (2, 4, 8),  # Y
    ]
    assert sum(step.parameters for step in steps) == 4 * 8 * 8 + 4 * 8


def test_cross_attention_is_not_square() -> None:
    walked = walk(spec("cross", 256, 8), RunSizes(2, 12, 20))
    assert walked.step("softmax").sizes == (2, 8, 12, 20)
    assert walked.step("softmax").symbols == "[B, H, T, S]"
    assert walked.step("w_k").sizes == (2, 20, 256)
    assert walked.step("w_o").sizes == (2, 12, 256)


def test_causal_example_shapes() -> None:
    walked = walk(spec("mha", 128, 8, causal=True), RunSizes(4, 16))
    assert walked.step("w_o").sizes == (4, 16, 128)
    assert walked.step("softmax").sizes == (4, 8, 16, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_letters_agree_with_numbers(kind: str) -> None:
    one = spec(kind, 48, 6)
    context = 13 if kind == "cross" else None
    letters, numbers = walk(one, RunSizes(3)), walk(one, RunSizes(3, 7, context))
    for unset, known in zip(letters.steps, numbers.steps, strict=True):
        assert unset.symbols == known.symbols
        assert unset.flops.at(T=7, S=13) == known.flops
        assert (unset.bytes is None) == (known.bytes is None)
        if unset.bytes is not None and known.bytes is not None:
            assert unset.bytes.at(T=7, S=13) == known.bytes
    assert sum((s.flops for s in numbers.steps), 0) == numbers.flops.total
    assert sum(s.parameters for s in numbers.steps) == numbers.parameters.total


def test_views_take_no_memory_and_every_step_has_its_reason() -> None:
    for kind in KINDS:
        for run_ in (RunSizes(), RunSizes(cache=5)) if kind != "cross" else (RunSizes(),):
            for step in walk(spec(kind, 48, 6), run_).steps:
                assert (step.bytes is None) == (
                    step.operation[:5] == ".view"
                    or "transpose" in step.operation
                    or step.key == "share"
                )
                assert len(step.why) > 40
    whys = "\n".join(step.why for step in walk(spec("mha", 8, 2), RunSizes()).steps)
    for bug in (".contiguous()", "√d", "after softmax", "forget it"):
        assert bug in whys


# verification against the real layer

GRID: list[tuple[str, dict[str, Any]]] = [
    ("mha", {}),
    ("mha", {"head_dim": 5}),
    ("gqa", {"kv_heads": 3}),
    ("mqa", {}),
    ("mla", {"latent": 5, "rope_dim": 2}),
    ("mla", {"latent": 7, "rope_dim": 0}),
]


@pytest.mark.parametrize(("kind", "sizes"), GRID)
@pytest.mark.parametrize("options", [{}, {"causal": True}, {"causal": True, "window": 3}])
def test_the_real_layer_does_what_the_walk_says(
    kind: str, sizes: dict[str, Any], options: dict[str, Any]
) -> None:
    for batch, seq in ((1, 1), (3, 7), (2, 13)):
        found = verify(
            walk(spec(kind, 30, 6, bias=batch == 3, **sizes, **options), RunSizes(batch, seq))
        )
        assert found.failures == ()
        assert {check.what for check in found.checks} >= {"shape", "parameters", "FLOPs", "bytes"}
    for cache in (0, 1, 8):
        one = spec(kind, 30, 6, **sizes, **options)
        assert verify(walk(one, RunSizes(2, cache=cache, dtype="float64"))).failures == ()


@pytest.mark.parametrize(("t", "s"), [(1, 1), (12, 20), (7, 3)])
@pytest.mark.parametrize("kv_heads", [6, 2])
def test_real_cross_attention_does_too(t: int, s: int, kv_heads: int) -> None:
    one = spec("cross", 30, 6, kv_heads=kv_heads)
    assert verify(walk(one, RunSizes(2, t, s, dtype="bfloat16"))).failures == ()


def test_a_wrong_walk_is_found_out() -> None:
    right = walk(spec("mha", 30, 6), RunSizes(2, 7))
    bad = [
        step._replace(parameters=step.parameters + 1) if step.key == "w_q" else step
        for step in right.steps
    ]
    (failure,) = verify(right._replace(steps=tuple(bad))).failures
    assert (failure.step, failure.what) == ("Q", "parameters")
    other = walk(spec("mha", 30, 5), RunSizes(2, 7))
    assert verify(right._replace(steps=other.steps)).failures


def test_verifying_refuses_what_would_not_fit() -> None:
    assert "GiB" in answered(verify=True, d_model=4096, heads=32, seq=1_000_000)


def test_a_failed_verification_fails_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    from attnviz.shapes.costs import formulas as costs

    monkeypatch.setattr(costs.Projection, "parameters", property(lambda self: self.weights + 1))
    result = CliRunner().invoke(APP, ["--verify", "--d-model", "16", "--heads", "2"])
    assert result.exit_code == 1
    assert "DIFFERS" in result.output


def test_verify_counts_weights_and_presets(minilm: str) -> None:
    assert answer("--model", minilm, "--verify")["equal"] is True
    assert answer("--preset", "t5-base", "--verify")["equal"] is True


# the command


def test_torch_is_not_imported_and_neither_is_rich() -> None:
    script = (
        "import sys\nfrom attnviz.answers import Request, shapes\n"
        "from attnviz.render.shapes.answer import as_text\n"
        "from attnviz.render.shapes.table import Paint\n"
        "import attnviz.cli.shapes\n"
        "print(len(as_text(shapes(Request(d_model=512, heads=8)), 100, Paint(colour=False))))\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'rich.console', 'rich.table', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    length, heavy = out.stdout.splitlines()
    assert int(length) > 1000
    assert heavy == "[]"


@pytest.mark.parametrize(
    ("arguments", "view"),
    [
        (["--d-model", "512", "--heads", "8"], "walk"),
        (["--d-model", "64", "--heads", "4", "--seq", "9", "--why", "--layers", "3"], "walk"),
        (["--kind", "mla", "--cache", "100", "--dtype", "bf16"], "walk"),
        (["--kind", "cross", "--seq", "12", "--context", "20", "--diagram"], "diagram"),
        (["--preset", "gemma2-9b", "--seq", "8192"], "model"),
        (["--compare", "--memory", "80GB", "--layers", "4", "--batch", "8"], "compare"),
        (["--sweep", "seq=128..131072"], "sweep"),
        (["--sweep", "heads=1..8", "--kind", "gqa", "--kv-heads", "1"], "sweep"),
        (["--presets"], "presets"),
        (["--verify", "--d-model", "24", "--heads", "3"], "verify"),
        (["--numbers", "cat sat on mat", "--causal"], "numbers"),
        (["--numbers", "--example", "causal"], "numbers"),
        (["--scaling"], "scaling"),
    ],
)
def test_every_view_in_every_format(arguments: list[str], view: str) -> None:
    document = answer(*arguments)
    assert document["view"] == view
    text = run(*arguments)
    assert document["title"].split()[0] in text
    assert "\x1b" not in text
    if view != "diagram":
        rows = list(csv.reader(io.StringIO(run(*arguments, "--csv"))))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) > 1
        markdown = run(*arguments, "--markdown")
        tables = [line for line in markdown.splitlines() if line.startswith("|")]
        assert len(tables) > 2


def test_tables_fit_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 100, 140):
        monkeypatch.setenv("COLUMNS", str(columns))
        for arguments in (
            ["--kind", "gqa", "--seq", "64", "--why"],
            ["--kind", "mla", "--diagram"],
            ["--preset", "gemma2-9b"],
            ["--preset", "llama3-70b", "--compare", "--memory", "80GB", "--batch", "8"],
            ["--presets"],
            ["--scaling"],
            ["--sweep", "seq=128..131072"],
            ["--numbers", "cat sat on mat"],
        ):
            lines = run(*arguments).splitlines()
            assert max(map(cells_wide, lines)) <= columns
            assert [line for line in lines if line != line.rstrip()] == []


def test_wide_terminals_give_shape_and_size_a_column_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--d-model", "64"], ["--preset", "gemma2-9b"], ["--model", "demo-bert"]):
        monkeypatch.setenv("COLUMNS", "140")
        assert re.search("shape +size +operation", run(*arguments))
        monkeypatch.setenv("COLUMNS", "80")
        assert "size and shape" in run(*arguments)


def test_layers_far_apart_are_counted_and_listed_for_programs() -> None:
    assert "21 layers" in run("--preset", "gemma2-9b")
    first = next(csv.DictReader(io.StringIO(run("--preset", "gemma2-9b", "--csv"))))
    assert first["layers"].startswith("0, 2, 4, ")
    assert "0-11" in run("--preset", "gpt2")


def test_one_is_singular() -> None:
    assert run("--numbers", "cat").startswith("1 token, ")
    assert "at 1 token." in run("--preset", "gpt2", "--seq", "1")
    assert "of 1 token a sequence" in " ".join(run("--compare", "--seq", "1").split())


def test_colour_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("--seq", "4")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("--seq", "4")


def test_ascii_terminals_get_ascii() -> None:
    for request in (Request(why=True), Request(diagram=True), Request(sweep="seq=1..64")):
        from attnviz.render.shapes.answer import as_text

        assert as_text(shapes(request), 100, Paint(colour=False, ascii_only=True)).isascii()


def test_wrapping_keeps_every_word() -> None:
    text = "a bb ccc dddd eeeee ffffff"
    for width in (1, 5, 9, 40):
        lines = wrapped(text, width)
        assert " ".join(lines) == text
        assert all(len(line) <= width or " " not in line for line in lines)


def test_what_deepseek_compares_is_said() -> None:
    text = " ".join(run("--preset", "deepseek-v2", "--compare").split())
    assert "576 numbers" in text
    assert "32,768" in text
    assert "1.76 %" in text
    assert "93.3 % reduction compares whole systems" in text


def test_a_partial_answer_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "zork", "hidden_size": 64, "num_attention_heads": 4})
    )
    assert "Partial answer: family 'zork'" in run("--model", str(tmp_path))
    assert "no safetensors weights" in answered(model=str(tmp_path), verify=True)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"heads": 6}, "85.33 per head, not a whole number.*nearest: 4 or 8"),
        ({"heads": 0}, "heads must be at least 1, got 0"),
        ({"d_model": -8}, "d-model must be at least 1, got -8"),
        ({"d_model": 10**30}, "beyond"),
        ({"seq": 10**30}, "beyond"),
        ({"batch": 0}, "batch must be at least 1"),
        ({"kind": "mqa", "kv_heads": 4}, "mqa has one key/value head, not 4"),
        ({"latent": 64}, "latent 64 belongs to kind mla"),
        ({"rope_dim": 8, "kind": "gqa"}, "rope-dim 8 belongs to kind mla"),
        ({"kv_heads": 3}, "cannot share 3"),
        ({"kind": "foo"}, "unknown kind 'foo'; there are mha, gqa"),
        ({"context": 5}, "add kind='cross'"),
        ({"kind": "cross", "causal": True}, "two sequences"),
        ({"window": 0}, "window must be at least 1"),
        ({"dtype": "int7"}, "unknown dtype 'int7'; known: float64"),
        ({"layers": 0}, "layers must be"),
        ({"layers": 1_000_000}, "layers must be 1 to 10,000"),
        ({"preset": "llama3"}, "did you mean llama3-8b"),
        ({"preset": "gpt2", "heads": 4}, "heads is fixed by 'gpt2'"),
        ({"preset": "gpt2", "model": "x"}, "keep one"),
        ({"preset": "t5-base", "context": 9}, "context=9 is for cross-attention"),
        ({"preset": "gpt3", "verify": True}, "no transformers class"),
        ({"model": "/nonexistent"}, "no folder '/nonexistent'"),
        ({"model": __file__}, "is a file"),
        ({"verify": True, "compare": True}, "two views"),
        ({"memory": "80GB"}, "memory belongs to compare"),
        ({"compare": True, "memory": "80XB"}, "no size"),
        ({"compare": True, "kind": "cross"}, "cross-attention has none"),
        ({"text": "hello"}, "belongs to numbers or animate"),
        ({"sweep": "heads=1..4", "heads": 4}, "contradict each other"),
        ({"sweep": "heads=3..3"}, "170.67 per head"),
        ({"sweep": "heads=1..4", "preset": "gpt2"}, "contradicts 'gpt2'"),
        ({"sweep": "seq=1..4", "cache": 3}, "do not go together"),
        ({"plot": Path("x.png")}, "plot belongs to sweep or scaling"),
        ({"diagram": True, "output": Path("x.bmp")}, "end it in .svg, .png, .pdf"),
        ({"animate": Path("x.mp4")}, "end it in .html"),
        ({"diagram": True, "output": Path("/nonexistent/x.svg")}, "does not exist"),
        ({"scaling": True, "seed": -1}, "seed must not be negative"),
        ({"scaling": True, "preset": "gpt2"}, "does not take a model"),
        ({"numbers": True, "text": "  "}, "blank"),
        ({"numbers": True, "text": "a " * 40}, "too many"),
        ({"numbers": True, "text": "a", "input": Path("f")}, "three inputs"),
        ({"numbers": True, "text": "a", "kind": "mla"}, "has no numeric walk"),
        ({"numbers": True, "text": "a", "d_model": 1000}, "at most 64"),
        ({"numbers": True, "text": "a", "seq": 3}, "seq does not apply"),
        ({"numbers": True, "example": "foo"}, "there are words and causal"),
        ({"numbers": True, "input": Path("/nonexistent")}, "No such file"),
        ({"numbers": True, "precision": 99}, "precision must be"),
    ],
)  # fmt: skip
def test_refusals_say_what_is_wrong(request_: dict[str, Any], said: str) -> None:
    line = answered(**request_)
    assert re.search(said, line)
    assert "\n" not in line


def test_enormous_sizes_are_answered_without_allocating() -> None:
    document = answer("--d-model", str(1 << 24), "--heads", "1024", "--seq", str(1 << 40))
    step = next(s for s in document["steps"] if s["key"] == "softmax")
    assert step["bytes"]["value"] == 1024 * (1 << 80) * 4


# numbers


def reference(q: Any, k: Any, v: Any, *, causal: bool) -> tuple[Any, Any]:
    """One head, one number at a time."""
    out, weights = [], []
    for i, query in enumerate(q):
        keys = range(i + 1) if causal else range(len(k))
        scores = [sum(a * b for a, b in zip(query, k[j], strict=True)) for j in keys]
        powers = [math.exp(score / math.sqrt(len(query))) for score in scores]
        row = [p / sum(powers) for p in powers] + [0.0] * (len(k) - len(powers))
        weights.append(row)
        out.append([sum(w * v[j][c] for j, w in enumerate(row)) for c in range(len(v[0]))])
    return np.array(weights), np.array(out)


def test_the_causal_vector() -> None:
    walked = compute(causal_example())
    head = walked.heads[0]
    weights, output = reference(head.q, head.k, head.v, causal=True)
    np.testing.assert_allclose(head.weights, weights, atol=1e-15)
    np.testing.assert_allclose(walked.output, output, atol=1e-15)
    assert walked.output[0].tolist() == [0.5, 0.0]
    assert head.masked[0, 1] == -np.inf


@pytest.mark.parametrize("kv_heads", [2, 1])
@pytest.mark.parametrize("causal", [False, True])
def test_every_number_of_a_sentence(kv_heads: int, causal: bool) -> None:
    given = from_text("cat sat on mat cat", kv_heads=kv_heads, causal=causal)
    assert given.x is not None
    assert given.x[0].tolist() == list(EMBEDDINGS["cat"])
    assert given.w_q is not None
    assert given.w_k is not None
    assert given.w_v is not None
    assert given.w_o is not None
    walked = compute(given)
    outputs = []
    for h, head in enumerate(walked.heads):
        g = h * kv_heads // 2
        q, k = given.x @ given.w_q[:, 2 * h : 2 * h + 2], given.x @ given.w_k[:, 2 * g : 2 * g + 2]
        v = given.x @ given.w_v[:, 2 * g : 2 * g + 2]
        weights, output = reference(q, k, v, causal=causal)
        np.testing.assert_allclose(head.raw, q @ k.T, atol=1e-13)
        np.testing.assert_allclose(head.scaled, q @ k.T / math.sqrt(2), atol=1e-13)
        np.testing.assert_allclose(head.weights, weights, atol=1e-13)
        np.testing.assert_allclose(head.output, output, atol=1e-13)
        bits = [-sum(w * math.log2(w) for w in row if w) for row in weights]
        np.testing.assert_allclose(head.entropy, bits, atol=1e-13)
        np.testing.assert_allclose(head.top, weights.max(1), atol=1e-13)
        outputs.append(output)
    np.testing.assert_allclose(walked.concat, np.hstack(outputs), atol=1e-13)
    np.testing.assert_allclose(walked.output, np.hstack(outputs) @ given.w_o, atol=1e-13)
    np.testing.assert_allclose(sum(walked.contributions), walked.output, atol=1e-13)


def test_numbers_agree_with_attend() -> None:
    import torch

    from attnviz.attention.attend import attend

    walked = compute(from_text("a b c d e", d_model=8, heads=2, kv_heads=1, causal=True, window=2))
    q = torch.tensor(np.stack([h.q for h in walked.heads]))[None]
    k, v = (torch.tensor(getattr(walked.heads[0], name))[None, None] for name in "kv")
    output = attend(q, k, v, causal=True, window=2).output
    np.testing.assert_allclose(output[0], np.stack([h.output for h in walked.heads]), atol=1e-12)


def test_equal_words_are_equal_vectors_and_seeds_differ() -> None:
    one, two = from_text("red red blue"), from_text("blue red", seed=1)
    assert one.x is not None
    assert two.x is not None
    assert one.x[0].tolist() == one.x[1].tolist() != one.x[2].tolist()
    assert one.x[2].tolist() != two.x[0].tolist()


def test_json_input_with_everything() -> None:
    content = {
        "tokens": ["a", "b"],
        "x": [[1, 0], [0, 1]],
        "context": [[1, 1], [2, 0], [0, 2]],
        "heads": 1,
        "w_q": [[1, 0], [0, 1]],
        "w_k": [[1, 0], [0, 1]],
        "w_v": [[1, 0], [0, 1]],
        "w_o": [[2, 0], [0, 2]],
        "b_o": [1, -1],
        "mask": [[1, 1, 0], [0, 0, 0]],
        "scale": 1.0,
    }
    walked = compute(read_json(json.dumps(content).encode(), "f.json"))
    weight = math.exp(1) / (math.exp(1) + math.exp(2))
    np.testing.assert_allclose(walked.heads[0].weights, [[weight, 1 - weight, 0], [0, 0, 0]])
    np.testing.assert_allclose(walked.output[1], [1, -1])  # nothing but the bias
    assert walked.blocked == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({}, "needs x"),
        ({"x": [[1, 2]], "zork": 1}, "unknown field 'zork'"),
        ({"x": [[1, 2], [3]]}, "all of one length"),
        ({"x": [[1, "a"]]}, "no number"),
        ({"x": []}, "rows of numbers"),
        ({"x": [[1, 2]] * 40}, "at most 32"),
        ({"x": [[1.0] * 100]}, "at most"),
        ({"x": [[1, 2]], "tokens": ["a", "b"]}, "2 tokens for 1 rows"),
        ({"x": [[1, 2]], "tokens": "ab"}, "list of words"),
        ({"x": [[1, 2]], "w_q": [[1]]}, "need \\(2, 2\\)"),
        ({"x": [[1, 2]], "w_z": [[1]]}, "unknown field"),
        ({"x": [[1, 2]], "heads": "two"}, "whole number"),
        ({"x": [[1, 2]], "causal": "yes"}, "true or false"),
        ({"x": [[1, 2]], "mask": [[1, 1]]}, "scores are"),
        ({"x": [[1, 2]], "context": [[1, 2, 3]]}, "must agree"),
        ({"x": [[1, float("nan")]]}, "NaN"),
        ({"x": [[10**400, 1]]}, "too large"),
        ({"q": [[1, 2]], "k": [[1]], "v": [[1]]}, "do not fit"),
    ],
)
def test_junk_json(content: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_json(content, origin="f.json")


def test_junk_files(tmp_path: Path) -> None:
    for data, said in ((b"nope", "not JSON"), (b"[1]", "object"), (b"\xff\xfe", "not JSON"),
                       (b" " * (1 << 21), "at most 1 MiB")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            read_json(data, "f.json")
    assert "is a folder" in answered(numbers=True, input=tmp_path)
    with pytest.raises(SizeError, match="nearest"):
        from_text("a b", heads=3)
    with pytest.raises(UsageError):
        shapes(Request(numbers=True, input=tmp_path / "f.json", heads=4))


def test_scores_stand_beside_their_scaled_selves() -> None:
    lines = run("--numbers", "cat sat on mat", "--precision", "2").splitlines()
    beside = next(line for line in lines if "scores Q Kᵀ" in line)
    assert "scaled by 1/√d" in beside
    assert any("-1.05" in line or "-1.39" in line for line in lines)


def test_scaling_keeps_entropy_where_raw_scores_lose_it() -> None:
    found = scaling(3)
    raw = [row.raw.entropy for row in found.rows]
    assert raw == sorted(raw, reverse=True)
    assert raw[-1] < 0.5
    assert all(5 < row.scaled.entropy < 6 for row in found.rows)
    last = found.rows[-1]
    assert last.raw.gradient < 0.5 * last.scaled.gradient
    assert scaling(3) == found != scaling(4)
