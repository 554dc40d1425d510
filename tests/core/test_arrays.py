"""The two modules of functions on arrays have the same names and give the same numbers."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from attnviz.core import arrays
from attnviz.core.arrays import on_numpy, on_torch

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(2, 3, 5, 7)).astype(np.float32)
FLAGS = X > 0.3
COLUMNS = DRAW.integers(0, 7, (5, 4))
ROWS = np.array([0, 0, 2, 2, 2, 5])
VALUES = DRAW.normal(size=(6, 3)).astype(np.float32)
WEIGHT, BIAS = (DRAW.normal(size=size).astype(np.float32) for size in ((4, 7), (4,)))
SCALE, SHIFT = (DRAW.normal(size=7).astype(np.float32) for _ in range(2))
A, B = (DRAW.normal(size=size).astype(np.float32) for size in ((2, 3, 4), (2, 4, 5)))

SQUARE = DRAW.normal(size=(3, 4, 4))

CALLS: dict[str, tuple[Any, ...]] = {
    "columns_of_rows": (X, COLUMNS), "at_indices": (X, X.argmax(-1)[..., None]),
    "sum_by_row": (VALUES, ROWS, 7), "column_sums": (X,), "doubles": (X,),
    "padded_keys": (FLAGS, 2, 1), "matmul": (A, B, None), "softmax": (X, None),
    "log_softmax": (X,), "log_probabilities": (X[0, 0], COLUMNS[:, 0]),
    "log_sum_exp": (X,), "sigmoid": (X,), "linear": (X, WEIGHT, BIAS),
    "embedding": (COLUMNS, WEIGHT.T), "layer_norm": (X, SCALE, SHIFT, 1e-5), "gelu": (4 * X,),
    "gelu_tanh": (4 * X,), "relu": (X,), "triangle": (A.swapaxes(1, 2),),
    "orthogonal": (A.swapaxes(1, 2),), "singular_values": (SQUARE,), "largest": (X, 4),
    "outside": (X,), "detached": (X,), "copied": (X,), "contiguous": (X.swapaxes(1, 2),),
    "is_half": (X.astype(np.float16),), "on_cpu": (X,),
    "tracked": (X, None), "equal": (X, X.copy()), "at_once": (X, 7),
    "exact_matmul": (A.astype(np.float16), B.astype(np.float16)), "multiplies_exactly": (X,),
}  # fmt: skip
"""Arguments, NumPy's."""

NAMED = {"cast", "asarray", "empty", "zeros", "full", "arange", "limits", "largest_float"}
"""Functions that take a type of each library's own."""


def functions(module: ModuleType) -> set[str]:
    own = inspect.getmembers(module, inspect.isfunction)
    return {name for name, f in own if f.__module__ == module.__name__ and name[0] != "_"}


def test_both_have_the_same_functions() -> None:
    both = {*CALLS, *NAMED, "dropout", "address", "together"}
    assert functions(on_numpy) == both
    assert functions(on_torch) == both | {"free_memory"}  # of a device, which NumPy has not


def close(ours: Any, theirs: Any) -> None:
    if isinstance(ours, tuple):
        for mine, other in zip(ours, theirs, strict=True):
            close(mine, other)
        return
    if isinstance(ours, bool | int):
        assert ours is theirs
        return
    assert isinstance(ours, np.ndarray)
    assert ours.dtype == theirs.numpy().dtype
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_both_give_the_same(name: str) -> None:
    given = CALLS[name]
    tensors = [torch.from_numpy(x.copy()) if isinstance(x, np.ndarray) else x for x in given]
    close(getattr(on_numpy, name)(*given), getattr(on_torch, name)(*tensors))


@pytest.mark.parametrize("name", ["bool_", "int32", "int64", "float32", "float64"])
def test_types_and_new_arrays(name: str) -> None:
    like = torch.from_numpy(X)
    ours, theirs = getattr(on_numpy, name), getattr(on_torch, name)
    for call, given in (("zeros", ((2, 3),)), ("full", ((2, 3), 1)), ("asarray", ([0, 1],))):
        close(
            getattr(on_numpy, call)(*given, ours, X), getattr(on_torch, call)(*given, theirs, like)
        )
    close(on_numpy.cast(X, ours), on_torch.cast(like, theirs))
    assert on_numpy.empty((2, 3), ours, X).shape == on_torch.empty((2, 3), theirs, like).shape
    if name != "bool_":
        close(on_numpy.arange(2, 9, ours, X), on_torch.arange(2, 9, theirs, like))


def test_limits_let_through_what_is_allowed() -> None:
    ours = on_numpy.limits(FLAGS, np.float32)
    close(ours, on_torch.limits(torch.from_numpy(FLAGS), torch.float32))
    assert (ours[FLAGS] == math.inf).all()
    assert on_numpy.largest_float(X) is np.float64
    assert on_torch.largest_float(torch.from_numpy(X)) is torch.float64


