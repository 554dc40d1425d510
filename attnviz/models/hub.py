"""Fetching a model from the Hugging Face hub: weights in safetensors and small text files only.

A hub's answers are somebody else's: names, commits and ETags become paths of the hub's cache, so
that they are checked before anything is written, and whatever is wrong with them is one line.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from logging import CRITICAL
from pathlib import Path
from threading import Lock
from typing import Any

from attnviz.errors import ModelError, OutputError
from attnviz.files import place
from attnviz.models.demo import DEMOS
from attnviz.models.external_errors import one_line, replacing

CONVERT = (
    "load them where you trust them and save them again with "
    "model.save_pretrained(folder, safe_serialization=True)"
)
"""The remedy for pickled weights."""

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SMALL = (".json", ".txt", ".model", ".spm", ".jinja", ".tiktoken")
_WHOLE = "model.safetensors"
CONFIG = "config.json"
TEMPLATES = "additional_chat_templates"
"""A model's folder of chat templates that have names."""
_NAME = re.compile(rf"({TEMPLATES}/)?[^\W_][\w.+ -]*")
"""Names that are fetched: no path, no pattern, nothing hidden."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_ETAG = re.compile(r"[\w-]{1,128}")
_FETCHING = Lock()
_PATIENCE = 10.0  # seconds to wait for the hub's answer before the cache is asked


def download(model: str) -> Path:
    """Return the local folder of a model on the hub; downloads what the cache does not hold.

    Only the repository's top level and its chat templates, and no weights but safetensors. Progress
    goes to standard error, as huggingface_hub shows it, where that is a terminal.
    """
    return _fetch(model, lambda names: choose(names, model))


def download_config(model: str) -> Path:
    """Return the local folder of a model on the hub of which nothing but config.json is fetched."""
    return _fetch(model, lambda names: [CONFIG])


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from telling of its trouble line by line inside the ``with`` block."""
    from huggingface_hub.utils import logging

    verbosity = logging.get_verbosity()
    logging.set_verbosity(CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)


@_quiet()
def _fetch(model: str, select: Callable[[Sequence[str]], list[str]]) -> Path:
    """Fetch some files of a model, without a word of the library's own."""
    import huggingface_hub
    from huggingface_hub import constants, errors

    name, revision = _with_revision(model)
    try:
        if constants.HF_HUB_OFFLINE:
            return _cached(model)
        try:
            info = huggingface_hub.model_info(name, revision=revision, timeout=_PATIENCE)
            listed = info.siblings or []
        except (errors.HfHubHTTPError, errors.HFValidationError):
            raise  # the hub's own answer
        except Exception as error:  # whatever the transport raises where there is no network
            if isinstance(error, _MISREAD):
                raise _strange(model, "no description of a model") from None
            return _cached(model)
        names = select([str(file.rfilename) for file in listed])
        if not _COMMIT.fullmatch(str(info.sha)):
            raise _strange(model, f"commit {str(info.sha)[:60]!r}")
        with _FETCHING, _checked(model):
            folder = Path(
                huggingface_hub.snapshot_download(
                    name, revision=info.sha, allow_patterns=names, tqdm_class=_bars()
                )
            )
            _remember(folder, revision or constants.DEFAULT_REVISION, str(info.sha))
        return folder
    except ModelError:
        raise
    except errors.GatedRepoError:
        raise ModelError(
            f"{model} is gated on the hub; accept its terms there and log in with hf auth login"
        ) from None
    except errors.RevisionNotFoundError:
        raise ModelError(f"{name} has no revision {revision} on the hub; check its name") from None
    except errors.RepositoryNotFoundError:
        raise ModelError(
            f"no folder and no model {model!r} on the hub; check the name{bundled()}"
        ) from None
    except errors.HFValidationError:
        raise ModelError(f"{model!r} is neither a folder nor a valid hub id{bundled()}") from None
    except errors.LocalEntryNotFoundError:
        raise ModelError(
            f"no folder {model!r}, and the hub cannot be reached and its cache does not hold "
            f"{model}; fetch it while online, or give a local folder{bundled()}"
        ) from None
    except Exception as error:  # of the transport, whose kind depends on the version of the library
        raise ModelError(f"cannot fetch {model}: {one_line(error)}; try again later") from None


