"""The protocol: tools become those of the official SDK, and errors become refusals."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ValidationError

from attnviz import __version__
from attnviz.errors import AttnvizError
from attnviz.features.mcp.answer import ToolAnswer
from attnviz.features.mcp.tools import Tools

INSTRUCTIONS = """\
attnviz measures what the attention heads of transformers do, offline. A head is LAYER.HEAD, from 0.
Where a head looks (heads, look, profile, spans, syntax), whether it is needed (ablate, patch) and
what it could feed (circuits) are different questions: an answer to one is none to another. Report a
figure with what it was measured on. Every answer names a file with the whole result: read, diff and
evidence take it. read without a file lists models, folders and results."""


class ToolServer(MCPServer):
    """A server whose refusals are one line with a remedy, for wrong arguments too."""

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool by name; ToolError with what to do otherwise."""
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            raise ToolError(self._refused(name, error)) from error.__cause__

    def _refused(self, name: str, error: ToolError) -> str:
        cause = error.__cause__
        while isinstance(cause, ToolError):
            cause = cause.__cause__
        if isinstance(cause, ValidationError):
            wrong = [
                f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}"
                for one in cause.errors()[:3]
            ]
            return f"{name}: {'; '.join(wrong)}; see the tool's input schema"
        if isinstance(cause, AttnvizError):
            return str(cause)
        if isinstance(cause, MemoryError):
            return f"{name}: out of memory; take a shorter text, fewer heads or a smaller model"
        if cause is not None:
            said = " ".join(f"{type(cause).__name__}: {cause}".split())[:300]
            return f"{name}: unexpected {said}; this is a bug: please report it"
        tools = ", ".join(one.name for one in self._tool_manager.list_tools())
        return f"{str(error).rstrip('.')}; choose from {tools}"


def server(tools: Tools) -> ToolServer:
    """A server of some tools. Calls that come at once run one after the other."""
    made = ToolServer("attnviz", instructions=INSTRUCTIONS, version=__version__,
                      log_level="WARNING")  # fmt: skip
    lock = threading.Lock()
    for tool in tools.all():
        made.tool(description=_described(tool), structured_output=False)(_called(tool, lock))
    return made


def _described(tool: Callable[..., ToolAnswer]) -> str:
    return " ".join((tool.__doc__ or "").split())


def _called(tool: Callable[..., ToolAnswer], lock: threading.Lock) -> Callable[..., Any]:
    """A tool as the SDK calls it: contents for an answer, ToolError for what is refused."""

    @functools.wraps(tool)
    def call(**arguments: Any) -> Any:
        try:
            with lock:
                found = tool(**arguments)
        except AttnvizError as error:
            raise ToolError(str(error)) from error
        if found.picture is None:
            return [found.text]
        return [found.text, Image(data=found.picture, format="png")]

    return call
