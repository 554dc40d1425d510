"""Fetching a model from the Hugging Face hub: weights in safetensors and small text files only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from attnviz.errors import ModelError
from attnviz.models.demo import DEMOS

CONVERT = (
    "load them where you trust them and save them again with "
    "model.save_pretrained(folder, safe_serialization=True)"
)
"""The remedy for pickled weights."""

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_SMALL = (".json", ".txt", ".model", ".spm")
_WHOLE = "model.safetensors"
CONFIG = "config.json"
TEMPLATES = "additional_chat_templates"
"""A model's folder of chat templates that have names."""
_PATIENCE = 10.0
"""Seconds to wait for the hub's answer before the cache is asked."""


def download(model: str) -> Path:
    """The local folder of a model on the hub; downloads what the cache does not hold.

    Only the repository's top level, and no weights but safetensors. Progress goes to standard
    error, as huggingface_hub shows it.

    Args:
        model: an id such as ``openai-community/gpt2``; ``name@revision`` for one of its revisions.

    Raises:
        ModelError: no such model, no access to it, only pickled weights, or the hub cannot be
            reached and the cache does not hold it.
    """
    return _fetch(model, lambda names: choose(names, model))


def download_config(model: str) -> Path:
    """The local folder of a model on the hub of which nothing but config.json is fetched.

    Args:
        model: as for :func:`download`.

    Raises:
        ModelError: as for :func:`download`, whatever its weights are.
    """
    return _fetch(model, lambda names: [CONFIG])


def _fetch(model: str, wanted: Callable[[Sequence[str]], list[str]]) -> Path:
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
        except Exception:  # whatever the transport raises where there is no network
            return _cached(model)
        names = wanted([file.rfilename for file in listed])
        return Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=names)
        )
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
    except (errors.HfHubHTTPError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"cannot fetch {model}: {reason}; try again later") from None


def choose(names: Sequence[str], model: str) -> list[str]:
    """The files of a repository to fetch.

    Args:
        names: everything in it.
        model: its id, for the message.

    Raises:
        ModelError: its weights are pickled only.
    """
    top = [name for name in names if "/" not in name]
    weights = [name for name in top if name.endswith(".safetensors")]
    pickles = [name for name in top if name.endswith(PICKLES)]
    if pickles and not weights:
        raise ModelError(
            f"{model} has only pickled weights ({pickles[0]}), which can run code when they are "
            f"loaded; {CONVERT}"
        )
    if _WHOLE in weights:
        weights = [_WHOLE]
    return [name for name in top if name.endswith(_SMALL)] + weights


def bundled() -> str:
    """The bundled models' names as the end of a message; empty where there are none."""
    return f" (bundled models: {', '.join(DEMOS)})" if DEMOS else ""


def _cached(model: str) -> Path:
    """The folder in the cache, whole or not: what is missing from it is named later."""
    import huggingface_hub

    name, revision = _with_revision(model)
    return Path(
        huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=[CONFIG], local_files_only=True
        )
    )


def _with_revision(model: str) -> tuple[str, str | None]:
    """The id and the revision of ``name@revision``; None for the newest."""
    name, _, revision = model.partition("@")
    return name, revision or None
