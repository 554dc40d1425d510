"""Everything attnviz raises on purpose.

The whole tree::

    AttnvizError           the work cannot be done                    exit code 1
    ├── UsageError         wrong use: options, sizes, a selection     exit code 2
    │   ├── SizeError      layer sizes that do not fit together
    │   └── SelectionError heads that are not there, or junk
    ├── InputError         a text, ids or a recorded file is unusable
    ├── ModelError         a model, its weights or its tokenizer
    │   └── DeviceError    a device that is not there
    └── OutputError        a file that cannot be written

Every message is one line: what was wrong, the value, the remedy. Only ``attnviz.cli`` catches
these; anything else that escapes is a bug.
"""

from __future__ import annotations


class AttnvizError(Exception):
    """The work cannot be done; the message is one line a user can act on."""

    exit_code = 1


class UsageError(AttnvizError):
    """attnviz was asked for something that makes no sense."""

    exit_code = 2


class SizeError(UsageError):
    """Layer sizes that do not fit together (D not divisible by H, a size of zero, ...)."""


class SelectionError(UsageError):
    """A head selection that cannot be read, or names heads that do not exist."""


class InputError(AttnvizError):
    """A text, a list of token ids or a recorded file that cannot be used."""


class ModelError(AttnvizError):
    """A model, its weights or its tokenizer that cannot be used."""


class DeviceError(ModelError):
    """A device that is not present on this machine."""


class OutputError(AttnvizError):
    """A file that cannot be written."""
