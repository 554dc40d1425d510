"""The protocol: tools become those of the official SDK, and errors become refusals."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from difflib import get_close_matches
from types import TracebackType
from typing import Annotated, Any, Self, get_args, get_origin

from anyio import CapacityLimiter, EndOfStream, from_thread, to_thread
from mcp.server.mcpserver import Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError
from pydantic import ConfigDict, Field, ValidationError

from attnviz import __version__
from attnviz.errors import AttnvizError, Message, cut, encodable
from attnviz.features.mcp.results import ToolAnswer
from attnviz.features.mcp.tools import Tools, description_of


class Answering:
    r"""A stream of messages that answers by itself those that are none.

    The SDK hands them on as exceptions, and drops these: whoever asked would wait for ever, for a
    lone surrogate (``"\ud800"``, half of a character) in a text, say.
    """

    def __init__(self, messages: Any, replies: Any) -> None:
        self._messages, self._replies = messages, replies

    @property
    def last_context(self) -> Any:
        """The context variables of whoever sent the last message."""
        return self._messages.last_context

    async def receive(self) -> SessionMessage:
        """Return the next message."""
        while True:
            message = await self._messages.receive()
            if isinstance(message, SessionMessage):
                return message
            if reply := refusal(message):
                await self._replies.send(SessionMessage(reply))

    async def aclose(self) -> None:
        """Read no more."""
        await self._messages.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


def refusal(error: Exception) -> JSONRPCError | None:
    """Return the reply to what is no message, by JSON-RPC 2.0; None to an empty line."""
    if not isinstance(error, ValidationError):
        return _refused(None, INVALID_REQUEST, str(error))
    problems = error.errors(include_url=False)
    first = problems[0]
    if first["type"] != "json_invalid":
        body = next((item["input"] for item in problems if isinstance(item["input"], dict)), None)
        name = ".".join(map(str, first["loc"][1:]))
        return _refused(body, INVALID_REQUEST, f"{name}: {first['msg']}" if name else first["msg"])
    if not str(first["input"]).strip():
        return None
    try:
        body = json.loads(first["input"])
    except (ValueError, RecursionError):
        return _refused(None, PARSE_ERROR, first["msg"])
    remedy = "half of a surrogate pair, such as \\ud800, is no character: leave it out"
    return _refused(body, PARSE_ERROR, f"{first['msg']}; {remedy}")


def _refused(message: Any, code: int, reason: str) -> JSONRPCError:
    """Return the refusal of a message, by its id where it has one that can be sent back."""
    number = message.get("id") if isinstance(message, dict) else None
    valid = isinstance(number, int) and not isinstance(number, bool)
    if isinstance(number, str):
        valid = number == encodable(number)
    error = ErrorData(code=code, message=Message(f"cannot read this message: {reason}"))
    return JSONRPCError(jsonrpc="2.0", id=number if valid else None, error=error)


LONGEST = 1 << 20
"""Characters of all arguments of a call; more is read from files."""

INSTRUCTIONS = """\
attnviz measures what the attention heads of transformers do, offline. A head is LAYER.HEAD, from 0.
Where a head looks (heads, look, profile, spans, syntax), whether it is needed (ablate, patch), what
it could feed (circuits) and what a layer would say (lens) are different questions: an answer to one
is none to another. Report a figure with what it was measured on. Every answer names a file with the
whole result: read, diff and evidence take it. read without a file lists models, folders and
results."""


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
            raise ToolError(encodable(self._refused(cut(name), error))) from error.__cause__

    def refuse_unknown(self) -> None:
        """Arguments that a tool's schema does not name are refused, and the schema says so."""
        for tool in self._tool_manager.list_tools():
            model = tool.fn_metadata.arg_model
            strict: Any = type(
                model.__name__, (model,), {"model_config": ConfigDict(extra="forbid")}
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
            text = " ".join(f"{type(cause).__name__}: {cause}".split())[:300]
            return f"{name}: unexpected {text}; this is a bug: please report it"
        tools = ", ".join(tool.name for tool in self._tool_manager.list_tools())
        return f"unknown tool {name!r}; choose from {tools}"

    def _wrong(self, tool: str, problem: dict[str, Any]) -> str:
        """One thing that is wrong with arguments."""
        named = ".".join(cut(str(part)) for part in problem["loc"])
        if problem["type"] != "extra_forbidden":
            return f"{named}: {problem['msg']}"
        (arguments,) = [
            list(candidate.parameters["properties"])
            for candidate in self._tool_manager.list_tools()
            if candidate.name == tool
        ]
        near = next(iter(get_close_matches(named, arguments, 1)), None)
        hint = f"it takes {', '.join(arguments)}" if near is None else f"did you mean {near}?"
        return f"no argument {named!r}; {hint}"


def _characters(value: Any) -> int:
    """Of all texts in what JSON can say."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(_characters(key) + _characters(inner) for key, inner in value.items())
    return sum(map(_characters, value)) if isinstance(value, list) else 0


def server(tools: Tools) -> ToolServer:
    """Return a server of some tools. Calls that come at once run one after the other.

    A call that its caller takes back ends after the batch that runs, or at once while it waits.
    """
    result = ToolServer("attnviz", instructions=INSTRUCTIONS, version=__version__,
                      log_level="WARNING")  # fmt: skip
    tools.checkpoint = from_thread.check_cancelled
    limiter = CapacityLimiter(1)
    for tool in tools.all():
        declare = result.tool(description=description_of(tool), structured_output=False)
        declare(_called(tool, limiter))
    result.refuse_unknown()
    return result


def _called(tool: Callable[..., ToolAnswer], limiter: CapacityLimiter) -> Callable[..., Any]:
    """Return a tool as the SDK calls it: contents for an answer, ToolError for what is refused."""

    @functools.wraps(tool)
    async def call(**arguments: Any) -> Any:
        try:
            answer = await to_thread.run_sync(lambda: tool(**arguments), limiter=limiter)
        except AttnvizError as error:
            raise ToolError(str(error)) from error
        text = encodable(answer.text)
        if answer.picture is None:
            return [text]
        return [text, Image(data=answer.picture, format="png")]

    signature = inspect.signature(tool)
    described = [parameter.replace(annotation=_field(parameter.annotation))
                 for parameter in signature.parameters.values()]  # fmt: skip
    call.__signature__ = signature.replace(parameters=described)  # type: ignore[attr-defined]
    return call


def _field(annotation: Any) -> Any:
    """Write the type of an argument, with what its schema says, as pydantic takes it."""
    if get_origin(annotation) is not Annotated:
        return annotation
    kind, schema = get_args(annotation)
    return Annotated[kind, Field(**schema)]