_MISREAD = (KeyError, TypeError, AttributeError, IndexError, AssertionError, RecursionError)
"""What reading JSON of another shape raises."""


def _strange(model: str, answer: str) -> ModelError:
    """Return an answer that no hub gives."""
    return ModelError(
        f"the hub answers for {model} with {answer}, which no hub does; check HF_ENDPOINT, or try "
        "again later"
    )


@contextlib.contextmanager
def _checked(model: str) -> Iterator[None]:
    """Inside the ``with`` block, refuse commits and ETags that are no names of files."""
    from huggingface_hub import file_download as library

    def check(commit: object, etag: object) -> None:
        for value, pattern in ((commit, _COMMIT), (etag, _ETAG)):
            if value is not None and not pattern.fullmatch(str(value)):
                label = "commit" if pattern is _COMMIT else "ETag"
                raise _strange(model, f"{label} {str(value)[:60]!r}")

    def of_file(*args: Any, **kwargs: Any) -> Any:
        try:
            answer = about_file(*args, **kwargs)
        except Exception as error:  # a file that is not there has a commit as well
            headers = getattr(getattr(error, "response", None), "headers", None) or {}
            check(headers.get("X-Repo-Commit"), None)
            raise
        check(answer.commit_hash, answer.etag)
        return answer

    def of_any(*args: Any, **kwargs: Any) -> Any:
        answer = about_any(*args, **kwargs)
        check(answer[2], answer[1])
        return answer

    about_file = library.get_hf_file_metadata
    about_any = library._get_metadata_or_catch_error
    with (
        replacing(library, "get_hf_file_metadata", of_file),
        replacing(library, "_get_metadata_or_catch_error", of_any),
    ):
        yield


def _bars() -> Any:
    """Bars that leave no line behind, and are shown to a terminal alone."""
    from huggingface_hub.utils.tqdm import tqdm

    class Bar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            hidden = kwargs.get("disable") or not sys.stderr.isatty()
            settings = {**kwargs, "leave": False, "disable": hidden}
            super().__init__(*args, **settings)  # type: ignore[no-untyped-call]

    return Bar


def _remember(folder: Path, revision: str, commit: str) -> None:
    """Write which commit a revision is, so that it is found where there is no network."""
    refs = folder.parents[1] / "refs"
    with contextlib.suppress(OSError, OutputError):
        refs.mkdir(exist_ok=True)
        place(refs / revision, (commit.encode(),))


def choose(names: Sequence[str], model: str) -> list[str]:
    """Return the files of a repository to fetch."""
    safe = [name for name in names if _NAME.fullmatch(name)]
    top = [name for name in safe if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    pickles = [name for name in top if name.endswith(PICKLES)]
    if pickles and not weights:
        raise ModelError(
            f"{model} has only pickled weights ({pickles[0]}), which can run code when they are "
            f"loaded; {CONVERT}"
        )
    if _WHOLE in weights:
        weights = [_WHOLE]
    templates = [name for name in safe if "/" in name and name.endswith(".jinja")]
    return [name for name in top if name.endswith(_SMALL)] + templates + weights


def bundled() -> str:
    """Return the bundled models' names as the end of a message; empty where there are none."""
    return f" (bundled models: {', '.join(DEMOS)})" if DEMOS else ""


def _cached(model: str) -> Path:
    """Return the folder in the cache, whole or not: what is missing from it is named later."""
    import huggingface_hub

    name, revision = _with_revision(model)
    return Path(
        huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=[CONFIG], local_files_only=True
        )
    )


def _with_revision(model: str) -> tuple[str, str | None]:
    """Return the id and the revision of ``name@revision``; None for the newest."""
    name, _, revision = model.partition("@")
    if not revision.strip("."):
        return name, None
    return name, revision