def test_products_and_softmax_write_where_they_are_told() -> None:
    out = np.empty((2, 3, 5), np.float32)
    assert on_numpy.matmul(A, B, out) is out
    space = np.empty_like(X)
    assert on_numpy.softmax(X, space) is space
    assert space.sum(-1) == pytest.approx(1, abs=1e-6)


def test_gelu_is_as_exact_as_single_precision() -> None:
    """Against the error function of Python's own mathematics, in float64."""
    x = np.linspace(-9, 9, 20_001).astype(np.float32)
    exact = [value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x.tolist()]
    assert np.abs(on_numpy.gelu(x) - exact).max() < 6e-7
    assert (np.abs(on_numpy.gelu(x) - exact) <= 3e-7 * np.maximum(np.abs(x), 1)).all()


def test_arrays_find_their_functions_and_share_their_memory() -> None:
    tensor = torch.from_numpy(X)
    assert arrays.of(X) is on_numpy  # type: ignore[arg-type]
    assert arrays.of(tensor) is on_torch
    assert np.shares_memory(arrays.to_numpy(tensor), X)
    assert arrays.to_torch(arrays.array(X)).data_ptr() == tensor.data_ptr()
    assert arrays.of(arrays.converted(tensor, arrays.array(X))) is on_numpy
    assert arrays.of(arrays.converted(arrays.array(X), tensor)) is on_torch


def test_the_largest_come_first_and_of_equal_ones_the_first() -> None:
    numbers = np.array([1.0, 3.0, 2.0, 3.0, -1.0])
    assert arrays.top(numbers, 3) == [1, 3, 2]
    assert arrays.top(numbers, 9) == [1, 3, 2, 0, 4]
    assert arrays.top(numbers[:0], 2) == []


@pytest.mark.parametrize("count", [1, 3, 9])
def test_both_ends_of_every_row_are_those_of_one_row_after_the_other(count) -> None:
    rows = np.random.default_rng(0).integers(-4, 5, (40, 7)).astype(np.float32)  # with ties
    rows[20:] += np.random.default_rng(1).random((20, 7), np.float32)
    up, down = arrays.ends(rows, count)
    assert up.tolist() == [arrays.top(row, count) for row in rows]
    assert down.tolist() == [arrays.top(-row, count) for row in rows]
    assert [side.shape for side in arrays.ends(rows[:0], count)] == [(0, min(count, 7))] * 2


def test_dropout_is_torchs_own() -> None:
    with pytest.raises(TypeError, match="runs on torch"):
        on_numpy.dropout(X, 0.1)
    assert on_torch.dropout(torch.from_numpy(X), 0.0).equal(torch.from_numpy(X))


def test_exact_sums_leave_a_device_that_has_no_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's has none: sums go to the CPU, and numbers go there in its largest float."""
    moved: list[torch.Tensor] = []
    monkeypatch.setattr(on_torch, "largest_float", lambda like: torch.float32)
    monkeypatch.setattr(torch.Tensor, "cpu", lambda x: (moved.append(x), x)[1])
    x = torch.tensor([[0.1, 0.2], [0.3, 0.4]])
    assert arrays.exact(x).dtype == torch.float64
    assert on_torch.column_sums(x).dtype == torch.float64
    assert len(moved) == 2
    like = torch.zeros(1)
    for values in ([1.0], np.ones(1), torch.ones(1, dtype=torch.float64)):
        assert on_torch.asarray(values, torch.float64, like).dtype == torch.float32
    assert arrays.converted(arrays.array(np.ones(2)), like).dtype == torch.float32


def test_no_module_makes_float64_of_a_tensor_where_it_is() -> None:
    """``exact`` does, which knows devices without it; or it is on the CPU already."""
    package = Path(arrays.__file__).parents[2]
    allowed = {"core/arrays/on_torch.py", "models/imported/named.py"}
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package).as_posix()
        found = re.findall(r"(?<!\.cpu\(\))\.double\(\)", path.read_text())
        known = name in allowed or (name == "scoring/user_measures.py" and len(found) == 1)
        assert known or not found, name


def test_bfloat16_comes_to_numpy_with_every_bit() -> None:
    x = torch.randn(7, 3).to(torch.bfloat16)
    plain = arrays.to_numpy(x)
    assert plain.dtype == np.float32
    assert torch.equal(torch.from_numpy(plain).to(torch.bfloat16), x)


def test_together_keeps_types_and_shapes() -> None:
    parts = [FLAGS, ROWS, X, np.zeros((0, 2)), COLUMNS[:1, :3]]
    for ours, theirs in zip(parts, on_torch.together(parts, torch.from_numpy(X)), strict=True):
        close(ours, theirs)
