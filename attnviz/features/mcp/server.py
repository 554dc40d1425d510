"""The protocol: tools become those of the official SDK, and errors become refusals."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

from anyio import CapacityLimiter, from_thread, to_thread
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from pydantic import ConfigDict, ValidationError

from attnviz import __version__
from attnviz.errors import AttnvizError, cut
from attnviz.features.mcp.answer import ToolAnswer
from attnviz.features.mcp.stdio import Answering, sendable
from attnviz.features.mcp.tools import Tools

LONGEST = 1 << 20
"""Characters of all arguments of a call; more is read from files."""

INSTRUCTIONS = """\
attnviz measures what the attention heads of transformers do, offline. A head is LAYER.HEAD, from 0.
Where a head looks (heads, look, profile, spans, syntax), whether it is needed (ablate, patch) and
what it could feed (circuits) are different questions: an answer to one is none to another. Report a
figure with what it was measured on. Every answer names a file with the whole result: read, diff and
evidence take it. read without a file lists models, folders and results."""


class ToolServer(MCPServer):
    """A server whose refusals are one line with a remedy, for wrong arguments too."""

    async def run_stdio_async(self) -> None:
        """Serve standard input and output until the input ends."""
        async with stdio_server() as (messages, replies):
            protocol = self._lowlevel_server
            start = protocol.create_initialization_options()
            await protocol.run(Answering(messages, replies), replies, start)

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool by name; ToolError with what to do otherwise."""
        if (size := _characters(arguments)) > LONGEST:
            raise ToolError(
                f"{cut(name)}: arguments of {size:,} characters; at most {LONGEST:,} are taken, "
                "so give a part, or many texts as a file"
            )
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            raise ToolError(sendable(self._refused(cut(name), error))) from error.__cause__

    def refuse_unknown(self) -> None:
        """Arguments that a tool's schema does not name are refused, and the schema says so."""
        for tool in self._tool_manager.list_tools():
            known = tool.fn_metadata.arg_model
            strict: Any = type(
                known.__name__, (known,), {"model_config": ConfigDict(extra="forbid")}
            )
            tool.fn_metadata.arg_model = strict
            tool.parameters = strict.model_json_schema(by_alias=True)

    def _refused(self, name: str, error: ToolError) -> str:
        cause = error.__cause__
        while isinstance(cause, ToolError):
            cause = cause.__cause__
        if isinstance(cause, ValidationError):
            wrong = [self._wrong(name, dict(problem)) for problem in cause.errors()[:3]]
            return f"{name}: {'; '.join(wrong)}; see the tool's input schema"
        if isinstance(cause, AttnvizError):
            return str(cause)
        if isinstance(cause, MemoryError):
            return f"{name}: out of memory; take a shorter text, fewer heads or a smaller model"
        if cause is not None:
            said = " ".join(f"{type(cause).__name__}: {cause}".split())[:300]
            return f"{name}: unexpected {said}; this is a bug: please report it"
        tools = ", ".join(tool.name for tool in self._tool_manager.list_tools())
        return f"unknown tool {name!r}; choose from {tools}"

    def _wrong(self, tool: str, problem: dict[str, Any]) -> str:
        """One thing that is wrong with arguments."""
        named = ".".join(cut(str(part)) for part in problem["loc"])
        if problem["type"] != "extra_forbidden":
            return f"{named}: {problem['msg']}"
        (known,) = [
            list(each.parameters["properties"])
            for each in self._tool_manager.list_tools()
            if each.name == tool
        ]
        near = next(iter(get_close_matches(named, known, 1)), None)
        meant = f"it takes {', '.join(known)}" if near is None else f"did you mean {near}?"
        return f"no argument {named!r}; {meant}"


def _characters(value: Any) -> int:
    """Of all texts in what JSON can say."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(each) for key, each in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def server(tools: Tools) -> ToolServer:
    """A server of some tools. Calls that come at once run one after the other.

    A call that its caller takes back ends after the batch that runs, or at once while it waits.
    """
    made = ToolServer("attnviz", instructions=INSTRUCTIONS, version=__version__,
                      log_level="WARNING")  # fmt: skip
    tools.checkpoint = from_thread.check_cancelled
    alone = CapacityLimiter(1)
    for tool in tools.all():
        made.tool(description=_described(tool), structured_output=False)(_called(tool, alone))
    made.refuse_unknown()
    return made


def _described(tool: Callable[..., ToolAnswer]) -> str:
    return " ".join((tool.__doc__ or "").split())


def _called(tool: Callable[..., ToolAnswer], alone: CapacityLimiter) -> Callable[..., Any]:
    """A tool as the SDK calls it: contents for an answer, ToolError for what is refused."""

    @functools.wraps(tool)
    async def call(**arguments: Any) -> Any:
        try:
            answer = await to_thread.run_sync(lambda: tool(**arguments), limiter=alone)
        except AttnvizError as error:
            raise ToolError(str(error)) from error
        text = sendable(answer.text)
        if answer.picture is None:
            return [text]
        return [text, Image(data=answer.picture, format="png")]

    call.__signature__ = inspect.signature(tool)  # type: ignore[attr-defined]
    return call
